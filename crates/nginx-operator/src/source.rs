//! `NginxOperator`s as the operator sees them: in the newest version that is served, brought to the hub version.

use api::nginx::{CRD_NAME, GROUP, KIND, NginxOperator, NginxOperatorSpec, PLURAL, Version, conversion};
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, DynamicObject, ObjectMeta};
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
         run `nginx-operator manifests --crd --api-version={newest} --namespace={home} | kubectl apply -f -`"
    )]
    NoCrd { newest: Version, home: String },
    #[error("cannot ask the API server which versions of {KIND} it serves: {0}")]
    Unknown(#[source] kube::Error),
}

/// The newest version up to `newest` that the API server serves; `home` is where the operator runs.
pub async fn served(client: &Client, newest: Version, home: &str) -> Result<Version, SourceError> {
    for version in Version::ALL.into_iter().rev().filter(|version| *version <= newest) {
        match client.list_api_group_resources(&version.api_version()).await {
            Ok(list) if list.resources.iter().any(|resource| resource.name == PLURAL) => return Ok(version),
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(SourceError::Unknown(error)),
        }
    }
    Err(SourceError::NoCrd { newest, home: home.to_owned() })
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
    watcher(api, watcher::Config::default()).default_backoff().filter_map(async |event| match event {
        Ok(event) => in_hub_version(event).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

/// What cannot be read is not there, and its operand is left alone.
fn in_hub_version(event: watcher::Event<DynamicObject>) -> Option<watcher::Event<NginxOperator>> {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    Some(match event {
        Apply(object) => {
            let metadata = object.metadata.clone();
            hub(object).map_or_else(|| Delete(gone(metadata)), Apply)
        }
        Delete(object) => Delete(gone(object.metadata)),
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

/// To know which one it was is enough. No object has the generation 0: so that it went is news, and so is its return.
fn gone(metadata: ObjectMeta) -> NginxOperator {
    let metadata = ObjectMeta { generation: Some(0), managed_fields: None, ..metadata };
    NginxOperator { metadata, ..NginxOperator::new("", NginxOperatorSpec::default()) }
}

/// Whether a watch failed because the API server does not know the resource in this version, or not any more.
pub fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::runtime::reflector::store;
    use kube::runtime::{PredicateConfig, predicates};
    use serde_json::{Value, json};

    use super::watcher::Event::{self, Apply, Delete, Init, InitApply, InitDone};
    use super::*;

    fn object(name: &str, generation: i64, spec: Value) -> DynamicObject {
        let metadata = json!({ "name": name, "namespace": "ns", "uid": name, "generation": generation });
        let object = json!({
            "apiVersion": Version::V1alpha2.api_version(), "kind": KIND, "metadata": metadata, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn good(name: &str, generation: i64) -> DynamicObject {
        object(name, generation, json!({ "replicas": 1 }))
    }

    /// As only a CRD of somebody else lets it in.
    fn bad(name: &str, generation: i64) -> DynamicObject {
        object(name, generation, json!({ "replicas": "many" }))
    }

    /// Who is there after these events, and of whom there was news on the way.
    async fn after(events: Vec<Event<DynamicObject>>) -> (Vec<String>, Vec<String>) {
        let (instances, writer) = store();
        let events = events.into_iter().filter_map(in_hub_version).map(Ok);
        let news = stream::iter(events)
            .reflect(writer)
            .touched_objects()
            .predicate_filter(predicates::generation, PredicateConfig::default());
        let news = news.map(|instance| instance.unwrap().name_any()).collect().await;
        let mut there: Vec<_> = instances.state().iter().map(|instance| instance.name_any()).collect();
        there.sort();
        (there, news)
    }

    /// The CRD of another version or namespace would be one that this operator cannot work with.
    #[test]
    fn the_advice_for_a_missing_crd_is_the_one_for_this_operator() {
        let advice = |newest, home: &str| SourceError::NoCrd { newest, home: home.to_owned() }.to_string();
        let first = advice(Version::V1alpha1, "default");
        assert!(first.contains("--crd --api-version=v1alpha1 --namespace=default |"), "{first}");
        let second = advice(Version::V1alpha2, "team-a");
        assert!(second.contains("--crd --api-version=v1alpha2 --namespace=team-a |"), "{second}");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_not_there_and_stops_nobody() {
        let listed =
            || vec![Init, InitApply(good("a", 1)), InitApply(bad("b", 1)), InitApply(good("c", 1)), InitDone];
        let (there, news) = after(listed()).await;
        let readable = vec!["a".to_owned(), "c".to_owned()];
        assert_eq!((there, news), (readable.clone(), readable));

        for end in [Apply(bad("a", 2)), Delete(bad("a", 1)), Delete(good("a", 1))] {
            let (there, news) = after(listed().into_iter().chain([end.clone()]).collect()).await;
            assert_eq!((there, news.len()), (vec!["c".to_owned()], 3), "{end:?}");
        }
    }

    #[tokio::test]
    async fn who_can_be_read_again_is_looked_at_again() {
        let events = vec![Init, InitApply(good("a", 1)), InitDone, Apply(bad("a", 1)), Apply(good("a", 1))];
        assert_eq!(after(events).await, (vec!["a".to_owned()], vec!["a".to_owned(); 3]));
    }
}
