//! One round on one cluster.

use std::sync::Arc;
use std::time::Duration;

use api::EtcdCluster;
use domain::{Moment, Plan, Rule, Step};
use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use resources::Cluster;
use thiserror::Error;
use tracing::debug;

use super::apply::{ApplyError, Hands, Outcome};
use super::memory::Memory;
use super::observe::{ObserveError, Seen, Source, observe};
use super::report::{self, News};
use super::spec::spec_of;
use super::watches::{Guarded, Key};
use super::{Context, NAME, unreadable};

/// After a step the world is looked at again at once; etcd's "wait" gets this long.
const WAIT: Duration = Duration::from_millis(200);
/// Members are asked at least this often, so that a lost quorum is told within ten seconds.
const REST: Duration = Duration::from_secs(2);

#[derive(Debug, Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("the EtcdCluster was deleted meanwhile")]
    Gone,
    #[error("the EtcdCluster cannot be read, and its status cannot say so: {0}")]
    Unreadable(kube::Error),
}

impl ReconcileError {
    /// Stable, for metrics.
    fn reason(&self) -> &'static str {
        match self {
            Self::Observe(ObserveError::Build(_)) => "NotBuildable",
            Self::Observe(ObserveError::List(_)) => "ListFailed",
            Self::Apply(error) => error.reason(),
            Self::Gone => "ClusterGone",
            Self::Unreadable(_) => "StatusRefused",
        }
    }
}

pub async fn reconcile(cluster: Arc<Guarded>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let clock = context.rounds.reconcile(NAME);
    match round(&cluster, &context).await {
        Ok(action) => {
            clock.ok();
            context.backoff.forget(&Key::of(&*cluster));
            Ok(action)
        }
        Err(error) => {
            clock.failed(error.reason());
            Err(error)
        }
    }
}

async fn round(cluster: &Guarded, context: &Context) -> Result<Action, ReconcileError> {
    let cluster = match &cluster.0 {
        Ok(cluster) => cluster,
        Err(invalid) => {
            unreadable::tell(context, cluster, &invalid.error).await.map_err(ReconcileError::Unreadable)?;
            return Ok(Action::await_change());
        }
    };
    let key = Key::of(cluster);
    let remembered = context.memories.of(&key, &cluster.uid().unwrap_or_default());
    let mut remembered = remembered.lock().await;
    let memory = &mut *remembered;
    let (mut newest, _) = memory.own.cluster.over(vec![Arc::new(cluster.clone())]);
    let mut cluster: EtcdCluster = newest.pop().map_or_else(|| cluster.clone(), Arc::unwrap_or_clone);

    let now = now();
    let (mut plan, seen) = planned(context, &mut cluster, memory, now).await?;
    log(&key, &plan);
    memory.refused.tell(&mut plan.report);
    context.metrics.report(&key, &plan.report);

    let mut status = report::compose(&cluster, &plan.report, Timestamp::now());
    let events = report::announcements(
        cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default(),
        &plan.report,
    );
    let due = due(&plan, report::news(cluster.status.as_ref(), &status), memory);
    let members = seen.observation.members.known().cloned().unwrap_or_default();
    let mut hands =
        Hands { context, cluster: &mut cluster, status: &mut status, memory, seen: &seen, members, now };
    if due == Some(Duration::ZERO) && hands.record("WriteStatus").await? != Outcome::Done {
        return Ok(Action::requeue(WAIT));
    }
    let outcome = hands.apply(&plan).await;
    // Announced once status says so, whichever write that was.
    if due == Some(Duration::ZERO) || records(&plan) {
        for event in &events {
            context.publish(&cluster, event).await;
        }
    }
    let outcome = outcome?;
    let in_vain = outcome == Outcome::Done && memory.did_before(&plan);
    Ok(match outcome {
        Outcome::Done if in_vain => Action::requeue(REST),
        Outcome::Done if !plan.actions.is_empty() => Action::requeue(Duration::ZERO),
        Outcome::Done => {
            let unsaid = due.filter(|wait| !wait.is_zero());
            let wake = [plan.wake_after, unsaid].into_iter().flatten().min();
            wake.map_or_else(Action::await_change, |wake| Action::requeue(wake.min(REST)))
        }
        Outcome::Wait(_) | Outcome::Stale(_) => Action::requeue(WAIT),
    })
}

/// The plan on what the caches show, or on what the API server itself says where the plan asks for that.
async fn planned(
    context: &Context,
    cluster: &mut EtcdCluster,
    memory: &mut Memory,
    now: Moment,
) -> Result<(Plan, Seen), ReconcileError> {
    let cached = plan_on(context, cluster, memory, Source::Caches, now).await?;
    if !cached.0.actions.iter().any(|action| action.step == Step::ListLive) {
        return Ok(cached);
    }
    // What is absent may be so for a request or a record that the cache has not heard of yet.
    let api: Api<EtcdCluster> =
        Api::namespaced(context.client.clone(), &cluster.namespace().unwrap_or_default());
    let live = api.get_opt(&cluster.name_any()).await.map_err(ObserveError::from)?;
    *cluster = live.filter(|live| live.uid() == cluster.uid()).ok_or(ReconcileError::Gone)?;
    plan_on(context, cluster, memory, Source::ApiServer, now).await
}

async fn plan_on(
    context: &Context,
    cluster: &EtcdCluster,
    memory: &mut Memory,
    source: Source,
    now: Moment,
) -> Result<(Plan, Seen), ReconcileError> {
    let template = Cluster::of(cluster).map_err(ObserveError::from)?.template_hash;
    let spec = spec_of(cluster, template, &context.defaults);
    let seen = observe(context, cluster, memory, source, now).await?;
    let plan = domain::plan(&spec, &seen.observation, now);
    Ok((plan, seen))
}

/// When status is written: at once when all is quiet, else not too soon after the last time, so that what changes
/// together is written together. `None`: there is nothing to write, or a step writes it along.
fn due(plan: &Plan, news: News, memory: &Memory) -> Option<Duration> {
    // An election, or one poll that was missed, is not worth a word.
    let pause = news.pause().filter(|_| !records(plan) && !plan.passing)?;
    let quiet = plan.rule == Rule::Steady;
    let since = memory.reported.map_or(Duration::MAX, |at| at.elapsed());
    Some(if quiet { Duration::ZERO } else { pause.saturating_sub(since) })
}

fn records(plan: &Plan) -> bool {
    plan.actions.iter().any(|action| action.step.records())
}

fn log(key: &Key, plan: &Plan) {
    let steps = plan.actions.len();
    debug!(cluster = %key, rule = plan.rule.name(), why = plan.why, steps, "planned");
}

fn now() -> Moment {
    Moment(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default())
}
