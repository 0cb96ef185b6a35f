//! The EtcdRestore controller: look → decide → ask → follow.
//!
//! It reads the backup to its last page, saves what surviving members still have, and decides whether the restore may
//! begin. Then it writes its request onto the EtcdCluster, and from there on only tells how far the cluster controller has
//! come: no other ever makes a member. Until the request is written, nothing of the cluster was touched.

mod look;
mod plan;
mod report;
mod request;

use std::sync::Arc;
use std::time::Duration;

use api::v1beta2::{EtcdCluster, EtcdRestore, EtcdRestoreStatus};
use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use runtime::backoff::{Backoff, Policy};
use runtime::events::Severity;
use runtime::rights::Need;
use thiserror::Error;
use tracing::{debug, info, warn};

use crate::scope::Key;
use crate::tenure::Tenure;
use look::LookError;
use plan::{Facts, Refusal, Target, decide};
use report::Phase;
use request::RequestError;

/// The name of this controller, of its metrics and of its lease.
pub const NAME: &str = "restore";

/// What this controller does, beside what every one does; manifests grant at least this.
pub const NEEDS: [Need; 6] = [
    Need::namespaced(api::GROUP, "etcdrestores", &["get", "list", "watch"]),
    Need::namespaced(api::GROUP, "etcdrestores/status", &["update"]),
    Need::namespaced(api::GROUP, "etcdclusters", &["get", "create", "patch"]),
    Need::namespaced("", "secrets", &["get"]),
    Need::namespaced("", "pods", &["get", "list"]),
    Need::namespaced("", "persistentvolumeclaims", &["list"]),
];

/// How often a cluster under restore is looked at.
const FOLLOW: Duration = Duration::from_secs(1);
const RETRY: Policy = Policy { first: Duration::from_secs(1), most: Duration::from_secs(30) };

type Guarded = DeserializeGuard<EtcdRestore>;

struct Context {
    tenure: Tenure,
    backoff: Backoff<Key>,
}

/// Why a round ended early; it is tried again.
#[derive(Debug, Error)]
enum RoundError {
    #[error("Kubernetes refused: {0}")]
    Kubernetes(#[from] kube::Error),
    #[error(transparent)]
    Look(LookError),
    #[error(transparent)]
    Request(RequestError),
}

/// Why a restore failed for good.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Look(LookError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(
        "its request is no longer on the EtcdCluster: it was withdrawn, or the cluster was deleted or is restored by \
         another; nothing else was touched, create the EtcdRestore again to begin again"
    )]
    Withdrawn,
    #[error("{0}")]
    Cluster(String),
}

impl Failure {
    fn reason(&self) -> &'static str {
        match self {
            Self::Look(error) => error.reason(),
            Self::Refused(refusal) => refusal.reason(),
            Self::Request(error) => error.reason(),
            Self::Withdrawn => "Withdrawn",
            Self::Cluster(_) => "SeedFailed",
        }
    }
}

/// Works until the tenure is over.
pub async fn run(tenure: Tenure) {
    let api: Api<Guarded> = tenure.scope.api(&tenure.client);
    let over = tenure.stop.child_token();
    let (watched, end) = (tenure.clone(), over.clone());
    tokio::spawn(async move {
        watched.over().await;
        end.cancel();
    });
    let context = Arc::new(Context { tenure, backoff: Backoff::new(RETRY) });
    Controller::new(api, watcher::Config::default())
        .graceful_shutdown_on(over.cancelled_owned())
        .run(reconcile, retry, context)
        .for_each(|round| {
            if let Err(error) = round {
                debug!(%error, "a round ended early");
            }
            std::future::ready(())
        })
        .await;
}

fn retry(restore: Arc<Guarded>, error: &RoundError, context: Arc<Context>) -> Action {
    let retry = context.backoff.failed(Key::of(&*restore));
    warn!(restore = %Key::of(&*restore), %error, failures = retry.failures, "a round failed");
    Action::requeue(retry.after)
}

async fn reconcile(restore: Arc<Guarded>, context: Arc<Context>) -> Result<Action, RoundError> {
    let clock = context.tenure.rounds.reconcile(NAME);
    let object = match &restore.0 {
        Ok(object) => object,
        Err(invalid) => {
            let message = format!(
                "the EtcdRestore cannot be read, nothing is done until it is corrected: {}",
                invalid.error
            );
            warn!(restore = %Key::of(&*restore), message);
            let about = restore.object_ref(&());
            context.tenure.recorder.publish(&about, Severity::Warning, "SpecInvalid", &message).await;
            clock.ok();
            return Ok(Action::await_change());
        }
    };
    let mut round = Round { tenure: &context.tenure, restore: object.clone() };
    let ended = round.go().await;
    match &ended {
        Ok(_) => {
            context.backoff.forget(&Key::of(object));
            clock.ok();
        }
        Err(_) => clock.failed("KubernetesRefused"),
    }
    ended
}

/// One look at one EtcdRestore.
struct Round<'a> {
    tenure: &'a Tenure,
    /// As last read or written.
    restore: EtcdRestore,
}

impl Round<'_> {
    async fn go(&mut self) -> Result<Action, RoundError> {
        // The cache may not have heard yet how the round before ended, and a restore must not begin twice.
        let Some(restore) = self.restores().get_opt(&self.restore.name_any()).await? else {
            return Ok(Action::await_change());
        };
        self.restore = restore;
        if report::ended(&self.restore) || self.restore.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let cluster = self.clusters().get_opt(&self.restore.spec.etcd_cluster.name).await?;
        let uid = self.restore.uid().unwrap_or_default();
        if let Some(cluster) = cluster.as_ref().filter(|cluster| look::serves(cluster, &uid)) {
            return self.follow(cluster).await;
        }
        if self.status().requested.is_some() {
            return self.fail(&Failure::Withdrawn).await;
        }
        match self.begin(cluster).await {
            Ok(()) | Err(Failure::Request(RequestError::Changed)) => Ok(Action::requeue(FOLLOW)),
            Err(Failure::Look(error)) if error.is_passing() => {
                self.hindered(error.reason(), &error.to_string()).await;
                Err(RoundError::Look(error))
            }
            Err(Failure::Request(error)) if error.is_passing() => {
                self.hindered(error.reason(), &error.to_string()).await;
                Err(RoundError::Request(error))
            }
            Err(failure) => self.fail(&failure).await,
        }
    }

    /// Everything up to the request; nothing of the cluster is touched before that.
    async fn begin(&mut self, cluster: Option<EtcdCluster>) -> Result<(), Failure> {
        // What hindered the round before is said until it no longer does.
        if self.status().phase != Phase::Verifying.name() {
            self.say(Phase::Verifying, "the backup is read and verified").await?;
        }
        let backup = look::backup(self.tenure, &self.restore).await.map_err(Failure::Look)?;
        let status = EtcdRestoreStatus { backup: Some(backup.contents.clone()), ..self.status() };
        self.restore.status = Some(status);

        let uid = self.restore.uid().unwrap_or_default();
        let members = look::members(self.tenure, &self.restore, cluster.as_ref());
        let members = members.await.map_err(Failure::Look)?;
        let mut facts = Facts {
            force: self.restore.spec.force,
            revision: backup.contents.revision,
            etcd_version: backup.version,
            target: look::target(cluster.as_ref(), &self.restore, &backup),
            under_way: cluster.as_ref().and_then(|cluster| look::under_way(cluster, &uid)),
            survivors: Vec::new(),
            unsure: Vec::new(),
            unrecorded: members.unrecorded,
        };
        let hops = &self.tenure.hops;
        decide(&facts, hops)?;
        facts.survivors = plan::remembered(&self.status().survivors);
        let answering = match facts.target {
            Target::Healthy { .. } => look::furthest(members.answering).into_iter().collect(),
            _ => members.answering,
        };
        for (name, survivor) in answering {
            self.say(Phase::Saving, &format!("what {name} still has is saved beside the backup")).await?;
            let saved = look::save(self.tenure, &self.restore, &backup.place, &name, survivor).await;
            let noted = report::survivor(&name, facts.revision, &saved);
            match saved {
                Ok((survivor, _)) => {
                    facts.survivors.retain(|known| known.name != name);
                    facts.survivors.push(survivor);
                }
                Err(error) if facts.force && error.yields_to_force() => {
                    warn!(restore = %Key::of(&self.restore), %error, "goes on without, by force");
                }
                Err(error) => return Err(Failure::Look(error)),
            }
            let mut status = self.status();
            status.survivors.retain(|known| known.member != name);
            status.survivors.push(noted);
            // At once: the next round may not find it alive.
            self.write(status).await?;
        }
        facts.unsure = members.unsure;
        decide(&facts, hops)?;
        let request = request::compose(self.tenure, &self.restore, &backup).await?;
        self.say(Phase::Seeding, "the backup is verified; the cluster is asked to begin with it").await?;
        request::write(self.tenure, &self.restore, cluster.as_ref(), &backup, &request).await?;
        info!(restore = %Key::of(&self.restore), revision = facts.revision, "asked for");
        self.write(report::requested(&self.restore)).await?;
        Ok(())
    }

    /// The cluster controller is at work: its status says how far it is.
    async fn follow(&mut self, cluster: &EtcdCluster) -> Result<Action, RoundError> {
        if self.status().requested.is_none() {
            self.write(report::requested(&self.restore)).await?;
        }
        let uid = self.restore.uid().unwrap_or_default();
        let progress = cluster.status.as_ref().and_then(|status| status.restore.as_ref());
        let Some(progress) = progress.filter(|progress| progress.uid == uid) else {
            let message = if cluster.spec.paused {
                "the EtcdCluster is paused: set its spec.paused to false to go on"
            } else {
                "the cluster controller has not begun yet: is etcd-operator running?"
            };
            self.say(Phase::Seeding, message).await?;
            return Ok(Action::requeue(FOLLOW));
        };
        let restored = serde_json::from_str(&progress.restored).ok();
        let mut status = self.status();
        status.restored = restored.or(status.restored);
        self.restore.status = Some(status);
        match progress.stage {
            api::v1beta2::RestoreStage::Seeding => {
                let seed = &progress.seed;
                self.say(Phase::Seeding, &format!("{seed} is made from the backup")).await?;
            }
            api::v1beta2::RestoreStage::Filling => {
                let message = if look::lost(cluster) {
                    "the restored cluster has lost its quorum before it was full: see its condition QuorumLost; \
                     another EtcdRestore may take the place of this one"
                } else {
                    "the backup is back; the cluster grows to its size"
                };
                self.say(Phase::Filling, message).await?;
            }
            api::v1beta2::RestoreStage::Done => {
                self.say(Phase::Succeeded, "the cluster is full and holds what the backup holds").await?;
                return Ok(Action::await_change());
            }
            api::v1beta2::RestoreStage::Failed => {
                return self.fail(&Failure::Cluster(progress.message.clone())).await;
            }
        }
        Ok(Action::requeue(FOLLOW))
    }

    async fn fail(&mut self, failure: &Failure) -> Result<Action, RoundError> {
        let (reason, message) = (failure.reason(), failure.to_string());
        warn!(restore = %Key::of(&self.restore), reason, message, "failed");
        let status = report::failed(&self.restore, reason, &message);
        self.write(status).await?;
        let about = self.restore.object_ref(&());
        self.tenure.recorder.publish(&about, Severity::Warning, reason, &message).await;
        Ok(Action::await_change())
    }

    /// Says once why it has to be tried again. Where not even that can be written, the log has it.
    async fn hindered(&mut self, reason: &str, message: &str) {
        let status = report::hindered(&self.restore, reason, message);
        if self.tenure.stop.is_cancelled() || self.restore.status.as_ref() == Some(&status) {
            return;
        }
        match self.write(status).await {
            Ok(()) => {
                let about = self.restore.object_ref(&());
                self.tenure.recorder.publish(&about, Severity::Warning, reason, message).await;
            }
            Err(error) => debug!(restore = %Key::of(&self.restore), %error, "not said"),
        }
    }

    /// Writes status if that says something new.
    async fn say(&mut self, phase: Phase, message: &str) -> Result<(), kube::Error> {
        let status = report::at(&self.restore, phase, message);
        if self.restore.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let turns = self.restore.status.as_ref().is_none_or(|before| before.phase != phase.name());
        self.write(status).await?;
        if turns {
            let about = self.restore.object_ref(&());
            self.tenure.recorder.publish(&about, Severity::Normal, phase.name(), message).await;
        }
        Ok(())
    }

    fn status(&self) -> EtcdRestoreStatus {
        self.restore.status.clone().unwrap_or_default()
    }

    async fn write(&mut self, status: EtcdRestoreStatus) -> Result<(), kube::Error> {
        self.restore = report::write(self.tenure, &self.restore, status).await?;
        Ok(())
    }

    fn restores(&self) -> Api<EtcdRestore> {
        let namespace = self.restore.namespace().unwrap_or_default();
        Api::namespaced(self.tenure.client.clone(), &namespace)
    }

    fn clusters(&self) -> Api<EtcdCluster> {
        let namespace = self.restore.namespace().unwrap_or_default();
        Api::namespaced(self.tenure.client.clone(), &namespace)
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Look(LookError::Kubernetes(error))
    }
}
