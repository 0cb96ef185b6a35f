//! The EtcdBackup controller: see what is due, make it in a task of its own, say what became of it.
//!
//! Nothing that matters is remembered: which backups were made is what their manifests in the store say, by slot and by
//! owner, so that a restart neither misses nor doubles one.

mod job;
mod metrics;
mod plan;
mod reconcile;
mod report;
pub mod timing;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::EtcdBackup;
use futures::StreamExt;
use futures::channel::mpsc;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action, Config, Error as QueueError};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use runtime::backoff::{Backoff, Policy};
use runtime::rights::Need;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, warn};

pub use metrics::Metrics;

use crate::cluster::written::Written;
use crate::scope::Key;
use crate::tenure::Tenure;
use job::Job;
use reconcile::{ReconcileError, reconcile};

/// The name of this controller, of its metrics and of its lease.
pub const NAME: &str = "backup";

/// What this controller does, beside what every one does; manifests grant at least this.
pub const NEEDS: [Need; 4] = [
    Need::namespaced(api::GROUP, "etcdbackups", &["list", "watch"]),
    Need::namespaced(api::GROUP, "etcdbackups/status", &["update"]),
    Need::namespaced(api::GROUP, "etcdclusters", &["get"]),
    Need::namespaced("", "secrets", &["get"]),
];

/// Rounds are short: attempts run beside them.
const SIDE_BY_SIDE: u16 = 16;
/// Attempts at the same time. Each holds a few parts of its upload in memory.
const ATTEMPTS: usize = 4;
/// For attempts to end their uploads when the tenure is over.
const GRACE: Duration = Duration::from_secs(10);

const RETRY: Policy = Policy { first: Duration::from_millis(500), most: Duration::from_secs(30) };

/// An `EtcdBackup` as the API server has it, readable or not: one bad object never stops the watch.
type Guarded = DeserializeGuard<EtcdBackup>;

/// What is remembered of one EtcdBackup between two rounds.
#[derive(Default)]
struct Memory {
    job: Option<Job>,
    own: Written<EtcdBackup>,
}

/// What every round needs.
struct Context {
    tenure: Tenure,
    metrics: Metrics,
    backoff: Backoff<Key>,
    memories: std::sync::Mutex<HashMap<String, (Key, Arc<Mutex<Memory>>)>>,
    attempts: Arc<Semaphore>,
    tasks: TaskTracker,
    /// `EtcdBackup`s whose attempt has news.
    ended: mpsc::UnboundedSender<ObjectRef<Guarded>>,
}

impl Context {
    /// Another EtcdBackup of the same name has nothing in common with the one before.
    fn memory(&self, backup: &EtcdBackup) -> Arc<Mutex<Memory>> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, memory) = memories
            .entry(backup.uid().unwrap_or_default())
            .or_insert_with(|| (Key::of(backup), Arc::default()));
        memory.clone()
    }

    /// Begins an attempt; its end is news.
    fn start(self: &Arc<Self>, backup: &EtcdBackup, slot: Timestamp, now: Timestamp) -> Job {
        let job = Job::new(backup, slot, now, self.tenure.leadership.token().child_token());
        let (context, running, backup) = (self.clone(), job.clone(), backup.clone());
        self.tasks.spawn(async move {
            let key = Key::of(&backup);
            info!(backup = %key, %slot, "a backup is begun");
            // Closed only with the process.
            let _turn = context.attempts.acquire().await;
            running.run(&context.tenure, &backup).await;
            let reference = ObjectRef::new(&key.name).within(&key.namespace);
            if context.ended.unbounded_send(reference).is_err() {
                debug!(backup = %key, "ended after the tenure");
            }
        });
        job
    }

    /// Stops attempts of `EtcdBackup`s that were deleted, and forgets them.
    async fn forget_the_gone(&self, exists: &Store<Guarded>) {
        let gone: Vec<_> = {
            let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
            let is_gone = |uid: &String, key: &Key| {
                let reference = ObjectRef::new(&key.name).within(&key.namespace);
                exists.get(&reference).is_none_or(|now| now.uid().as_ref() != Some(uid))
            };
            memories.extract_if(|uid, (key, _)| is_gone(uid, key)).map(|(_, gone)| gone).collect()
        };
        for (key, memory) in gone {
            memory.lock().await.job.iter().for_each(|job| job.stop.cancel());
            self.metrics.forget(&key);
            self.backoff.forget(&key);
        }
    }

    /// Ends all attempts, and waits a little for what they leave to be cleaned up.
    async fn stop_all(&self) {
        let memories: Vec<_> = {
            let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
            memories.values().map(|(_, memory)| memory.clone()).collect()
        };
        for memory in memories {
            memory.lock().await.job.iter().for_each(|job| job.stop.cancel());
        }
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            warn!("an upload is left behind; the next backup ends it");
        }
    }
}

/// Works until the tenure is over; attempts under way are ended, and leave nothing behind.
pub async fn run(tenure: Tenure, metrics: Metrics) {
    let (ended, news) = mpsc::unbounded();
    let context = Arc::new(Context {
        metrics,
        backoff: Backoff::new(RETRY),
        memories: std::sync::Mutex::default(),
        attempts: Arc::new(Semaphore::new(ATTEMPTS)),
        tasks: TaskTracker::new(),
        ended,
        tenure: tenure.clone(),
    });
    let (store, writer) = reflector::store();
    let backups = watcher(tenure.scope.api::<Guarded>(&tenure.client), watcher::Config::default());
    // A deletion is news too: it ends an attempt at once, and its age.
    Controller::for_stream(backups.reflect(writer).touched_objects(), store.clone())
        .with_config(Config::default().concurrency(SIDE_BY_SIDE))
        .reconcile_on(news)
        .graceful_shutdown_on(tenure.clone().over())
        .run(|backup, context| Box::pin(reconcile(backup, context)), retry, context.clone())
        .for_each(|round| {
            let (context, store) = (&context, &store);
            async move {
                match round {
                    Ok(_) => {}
                    Err(QueueError::ObjectNotFound(backup)) => debug!(%backup, "gone"),
                    Err(QueueError::ReconcilerFailed(error, backup)) => {
                        warn!(%backup, %error, "a round failed");
                    }
                    Err(QueueError::QueueError(error)) => {
                        warn!(%error, "the watch broke; it is set up again");
                    }
                    Err(error) => error!(%error, "the work queue failed"),
                }
                context.forget_the_gone(store).await;
            }
        })
        .await;
    context.stop_all().await;
    context.metrics.forget_all();
}

fn retry(backup: Arc<Guarded>, _: &ReconcileError, context: Arc<Context>) -> Action {
    Action::requeue(context.backoff.failed(Key::of(&*backup)).after)
}
