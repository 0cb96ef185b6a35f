//! What belongs to clusters, cached by watches, and news of every change in it.

use std::fmt;

use api::{EtcdCluster, labels};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::{self, ObjectRef, Store, store::WriterDropped};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use crate::scope::{Key, Scope};

/// An `EtcdCluster` as the API server has it, readable or not: one bad object never stops the watch.
pub type Guarded = DeserializeGuard<EtcdCluster>;
/// A claim's metadata says all that the planner asks.
pub type Claim = PartialObjectMeta<PersistentVolumeClaim>;

/// News that nobody took yet; who falls behind looks at every cluster instead.
const NEWS: usize = 1024;

impl Key {
    /// The cluster that a labelled object belongs to.
    fn of_owner<K: ResourceExt>(object: &K) -> Option<Self> {
        let name = object.labels().get(labels::CLUSTER)?.clone();
        Some(Self { namespace: object.namespace().unwrap_or_default(), name })
    }

    pub fn reference(&self) -> ObjectRef<Guarded> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

/// The caches. They are kept whether this process leads or not, so that a new leader is warm.
pub struct Watches {
    pub clusters: Store<Guarded>,
    pub pods: Store<Pod>,
    pub claims: Store<Claim>,
    pub services: Store<Service>,
    pub budgets: Store<PodDisruptionBudget>,
    /// Where all of them are kept.
    pub scope: Scope,
    touched: broadcast::Sender<Key>,
}

impl Watches {
    /// Watches until `stop`.
    pub fn start(client: &Client, scope: &Scope, stop: &CancellationToken) -> Self {
        let (touched, _) = broadcast::channel(NEWS);
        let watch = Watch { client, scope, stop, touched: &touched };
        Self {
            clusters: watch.keep(watcher::Config::default(), |cluster| Some(Key::of(cluster)), |_| {}),
            pods: watch.keep(ours(), Key::of_owner, prune),
            claims: watch.keep(ours(), Key::of_owner, |_| {}),
            services: watch.keep(ours(), Key::of_owner, |_| {}),
            budgets: watch.keep(ours(), Key::of_owner, |_| {}),
            scope: scope.clone(),
            touched,
        }
    }

    /// Waits until every cache was filled once.
    pub async fn ready(&self) -> Result<(), WriterDropped> {
        self.clusters.wait_until_ready().await?;
        self.pods.wait_until_ready().await?;
        self.claims.wait_until_ready().await?;
        self.services.wait_until_ready().await?;
        self.budgets.wait_until_ready().await
    }

    /// Clusters of which something changed, from now on.
    pub fn news(&self) -> broadcast::Receiver<Key> {
        self.touched.subscribe()
    }
}

fn ours() -> watcher::Config {
    watcher::Config::default().labels(labels::WATCH_SELECTOR)
}

/// Most of a pod's spec is ours and never read back.
fn prune(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        spec.affinity = None;
        spec.tolerations = None;
        spec.volumes = None;
        spec.init_containers = None;
        for container in &mut spec.containers {
            if let Some(env) = &mut container.env {
                env.retain(|env| env.name == resources::ENV_SNAPSHOT_COUNT);
                env.shrink_to_fit();
            }
            container.args = None;
            container.command = None;
            container.volume_mounts = None;
            container.liveness_probe = None;
            container.readiness_probe = None;
            container.startup_probe = None;
        }
    }
}

struct Watch<'a> {
    client: &'a Client,
    scope: &'a Scope,
    stop: &'a CancellationToken,
    touched: &'a broadcast::Sender<Key>,
}

impl Watch<'_> {
    fn keep<K>(&self, config: watcher::Config, owner: fn(&K) -> Option<Key>, prune: fn(&mut K)) -> Store<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, writer) = reflector::store();
        let changes = watcher(self.scope.api::<K>(self.client), config)
            .default_backoff()
            .modify(move |object| {
                object.managed_fields_mut().clear();
                prune(object);
            })
            .reflect(writer)
            .touched_objects()
            .take_until(self.stop.clone().cancelled_owned());
        let touched = self.touched.clone();
        tokio::spawn(async move {
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                match change {
                    // Nobody listens while this process does not lead.
                    Ok(object) => drop(owner(&object).map(|key| touched.send(key))),
                    Err(error) => warn!(kind = %K::kind(&()), %error, "the watch broke; it is set up again"),
                }
            }
        });
        store
    }
}
