//! Moves what is stored in an old version to the stored one of today, and says so in the CRD.

use std::time::Duration;

use api::nginx::{CRD_NAME, Version};
use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use runtime::backoff::{Policy, until_ok};
use runtime::rights::{self, Need, RightsError};
use serde_json::{Value, json};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::NAME;
use crate::source::resource;

/// The migration's name, as the book has it.
pub const MIGRATION: &str = "nginx-operator-storage-version-migration";
const MIGRATION_ASSET: &str = include_str!("../assets/v1alpha2/storage-version-migration.yaml");

/// Annotation of the migration with the CRD's UID and generation that it was made for: an older one may have run too early, and
/// one for a CRD that is gone did nothing for this one.
const FOR_GENERATION: &str = "operator.example.com/for-generation";

const RETRY: Policy = Policy { first: Duration::from_secs(1), most: Duration::from_mins(1) };
/// How long the cluster's migrator may take for one try.
const PATIENCE: Duration = Duration::from_mins(5);
const PAGE: u32 = 100;

pub const NEEDS: [Need; 5] = [
    Need::cluster("apiextensions.k8s.io", "customresourcedefinitions", &["get", "list", "watch"])
        .named(CRD_NAME),
    Need::cluster("apiextensions.k8s.io", "customresourcedefinitions/status", &["patch"]).named(CRD_NAME),
    Need::cluster("storagemigration.k8s.io", "storageversionmigrations", &["get", "list", "watch", "delete"])
        .named(MIGRATION),
    Need::cluster("storagemigration.k8s.io", "storageversionmigrations", &["create"]),
    Need::cluster("operator.example.com", "nginxoperators", &["list", "patch"]),
];

#[derive(Debug, Error)]
pub enum StorageError {
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error("cannot move what is stored to {version}: {source}")]
    Api { version: Version, source: kube::Error },
    #[error("StorageVersionMigration {MIGRATION} failed: {0}; it is tried again")]
    Failed(String),
    #[error(
        "StorageVersionMigration {MIGRATION} was not done after {PATIENCE:?}; is the controller manager running?"
    )]
    TooLong,
    #[error("asset storage-version-migration.yaml of this program is broken: {0}")]
    Asset(#[from] serde_saphyr::Error),
}

/// Looks at the CRD until stopped, and migrates when it stores in one version and may still have another.
pub async fn keep(client: &Client, stop: &CancellationToken) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let may =
        until_ok(RETRY, stop, "the check of rights for migrations", || rights::require(client, &NEEDS, None));
    if may.await.is_none() {
        return;
    }
    let mut changes = std::pin::pin!(watcher::watch_object(crds, CRD_NAME).default_backoff());
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => change,
        };
        let crd = match change {
            Some(Ok(Some(crd))) => crd,
            Some(Ok(None)) => continue,
            Some(Err(error)) => {
                warn!(%error, "the watch of the CRD broke; it is set up again");
                continue;
            }
            None => return,
        };
        let Some(version) = due(&crd) else { continue };
        let moved = until_ok(RETRY, stop, "the migration of what is stored", || attempt(client, version));
        if moved.await.is_none() {
            return;
        }
    }
}

/// One try, at the CRD as it is by now: after a failure it may have changed.
async fn attempt(client: &Client, version: Version) -> Result<(), StorageError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = crds.get_opt(CRD_NAME).await.map_err(|source| StorageError::Api { version, source })?;
    match crd.as_ref().and_then(|crd| Some((crd, due(crd)?))) {
        Some((crd, version)) => migrate(client, crd, version).await,
        None => Ok(()),
    }
}

/// The version to move to, if objects may be stored in another.
fn due(crd: &CustomResourceDefinition) -> Option<Version> {
    let storage = crd.spec.versions.iter().find(|version| version.storage)?;
    let version = Version::ALL.into_iter().find(|version| version.as_str() == storage.name)?;
    let stored = crd.status.as_ref()?.stored_versions.as_ref()?;
    // Back to an older one is the user's own business, and nothing that we hurry.
    (version == Version::V1alpha2 && stored.iter().any(|name| *name != storage.name)).then_some(version)
}

async fn migrate(
    client: &Client,
    crd: &CustomResourceDefinition,
    version: Version,
) -> Result<(), StorageError> {
    let failed = |source| StorageError::Api { version, source };
    info!(%version, "moving what is stored to this version");
    if migrator_served(client).await.map_err(failed)? {
        by_migrator(client, crd, version).await?;
    } else {
        by_hand(client, version).await.map_err(failed)?;
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    // Not if the CRD has changed since: then what was moved may not be all, and the watch brings us back.
    let patch = json!({
        "metadata": { "uid": crd.uid(), "resourceVersion": crd.resource_version() },
        "status": { "storedVersions": [version.as_str()] },
    });
    let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
    crds.patch_status(CRD_NAME, &params, &Patch::Merge(patch)).await.map_err(failed)?;
    info!(%version, "everything is stored in this version; older ones can be retired");
    Ok(())
}

fn migrations(client: &Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("storagemigration.k8s.io", "v1beta1", "StorageVersionMigration");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, "storageversionmigrations"))
}

async fn migrator_served(client: &Client) -> Result<bool, kube::Error> {
    match client.list_api_group_resources("storagemigration.k8s.io/v1beta1").await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == "storageversionmigrations")),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// The migration as shipped.
pub fn shipped() -> Result<Value, serde_saphyr::Error> {
    serde_saphyr::from_str(MIGRATION_ASSET)
}

/// Asks the cluster's own migrator, and waits until it is done.
async fn by_migrator(
    client: &Client,
    crd: &CustomResourceDefinition,
    version: Version,
) -> Result<(), StorageError> {
    let failed = |source| StorageError::Api { version, source };
    let api = migrations(client);
    let generation =
        format!("{}/{}", crd.uid().unwrap_or_default(), crd.metadata.generation.unwrap_or_default());
    let fits = |migration: &DynamicObject| migration.annotations().get(FOR_GENERATION) == Some(&generation);
    let found = api.get_opt(MIGRATION).await.map_err(failed)?;
    if found.as_ref().is_none_or(|found| !fits(found) || state(found).is_some_and(|state| state.is_err())) {
        if found.is_some() {
            api.delete(MIGRATION, &DeleteParams::default()).await.map_err(failed)?;
        }
        let mut wanted = shipped()?;
        wanted["metadata"]["annotations"][FOR_GENERATION] = json!(generation);
        let wanted: DynamicObject =
            serde_json::from_value(wanted).map_err(|error| failed(kube::Error::SerdeError(error)))?;
        api.create(&PostParams::default(), &wanted).await.map_err(failed)?;
    }
    let done = async {
        let mut changes = std::pin::pin!(watcher::watch_object(api.clone(), MIGRATION).default_backoff());
        while let Some(change) = changes.next().await {
            match change {
                Ok(Some(migration)) if fits(&migration) => {
                    if let Some(state) = state(&migration) {
                        return state.map_err(StorageError::Failed);
                    }
                }
                Ok(_) => {}
                Err(error) => warn!(%error, "the watch of the migration broke; it is set up again"),
            }
        }
        Err(StorageError::TooLong)
    };
    tokio::time::timeout(PATIENCE, done).await.unwrap_or(Err(StorageError::TooLong))
}

/// How it ended, if it did.
fn state(migration: &DynamicObject) -> Option<Result<(), String>> {
    let conditions = migration.data["status"]["conditions"].as_array()?;
    let holds = |type_: &str| {
        conditions.iter().find(|condition| condition["type"] == type_ && condition["status"] == "True")
    };
    if holds("Succeeded").is_some() {
        return Some(Ok(()));
    }
    holds("Failed").map(|condition| Err(condition["message"].as_str().unwrap_or("no message").to_owned()))
}

/// Where the cluster has no migrator: a write that changes nothing stores an object anew.
async fn by_hand(client: &Client, version: Version) -> Result<(), kube::Error> {
    let resource = resource(version);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = all.list(&page).await?;
        for object in list.items {
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &object.namespace().unwrap_or_default(), &resource);
            let patch = Patch::Merge(json!({ "metadata": { "uid": object.uid() } }));
            match api.patch(&object.name_any(), &PatchParams::default(), &patch).await {
                Ok(_) => {}
                // Gone, or made anew and thus stored anew.
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::nginx::crd::{Stage, crd};
    use api::nginx::{GROUP, PLURAL};

    use super::*;

    #[test]
    fn a_migration_is_due_only_when_the_new_version_is_stored_and_an_old_one_may_be() {
        let with = |stage, stored: &[&str]| {
            let mut crd = crd(stage, "ns");
            crd.status.get_or_insert_default().stored_versions =
                Some(stored.iter().map(ToString::to_string).collect());
            due(&crd)
        };
        assert_eq!(with(Stage::First, &["v1alpha1"]), None);
        assert_eq!(with(Stage::Transition, &["v1alpha1"]), None);
        assert_eq!(with(Stage::Transition, &["v1alpha1", "v1alpha2"]), None);
        assert_eq!(with(Stage::Second, &["v1alpha1", "v1alpha2"]), Some(Version::V1alpha2));
        assert_eq!(with(Stage::Second, &["v1alpha2"]), None);
    }

    #[test]
    fn the_shipped_migration_is_for_our_resource() {
        let migration = shipped().unwrap();
        assert_eq!(migration["metadata"]["name"], MIGRATION);
        assert_eq!(migration["spec"]["resource"], json!({ "group": GROUP, "resource": PLURAL }));
    }

    #[test]
    fn how_a_migration_ended_is_read_from_its_conditions() {
        let of = |conditions: Value| {
            let object = json!({ "metadata": {}, "status": { "conditions": conditions } });
            state(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(of(json!([])), None);
        assert_eq!(of(json!([{ "type": "Running", "status": "True" }])), None);
        assert_eq!(of(json!([{ "type": "Succeeded", "status": "True" }])), Some(Ok(())));
        let failed = of(json!([{ "type": "Failed", "status": "True", "message": "no" }]));
        assert_eq!(failed, Some(Err("no".into())));
    }
}
