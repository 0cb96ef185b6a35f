//! When to reconcile: the caches, the changes that wake the loop, and the loop.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api::nginx::{INSTANCE_LABEL, KIND, NginxOperator, Version};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::controller::{Action, Config, Error};
use kube::runtime::reflector::store::{Writer, WriterDropped};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{Controller, PredicateConfig, WatchStreamExt, predicates, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::kept::Kept;
use crate::operand::instance_of;
use crate::reconcile::{Context, reconcile};
use crate::source::{self, Scope};

/// Reconciles at the same time.
const CONCURRENCY: u16 = 8;
/// Changes that come together are looked at together.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// What belongs to operands, kept by watches. Clones share what they keep.
#[derive(Clone)]
pub struct Caches {
    pub deployments: Store<Kept<Deployment>>,
    pub services: Store<Kept<Service>>,
    pub pods: Store<Pod>,
    filled: Arc<OnceCell<()>>,
}

impl Caches {
    fn new(deployments: Store<Kept<Deployment>>, services: Store<Kept<Service>>, pods: Store<Pod>) -> Self {
        Self { deployments, services, pods, filled: Arc::default() }
    }

    /// Waits until each was filled once. Of all that wait here one asks the stores: they wake only the last who asked.
    pub async fn ready(&self) -> Result<(), WriterDropped> {
        let fill = async || {
            self.deployments.wait_until_ready().await?;
            self.services.wait_until_ready().await?;
            self.pods.wait_until_ready().await
        };
        self.filled.get_or_try_init(fill).await.copied()
    }
}

/// The loop for one version of the API, to be run with [`Loop::run`].
pub struct Loop {
    pub instances: Store<NginxOperator>,
    pub caches: Caches,
    controller: Controller<NginxOperator>,
    version: Version,
}

impl Loop {
    pub fn new(client: &Client, scope: &Scope, version: Version) -> Self {
        let (instances, writer) = store();
        let changes = source::watch(client, scope, version)
            .reflect(writer)
            .touched_objects()
            // What we write ourselves, the status, is no news.
            .predicate_filter(predicates::generation, PredicateConfig::default());
        let (deployments, deployment_writer) = store();
        let (services, service_writer) = store();
        let (pods, pod_writer) = store();
        let (relisted, relists) = unbounded();
        let controller = Controller::for_stream(changes, instances.clone())
            .with_config(Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE))
            .reconcile_all_on(relists)
            .watches_stream(
                ours(client, scope, deployment_writer, &relisted, |_| {}),
                namesake::<Kept<Deployment>>,
            )
            .watches_stream(ours(client, scope, service_writer, &relisted, |_| {}), namesake::<Kept<Service>>)
            .watches_stream(ours(client, scope, pod_writer, &relisted, prune), labelled);
        Self { instances, caches: Caches::new(deployments, services, pods), controller, version }
    }

    /// Runs until `stop`, or until the API server serves this version no more.
    pub async fn run(self, context: Context, stop: CancellationToken) {
        let Self { instances, controller, version, .. } = self;
        let announce = announce(instances.clone(), context.scope.clone(), version);
        let context = Arc::new(context);
        let results = controller.graceful_shutdown_on(stop.clone().cancelled_owned()).run(
            reconcile,
            |_, never: &Infallible, _| -> Action { match *never {} },
            context.clone(),
        );
        let work = async {
            let mut results = std::pin::pin!(results);
            while let Some(result) = results.next().await {
                match result {
                    Ok(_) => {}
                    Err(Error::ObjectNotFound(object)) => {
                        debug!(%object, "gone");
                        context.retain(&instances);
                    }
                    Err(Error::QueueError(error)) if source::is_gone(&error) => {
                        warn!(%version, "the API server serves no {KIND} of this version any more");
                        stop.cancel();
                    }
                    Err(error) => warn!(%error, "a watch broke; it is set up again"),
                }
            }
        };
        let announce = async {
            tokio::select! {
                () = announce => {}
                () = stop.cancelled() => {}
            }
        };
        tokio::join!(work, announce);
    }
}

/// Says how to begin where there is nothing to do.
async fn announce(instances: Store<NginxOperator>, scope: Scope, version: Version) {
    if instances.wait_until_ready().await.is_err() {
        return;
    }
    let namespace = scope.namespace().unwrap_or("any namespace");
    match instances.len() {
        0 => info!(namespace, "there is no {KIND} yet; create one: {}", first(&scope, version)),
        count => info!(namespace, count, "looking after every {KIND}"),
    }
}

/// What makes an instance that this loop looks after.
fn first(scope: &Scope, version: Version) -> String {
    let folder = match version {
        Version::V1alpha1 => "example/nginx/v1alpha1",
        Version::V1alpha2 => "example/nginx",
    };
    let namespace = scope.namespace().map(|namespace| format!(" --namespace={namespace}"));
    format!("kubectl apply -f {folder}/instance.yaml{}", namespace.unwrap_or_default())
}

/// Changes of what belongs to an operand. A list that was read anew is told apart: what is missing in it was deleted
/// unseen, and no event will ever say so.
fn ours<K>(
    client: &Client,
    scope: &Scope,
    writer: Writer<K>,
    relisted: &UnboundedSender<()>,
    prune: fn(&mut K),
) -> impl Stream<Item = watcher::Result<K>> + Send + use<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let config = watcher::Config::default().labels(INSTANCE_LABEL);
    let relisted = relisted.clone();
    watcher(scope.api::<K>(client), config)
        .default_backoff()
        .modify(move |object| {
            object.managed_fields_mut().clear();
            prune(object);
        })
        .reflect(writer)
        .inspect(move |event| {
            // The other end goes only with the whole loop.
            if matches!(event, Ok(watcher::Event::InitDone)) && relisted.unbounded_send(()).is_err() {
                debug!("the loop is ending");
            }
        })
        .touched_objects()
}

/// A pod is asked for its name, its labels and how it is.
fn prune(pod: &mut Pod) {
    pod.spec = None;
    pod.metadata.annotations = None;
    pod.metadata.owner_references = None;
}

/// Deployment and Service are named after their instance; their label may be what somebody has changed.
fn namesake<K: ResourceExt>(object: K) -> Option<ObjectRef<NginxOperator>> {
    Some(ObjectRef::new(&object.name_any()).within(&object.namespace()?))
}

fn labelled(pod: Pod) -> Option<ObjectRef<NginxOperator>> {
    Some(ObjectRef::new(instance_of(&pod)?).within(&pod.namespace()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each asks as a task of its own, as reconciles are.
    #[tokio::test]
    async fn everyone_who_waits_for_the_caches_goes_on() {
        let ((deployments, mut first), (services, mut second), (pods, mut last)) =
            (store(), store(), store());
        let caches = Caches::new(deployments, services, pods);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let caches = caches.clone();
                tokio::spawn(async move { caches.ready().await })
            })
            .collect();
        tokio::task::yield_now().await;
        first.apply_watcher_event(&watcher::Event::InitDone);
        second.apply_watcher_event(&watcher::Event::InitDone);
        last.apply_watcher_event(&watcher::Event::InitDone);
        for one in waiting {
            tokio::time::timeout(Duration::from_secs(5), one).await.unwrap().unwrap().unwrap();
        }
    }

    #[test]
    fn the_first_instance_is_of_the_version_and_in_the_namespace_that_are_looked_after() {
        let one = Scope::Namespace("team-a".to_owned());
        for (scope, version, command) in [
            (&one, Version::V1alpha1, "example/nginx/v1alpha1/instance.yaml --namespace=team-a"),
            (&one, Version::V1alpha2, "example/nginx/instance.yaml --namespace=team-a"),
            (&Scope::Everywhere, Version::V1alpha2, "example/nginx/instance.yaml"),
        ] {
            assert_eq!(first(scope, version), format!("kubectl apply -f {command}"));
            let file = command.split(' ').next().unwrap();
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let instance = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(instance.starts_with(&format!("apiVersion: {}\n", version.api_version())), "{file}");
        }
    }
}
