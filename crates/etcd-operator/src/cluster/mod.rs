//! The EtcdCluster controller: observe → plan → apply → report.
//!
//! Watches bring news of what is ours; a work queue keyed by cluster turns it into rounds that run side by side. A
//! round sees everything anew, asks `domain::plan` for the next step, takes it and says so in status. Members are
//! polled off the Kubernetes API, so that a quiet cluster costs the API server nothing.

mod agreed;
mod apply;
mod backups;
mod image;
mod members;
mod memory;
mod metrics;
mod nodes;
mod observe;
pub(crate) mod pods;
mod reconcile;
mod refusal;
mod report;
mod rival;
mod spec;
mod unreadable;
mod watches;
pub(crate) mod written;

use std::sync::Arc;
use std::time::Duration;

use api::EtcdCluster;
use domain::Event;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config, Error as QueueError};
use kube::{Client, Resource};
use runtime::backoff::{Backoff, Policy};
use runtime::events::{Recorder, Severity};
use runtime::lease::Leadership;
use runtime::rights::Need;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

#[cfg(test)]
pub(crate) use apply::Outcome;
pub use metrics::Metrics;
#[cfg(test)]
pub(crate) use report::silent;
pub use spec::Defaults;
pub use watches::Watches;

use memory::Memories;
use nodes::Nodes;
use reconcile::{ReconcileError, reconcile};
use watches::{Guarded, Key};

/// The name of this controller, of its metrics and of its lease.
pub const NAME: &str = "cluster";

/// What this controller does, beside what every one does; manifests grant at least this.
pub const NEEDS: [Need; 6] = [
    Need::namespaced(api::GROUP, "etcdclusters", &["get", "list", "watch"]),
    Need::namespaced(api::GROUP, "etcdclusters/status", &["update"]),
    Need::namespaced("", "pods", &["get", "list", "watch", "create", "patch", "delete"]),
    Need::namespaced("", "persistentvolumeclaims", &["get", "list", "watch", "create", "patch", "delete"]),
    Need::namespaced("", "services", &["list", "watch", "create", "patch"]),
    Need::namespaced("policy", "poddisruptionbudgets", &["list", "watch", "create", "patch"]),
];

/// Clusters that are worked on at the same time. A round that waits on a hanging member is bounded by deadlines, so
/// this many must hang at once before anybody else waits.
const SIDE_BY_SIDE: u16 = 64;

const RETRY: Policy = Policy { first: Duration::from_millis(500), most: Duration::from_secs(30) };

/// What every round needs. One for each tenure as leader: nothing remembered outlives the right to act on it.
pub struct Context {
    /// Refuses to write once the tenure is over.
    client: Client,
    watches: Arc<Watches>,
    leadership: Leadership,
    recorder: Recorder,
    defaults: Defaults,
    metrics: Metrics,
    rounds: runtime::metrics::Metrics,
    nodes: Nodes,
    memories: Memories,
    backoff: Backoff<Key>,
}

impl Context {
    pub fn new(
        client: &Client,
        leadership: Leadership,
        watches: Arc<Watches>,
        recorder: Recorder,
        defaults: Defaults,
        metrics: Metrics,
        rounds: runtime::metrics::Metrics,
    ) -> Self {
        let client = leadership.guard(client);
        Self {
            nodes: Nodes::new(client.clone()),
            client,
            watches,
            leadership,
            recorder,
            defaults,
            metrics,
            rounds,
            memories: Memories::default(),
            backoff: Backoff::new(RETRY),
        }
    }

    async fn publish(&self, cluster: &EtcdCluster, event: &Event) {
        self.publish_about(&cluster.object_ref(&()), event).await;
    }

    async fn publish_about(&self, about: &ObjectReference, event: &Event) {
        let severity = match event.severity {
            domain::Severity::Normal => Severity::Normal,
            domain::Severity::Warning => Severity::Warning,
        };
        self.recorder.publish(about, severity, &event.reason, &event.message).await;
    }

    /// Forgets clusters that were deleted.
    fn forget_the_gone(&self) {
        if self.memories.len() > self.watches.clusters.len() {
            let exists = |key: &Key| self.watches.clusters.get(&key.reference()).is_some();
            for key in self.memories.retain(exists) {
                self.metrics.forget(&key);
                self.backoff.forget(&key);
            }
        }
    }
}

/// Works until `stop`, or until the tenure is over; rounds under way are finished first.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let leadership = context.leadership.clone();
    let over = async move {
        tokio::select! { () = stop.cancelled() => {} () = leadership.lost() => {} }
    };
    let store = context.watches.clusters.clone();
    let queue = due(context.watches.clone()).take_until(over);
    let config = Config::default().concurrency(SIDE_BY_SIDE);
    let rounds = applier(
        |cluster, context| Box::pin(reconcile(cluster, context)),
        retry,
        context.clone(),
        store,
        queue,
        config,
    );
    rounds
        .for_each(|round| {
            context.forget_the_gone();
            match round {
                Ok(_) => {}
                // Deleted between the news and the round.
                Err(QueueError::ObjectNotFound(cluster)) => debug!(%cluster, "gone"),
                Err(QueueError::ReconcilerFailed(error, cluster)) => {
                    warn!(%cluster, %error, "a round failed");
                }
                Err(error) => error!(%error, "the work queue failed"),
            }
            std::future::ready(())
        })
        .await;
    context.metrics.forget_all();
}

fn retry(cluster: Arc<Guarded>, _: &ReconcileError, context: Arc<Context>) -> Action {
    Action::requeue(context.backoff.failed(Key::of(&*cluster)).after)
}

/// Clusters to look at: all of them first, and again whenever news was missed; then those of which something changed.
fn due(
    watches: Arc<Watches>,
) -> impl Stream<Item = Result<kube::runtime::reflector::ObjectRef<Guarded>, std::convert::Infallible>> {
    let all = |watches: &Watches| {
        watches.clusters.state().iter().map(|cluster| Key::of(&**cluster)).collect::<Vec<_>>()
    };
    let news = watches.news();
    let first = all(&watches);
    let rest = stream::unfold((news, watches), move |(mut news, watches)| async move {
        let keys = match news.recv().await {
            Ok(key) => vec![key],
            Err(RecvError::Lagged(_)) => all(&watches),
            Err(RecvError::Closed) => return None,
        };
        Some((keys, (news, watches)))
    });
    stream::once(async { first }).chain(rest).flat_map(stream::iter).map(|key| Ok(key.reference()))
}
