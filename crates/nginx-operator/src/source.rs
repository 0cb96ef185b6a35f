//! `NginxOperator`s as the operator sees them: in the newest version that is served, brought to the hub version.

use api::nginx::{CRD_NAME, GROUP, KIND, NginxOperator, PLURAL, Version, conversion};
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DynamicObject};
use kube::core::{GroupVersionKind, Resource};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use thiserror::Error;
use tracing::error;

/// Which namespaces this process looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespace(String),
    Everywhere,
}

impl Scope {
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(namespace) => Some(namespace),
            Self::Everywhere => None,
        }
    }

    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match self {
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
            Self::Everywhere => Api::all(client.clone()),
        }
    }
}

#[derive(Debug, Error)]
pub enum SourceError {
    #[error(
        "CRD {CRD_NAME} is not installed, and the operator does not install it itself; \
         run `nginx-operator manifests --crd | kubectl apply -f -`"
    )]
    NoCrd,
    #[error("cannot ask the API server which versions of {KIND} it serves: {0}")]
    Unknown(#[source] kube::Error),
}

/// The newest version up to `newest` that the API server serves.
pub async fn served(client: &Client, newest: Version) -> Result<Version, SourceError> {
    for version in Version::ALL.into_iter().rev().filter(|version| *version <= newest) {
        match client.list_api_group_resources(&version.api_version()).await {
            Ok(list) if list.resources.iter().any(|resource| resource.name == PLURAL) => return Ok(version),
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(SourceError::Unknown(error)),
        }
    }
    Err(SourceError::NoCrd)
}

/// The resource in one version, for requests that need no types.
pub fn resource(version: Version) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version.as_str(), KIND), PLURAL)
}

/// Every change of an `NginxOperator`, in the hub version.
pub fn watch(
    client: &Client,
    scope: &Scope,
    version: Version,
) -> impl Stream<Item = watcher::Result<watcher::Event<NginxOperator>>> + Send + use<> {
    let resource = resource(version);
    let api: Api<DynamicObject> = match scope {
        Scope::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        Scope::Everywhere => Api::all_with(client.clone(), &resource),
    };
    watcher(api, watcher::Config::default().streaming_lists()).default_backoff().filter_map(async |event| {
        match event {
            Ok(event) => in_hub_version(event).map(Ok),
            Err(error) => Some(Err(error)),
        }
    })
}

fn in_hub_version(event: watcher::Event<DynamicObject>) -> Option<watcher::Event<NginxOperator>> {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    Some(match event {
        Apply(object) => Apply(hub(object)?),
        Delete(object) => Delete(hub(object)?),
        InitApply(object) => InitApply(hub(object)?),
        Init => Init,
        InitDone => InitDone,
    })
}

/// One object that cannot be read never stops the others.
fn hub(mut object: DynamicObject) -> Option<NginxOperator> {
    object.managed_fields_mut().clear();
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let read = || -> Result<NginxOperator, Box<dyn std::error::Error>> {
        let object = conversion::convert(serde_json::to_value(object)?, Version::V1alpha2)?;
        Ok(serde_json::from_value(object)?)
    };
    read()
        .inspect_err(|error| error!(namespace, name, %error, "this {KIND} cannot be read and is left alone"))
        .ok()
}

/// Whether a watch failed because the API server does not know the resource in this version, or not any more.
pub fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}
