//! What there is before a restore: the backup, read to its last page; the cluster; the members that still answer.

use std::collections::BTreeSet;

use api::conditions::{self, ConditionStatus};
use api::labels;
use api::names::CLIENT_PORT;
use api::v1beta2::{BackupContents, EtcdCluster, EtcdClusterSpec, EtcdRestore, RestoreRequest, RestoreStage};
use domain::{ClusterId, Version};
use etcd::{Expect, Member};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use snapshot::manifest::{self, ManifestError};
use snapshot::{Candidate, InspectError, Kind, Manifest, Meta, Naming, Place, SaveError, StoreError};
use thiserror::Error;

use super::plan::{Known, Survivor, Target};
use crate::store::{self, OpenError};
use crate::tenure::Tenure;

/// Why a restore cannot go on. Nothing was touched.
#[derive(Debug, Error)]
pub enum LookError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{place} is damaged: {source}")]
    Damaged { place: String, source: InspectError },
    #[error("what {member} still has could not be saved: {source}")]
    Survivor { member: String, source: SaveError },
    #[error("Kubernetes did not answer: {0}")]
    Kubernetes(#[from] kube::Error),
}

impl LookError {
    /// Stable, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Open(error) => error.reason(),
            Self::Store(error) => store::reason(error),
            Self::Manifest(_) => "BadManifest",
            Self::Damaged { .. } => "BackupDamaged",
            Self::Survivor { .. } => "SurvivorNotSaved",
            Self::Kubernetes(_) => "KubernetesRefused",
        }
    }

    /// It is Kubernetes that does not answer, not the backup that is wrong: tried again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Kubernetes(_) | Self::Open(OpenError::Secret { .. }))
    }
}

/// The backup, verified.
pub struct Backup {
    pub place: Place,
    pub contents: BackupContents,
    pub version: Option<Version>,
    /// The spec of the cluster that it was made of.
    pub spec: Option<EtcdClusterSpec>,
}

/// Reads and verifies all of it.
pub async fn backup(tenure: &Tenure, restore: &EtcdRestore) -> Result<Backup, LookError> {
    let namespace = restore.namespace().unwrap_or_default();
    let store = restore.spec.store().map_err(OpenError::from)?;
    let place = store::open(tenure, &namespace, store).await?;
    let manifest: Option<Manifest> = manifest::read(&place).await?;
    let contents = match snapshot::inspect(&place, Kind::Snapshot).await {
        Ok(contents) => contents,
        Err(InspectError::Store(error)) => return Err(error.into()),
        Err(source) => return Err(LookError::Damaged { place: place.to_string(), source }),
    };
    let made_by =
        manifest.as_ref().map(|manifest| manifest.etcd_version.clone()).or(contents.version.clone());
    let spec = manifest.and_then(|manifest| manifest.cluster_spec);
    Ok(Backup {
        place,
        version: made_by.as_deref().and_then(version),
        contents: BackupContents {
            etcd_version: made_by.unwrap_or_default(),
            revision: contents.revision,
            keys: i64::try_from(contents.keys).unwrap_or(i64::MAX),
            digest: contents.digest,
            size_bytes: i64::try_from(contents.size).unwrap_or(i64::MAX),
        },
        // A spec that this operator does not understand is none.
        spec: spec.and_then(|spec| serde_json::from_value(spec).ok()),
    })
}

/// A manifest names the version in full, the database itself only its minor.
fn version(text: &str) -> Option<Version> {
    text.parse().or_else(|_| format!("{text}.0").parse()).ok()
}

/// What the cluster is, in the words of its own status.
pub fn target(cluster: Option<&EtcdCluster>, restore: &EtcdRestore, backup: &Backup) -> Target {
    let Some(cluster) = cluster else {
        let spec = restore.spec.cluster_template.as_ref().or(backup.spec.as_ref());
        return Target::Absent { spec: spec.map(|spec| Known { version: spec.version().to_owned() }) };
    };
    let version = cluster.spec.version().to_owned();
    let status = cluster.status.clone().unwrap_or_default();
    if status.cluster_id.is_empty() {
        return Target::Empty { version };
    }
    let holds = |type_: &str| conditions::find(&status.conditions, type_).map(|condition| condition.status);
    match (holds("QuorumLost"), holds("Available")) {
        (Some(ConditionStatus::True), _) => Target::Lost { version },
        (None, Some(ConditionStatus::True)) => Target::Healthy { version },
        _ => Target::Unknown { version },
    }
}

/// The restore of another EtcdRestore that has not ended.
pub fn under_way(cluster: &EtcdCluster, uid: &str) -> Option<String> {
    let request = RestoreRequest::on(cluster).ok().flatten().filter(|request| request.uid != uid)?;
    let progress = cluster.status.as_ref().and_then(|status| status.restore.as_ref());
    let ended = progress.is_some_and(|progress| {
        progress.uid == request.uid && matches!(progress.stage, RestoreStage::Done | RestoreStage::Failed)
    });
    (!ended).then_some(request.name)
}

/// Members of the cluster: those that answer, and those that do not and may still have their data.
#[derive(Default)]
pub struct Members {
    pub answering: Vec<(String, Candidate)>,
    pub unsure: Vec<String>,
}

pub async fn members(tenure: &Tenure, cluster: &EtcdCluster) -> Result<Members, LookError> {
    let status = cluster.status.clone().unwrap_or_default();
    let Ok(id) = u64::from_str_radix(&status.cluster_id, 16) else { return Ok(Members::default()) };
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let ours = ListParams::default().labels(&labels::selector(&labels::of_cluster(&name)));
    let pods: Api<Pod> = Api::namespaced(tenure.client.clone(), &namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(tenure.client.clone(), &namespace);
    let (pods, claims) = tokio::try_join!(pods.list(&ours), claims.list_metadata(&ours))?;
    let asked = pods.items.iter().filter_map(|pod| {
        let ip = pod.status.as_ref()?.pod_ip.clone()?;
        Some(async move {
            let expect = Expect { cluster: Some(ClusterId(id)), member: None };
            let member = Member::connect(format!("{ip}:{CLIENT_PORT}"), expect).ok()?;
            let status = member.status().await.ok()?;
            let member = member.expecting(status.identity.into());
            Some((pod.name_any(), Candidate { member, status }))
        })
    });
    let answering: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
    let answers: BTreeSet<&str> = answering.iter().map(|(name, _)| name.as_str()).collect();
    let listed = status.members.ready.iter().chain(&status.members.unready);
    let unsure = listed
        .filter(|name| !answers.contains(name.as_str()) && may_have_data(name, &pods.items, &claims.items))
        .cloned()
        .collect();
    Ok(Members { answering, unsure })
}

/// Its pod or its claim is there, and not known to hold nothing.
fn may_have_data(name: &str, pods: &[Pod], claims: &[PartialObjectMeta<PersistentVolumeClaim>]) -> bool {
    let claim = claims.iter().any(|claim| claim.name_any() == name);
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Failed" | "Succeeded"))
    };
    claim || pods.iter().any(|pod| pod.name_any() == name && !ended(pod))
}

/// Saves what a survivor has beside the backup.
pub async fn save(
    tenure: &Tenure,
    restore: &EtcdRestore,
    beside: &Place,
    name: &str,
    survivor: Candidate,
) -> Result<(Survivor, String), LookError> {
    let failed = |source| LookError::Survivor { member: name.to_owned(), source };
    let place = beside.followed_by(&format!(".survivor-{name}"))?;
    let meta = Meta {
        slot: Timestamp::now(),
        owner_uid: restore.uid().unwrap_or_default(),
        owner: format!("{}/{}", restore.namespace().unwrap_or_default(), restore.name_any()),
        cluster_name: Some(restore.spec.etcd_cluster.name.clone()),
        cluster_spec: None,
    };
    let from = snapshot::From::Survivor(Box::new(survivor));
    let saved = snapshot::save(from, &place, Naming::AsGiven, &meta, &tenure.stop, |_| {}).await;
    let (place, manifest) = saved.map_err(failed)?;
    let saved_to = store::path_of(restore.spec.store().map_err(OpenError::from)?, &place);
    Ok((Survivor { name: name.to_owned(), revision: manifest.revision }, saved_to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn cluster(status: serde_json::Value, request: Option<&str>) -> EtcdCluster {
        let request = request.map(|uid| {
            json!({"uid": uid, "name": uid, "image": "i", "source": {}, "digest": "d"}).to_string()
        });
        let annotations = request.map(|text| json!({api::annotations::RESTORE: text})).unwrap_or(json!({}));
        serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "c", "annotations": annotations},
            "spec": {"size": 3, "version": "3.5.16"}, "status": status,
        }))
        .unwrap()
    }

    #[rstest]
    #[case::never_begun(json!({}), "Empty")]
    #[case::lost(json!({"clusterID": "a", "conditions": [
        {"type": "Available", "status": "False"}, {"type": "QuorumLost", "status": "True"},
    ]}), "Lost")]
    #[case::healthy(json!({"clusterID": "a", "conditions": [{"type": "Available", "status": "True"}]}), "Healthy")]
    #[case::silent(json!({"clusterID": "a", "conditions": [
        {"type": "Available", "status": "Unknown"}, {"type": "QuorumLost", "status": "Unknown"},
    ]}), "Unknown")]
    #[case::no_word(json!({"clusterID": "a"}), "Unknown")]
    fn the_cluster_tells_what_it_is(#[case] status: serde_json::Value, #[case] is: &str) {
        let backup =
            Backup { place: place(), contents: BackupContents::default(), version: None, spec: None };
        let target = target(Some(&cluster(status, None)), &EtcdRestore::default(), &backup);
        assert!(format!("{target:?}").starts_with(is), "{target:?}");
    }

    fn place() -> Place {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Place::memory(Vec::<u8>::new())).unwrap()
    }

    #[rstest]
    #[case::none(json!({}), None, None)]
    #[case::our_own(json!({}), Some("u1"), None)]
    #[case::just_asked(json!({}), Some("u2"), Some("u2"))]
    #[case::filling(json!({"restore": {"uid": "u2", "seed": "s", "stage": "Filling"}}), Some("u2"), Some("u2"))]
    #[case::done(json!({"restore": {"uid": "u2", "seed": "s", "stage": "Done"}}), Some("u2"), None)]
    #[case::failed(json!({"restore": {"uid": "u2", "seed": "s", "stage": "Failed"}}), Some("u2"), None)]
    #[case::of_an_earlier_one(json!({"restore": {"uid": "u0", "seed": "s", "stage": "Done"}}), Some("u2"), Some("u2"))]
    fn no_two_at_once(
        #[case] status: serde_json::Value,
        #[case] request: Option<&str>,
        #[case] other: Option<&str>,
    ) {
        assert_eq!(under_way(&cluster(status, request), "u1").as_deref(), other);
    }
}
