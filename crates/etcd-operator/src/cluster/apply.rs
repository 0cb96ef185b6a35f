//! The hands: every step of the plan, each with its preconditions.

mod membership;
mod objects;
mod restore;
mod roll;

use api::{EtcdCluster, EtcdClusterStatus};
use domain::{Member, Moment, Plan, Step};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use resources::ClusterError;
use runtime::lease::Lost;
use thiserror::Error;
use tracing::{debug, info};

use super::Context;
use super::memory::Memory;
use super::observe::Seen;
use super::watches::Key;

/// How a step ended, if it did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// etcd wants to be asked again later.
    Wait(String),
    /// The world is not as it was seen: look again.
    Stale(String),
}

#[derive(Debug, Error)]
pub enum ApplyError {
    #[error("Kubernetes refused {step}: {source}")]
    Kubernetes { step: &'static str, source: kube::Error },
    #[error("etcd refused {step}: {source}")]
    Etcd { step: &'static str, source: etcd::Error },
    #[error(transparent)]
    Build(#[from] ClusterError),
    #[error(transparent)]
    NotLeading(#[from] Lost),
}

impl ApplyError {
    /// Stable, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Kubernetes { .. } => "KubernetesRefused",
            Self::Etcd { .. } => "EtcdRefused",
            Self::Build(_) => "NotBuildable",
            Self::NotLeading(_) => "NotLeading",
        }
    }
}

/// One round's acts on one cluster.
pub struct Hands<'a> {
    pub context: &'a Context,
    /// As last read or written: its resource version is the precondition of what is recorded.
    pub cluster: &'a mut EtcdCluster,
    /// What this round wants status to say; recorded facts go into it and out with it.
    pub status: &'a mut EtcdClusterStatus,
    pub memory: &'a mut Memory,
    pub seen: &'a Seen,
    /// The member list that the plan was made on, with our own changes since.
    pub members: Vec<Member>,
    pub now: Moment,
}

impl Hands<'_> {
    /// Applies the plan's actions in order until one is not simply done.
    pub async fn apply(&mut self, plan: &Plan) -> Result<Outcome, ApplyError> {
        let (cluster, rule) = (Key::of(self.cluster).to_string(), plan.rule.name());
        for action in &plan.actions {
            self.context.leadership.check()?;
            let step = name(&action.step);
            let member = member(&action.step);
            let outcome = self.step(&action.step).await;
            self.context.metrics.stepped(rule, step, &outcome);
            match outcome {
                Ok(Outcome::Done) => {
                    die_after(step);
                    info!(cluster, rule, step, member, why = plan.why, "done");
                    for event in &action.events {
                        self.context.publish(self.cluster, event).await;
                    }
                }
                Ok(Outcome::Wait(why)) => {
                    debug!(cluster, rule, step, member, why, "etcd asks to wait");
                    return Ok(Outcome::Wait(why));
                }
                Ok(Outcome::Stale(why)) => {
                    info!(cluster, rule, step, member, why, "not as it was seen; looking again");
                    self.memory.distrust = true;
                    return Ok(Outcome::Stale(why));
                }
                Err(error) => {
                    self.memory.distrust = true;
                    self.memory.refused.note(&error, member);
                    return Err(error);
                }
            }
        }
        // While nobody answers nothing is tried, which says nothing of what was refused.
        if !plan.passing {
            self.memory.refused.forget();
        }
        Ok(Outcome::Done)
    }

    async fn step(&mut self, step: &Step) -> Result<Outcome, ApplyError> {
        match step {
            Step::ListLive => Ok(Outcome::Stale("the plan wants a live list".into())),
            Step::RecordSeed { name } => {
                self.status.seed = name.to_string();
                self.record("RecordSeed").await
            }
            Step::RecordCluster { id } => {
                self.status.cluster_id = id.to_string();
                self.record("RecordCluster").await
            }
            Step::RecordRestore { restore } => {
                self.status.restore = Some(self.progress(restore));
                self.record("RecordRestore").await
            }
            Step::SwapCluster { id, version, restore } => self.swap_cluster(*id, *version, restore).await,
            Step::EnsureHeadlessService => self.headless_service().await,
            Step::EnsureClientService => self.client_service().await,
            Step::SetBudget { min_available } => self.budget(*min_available).await,
            Step::CreateSeed { name, version } => self.create_seed(name, *version).await,
            Step::CreateRestoredSeed { name, version, request } => {
                self.create_restored_seed(name, *version, request).await
            }
            Step::Adopt { name, uid } => self.adopt(name, uid).await,
            Step::StopServing { name, uid } => self.stop_serving(name, uid).await,
            Step::CreateMember { name, version, peers, joining } => {
                // Before there are members, the record of the seed has been written with a resource version just now.
                if !peers.is_empty() && !self.never_started(name).await {
                    return Ok(Outcome::Stale("no member says that it never started".into()));
                }
                self.create_member(name, *version, peers, joining).await
            }
            Step::ResumeMember { name, version, claim } => self.resume_member(name, *version, claim).await,
            Step::MarkPod { name, uid, disarm, serve } => self.mark_pod(name, uid, *disarm, *serve).await,
            Step::PatchImage { name, uid, version } => self.patch_image(name, uid, *version).await,
            Step::DeletePod { name, uid } => self.delete_pod("DeletePod", name, uid).await,
            Step::DropImageCheck { pod, uid } => self.delete_pod("DropImageCheck", pod, uid).await,
            Step::DeleteClaim { name, uid } => self.delete_claim(name, uid).await,
            Step::OwnClaim { name, uid, owned } => self.own_claim(name, uid, *owned).await,
            Step::CheckImage { version, node } => self.check_image(*version, node).await,
            Step::AddMember { name, learner } => self.add_member(name, *learner).await,
            Step::Promote { id, .. } => self.promote(*id).await,
            Step::RemoveMember { id, .. } => self.remove_member(*id).await,
            Step::MoveLeader { from, to } => self.move_leader(*from, *to).await,
            Step::RollLog { to } => Ok(self.roll_log(*to).await),
            Step::BackUp { of, version } => self.back_up(of, *version).await,
            Step::CompareHash { member, with, version } => self.compare_hash(member, with, *version).await,
        }
    }

    /// Writes status on condition that nobody wrote the `EtcdCluster` since it was read.
    pub async fn record(&mut self, step: &'static str) -> Result<Outcome, ApplyError> {
        let namespace = self.cluster.namespace().unwrap_or_default();
        let api: Api<EtcdCluster> = Api::namespaced(self.context.client.clone(), &namespace);
        let wanted = EtcdCluster { status: Some(self.status.clone()), ..self.cluster.clone() };
        match api.replace_status(&wanted.name_any(), &PostParams::default(), &wanted).await {
            Ok(written) => {
                debug!(cluster = %Key::of(self.cluster), step, status = ?self.status, "status written");
                self.memory.reported = Some(tokio::time::Instant::now());
                self.memory.own.cluster.changed(written.clone());
                *self.cluster = written;
                Ok(Outcome::Done)
            }
            Err(error) => refused(step, error),
        }
    }
}

/// Sorts out the answers that only mean that somebody was faster.
fn refused(step: &'static str, source: kube::Error) -> Result<Outcome, ApplyError> {
    match &source {
        kube::Error::Api(status) if [404, 409, 410].contains(&status.code) => {
            Ok(Outcome::Stale(status.message.clone()))
        }
        // A patch that names the UID of a pod that is no more.
        kube::Error::Api(status) if status.code == 422 && status.message.contains("metadata.uid") => {
            Ok(Outcome::Stale(status.message.clone()))
        }
        _ => Err(ApplyError::Kubernetes { step, source }),
    }
}

/// Builds for tests can be told to die right after a step, so that no test has to guess the moment.
#[cfg(debug_assertions)]
fn die_after(step: &str) {
    let told = std::env::var("ETCD_OPERATOR_DIES_AFTER").unwrap_or_default();
    if told.split(',').any(|one| one == step) {
        std::process::exit(1);
    }
}

#[cfg(not(debug_assertions))]
fn die_after(_: &str) {}

/// Stable, for logs and metrics.
fn name(step: &Step) -> &'static str {
    match step {
        Step::ListLive => "ListLive",
        Step::RecordSeed { .. } => "RecordSeed",
        Step::RecordCluster { .. } => "RecordCluster",
        Step::RecordRestore { .. } => "RecordRestore",
        Step::SwapCluster { .. } => "SwapCluster",
        Step::CreateRestoredSeed { .. } => "CreateRestoredSeed",
        Step::Adopt { .. } => "Adopt",
        Step::StopServing { .. } => "StopServing",
        Step::EnsureHeadlessService => "EnsureHeadlessService",
        Step::EnsureClientService => "EnsureClientService",
        Step::SetBudget { .. } => "SetBudget",
        Step::CreateSeed { .. } => "CreateSeed",
        Step::CreateMember { .. } => "CreateMember",
        Step::ResumeMember { .. } => "ResumeMember",
        Step::MarkPod { .. } => "MarkPod",
        Step::PatchImage { .. } => "PatchImage",
        Step::DeletePod { .. } => "DeletePod",
        Step::DeleteClaim { .. } => "DeleteClaim",
        Step::OwnClaim { .. } => "OwnClaim",
        Step::AddMember { .. } => "AddMember",
        Step::Promote { .. } => "Promote",
        Step::RemoveMember { .. } => "RemoveMember",
        Step::MoveLeader { .. } => "MoveLeader",
        Step::CheckImage { .. } => "CheckImage",
        Step::DropImageCheck { .. } => "DropImageCheck",
        Step::RollLog { .. } => "RollLog",
        Step::BackUp { .. } => "BackUp",
        Step::CompareHash { .. } => "CompareHash",
    }
}

/// The member that a step is about, for logs.
fn member(step: &Step) -> Option<&str> {
    match step {
        Step::RecordSeed { name }
        | Step::CreateSeed { name, .. }
        | Step::CreateRestoredSeed { name, .. }
        | Step::Adopt { name, .. }
        | Step::StopServing { name, .. }
        | Step::CreateMember { name, .. }
        | Step::ResumeMember { name, .. }
        | Step::MarkPod { name, .. }
        | Step::PatchImage { name, .. }
        | Step::DeletePod { name, .. }
        | Step::DeleteClaim { name, .. }
        | Step::OwnClaim { name, .. }
        | Step::AddMember { name, .. }
        | Step::Promote { name, .. }
        | Step::RemoveMember { name, .. }
        | Step::CompareHash { member: name, .. } => Some(name.as_str()),
        Step::RecordRestore { restore } | Step::SwapCluster { restore, .. } => Some(restore.seed.as_str()),
        Step::ListLive
        | Step::RecordCluster { .. }
        | Step::EnsureHeadlessService
        | Step::EnsureClientService
        | Step::SetBudget { .. }
        | Step::MoveLeader { .. }
        | Step::CheckImage { .. }
        | Step::RollLog { .. }
        | Step::BackUp { .. }
        | Step::DropImageCheck { .. } => None,
    }
}
