//! One round on one EtcdBackup.

use std::sync::Arc;
use std::time::Duration;

use api::EtcdBackup;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use runtime::events::Severity;
use thiserror::Error;
use tracing::debug;

use super::job::{Job, State};
use super::plan::{Facts, Plan, plan};
use super::report::{self, News};
use super::timing::Timing;
use super::{Context, Guarded, Memory, NAME};
use crate::scope::Key;

/// How often an attempt under way is looked at.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Debug, Error)]
pub enum ReconcileError {
    #[error("status was not written: {0}")]
    Status(#[source] kube::Error),
}

impl ReconcileError {
    /// Stable, for metrics.
    fn reason(&self) -> &'static str {
        match self {
            Self::Status(_) => "StatusNotWritten",
        }
    }
}

pub async fn reconcile(backup: Arc<Guarded>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let clock = context.tenure.rounds.reconcile(NAME);
    match round(&backup, &context).await {
        Ok(action) => {
            clock.ok();
            context.backoff.forget(&Key::of(&*backup));
            Ok(action)
        }
        Err(error) => {
            clock.failed(error.reason());
            Err(error)
        }
    }
}

async fn round(backup: &Guarded, context: &Arc<Context>) -> Result<Action, ReconcileError> {
    let backup = match &backup.0 {
        Ok(backup) => backup,
        Err(invalid) => {
            let message = format!(
                "the EtcdBackup cannot be read, nothing is done until it is corrected: {}",
                invalid.error
            );
            let about = backup.object_ref(&());
            context.tenure.recorder.publish(&about, Severity::Warning, "SpecInvalid", &message).await;
            return Ok(Action::await_change());
        }
    };
    let memory = context.memory(backup);
    let mut memory = memory.lock().await;
    let (mut newest, _) = memory.own.over(vec![Arc::new(backup.clone())]);
    let backup: EtcdBackup = newest.pop().map_or_else(|| backup.clone(), Arc::unwrap_or_clone);
    if backup.metadata.deletion_timestamp.is_some() {
        // Nothing that it made is touched.
        memory.job.take().inspect(|job| job.stop.cancel());
        return Ok(Action::await_change());
    }
    let now = Timestamp::now();
    let mut status = backup.status.clone().unwrap_or_default();
    let ended = memory.job.take_if(|job| !job.is_running());
    let mut news = ended.as_ref().map(|job| report::record(&mut status, job, now)).unwrap_or_default();
    report::forgive(&mut status, backup.metadata.generation);
    // An attempt at what the spec no longer says.
    memory
        .job
        .iter()
        .filter(|job| job.generation != backup.metadata.generation)
        .for_each(|job| job.stop.cancel());

    let created = backup.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
    let facts = Facts { spec: &backup.spec, status: &status, created, running: memory.job.is_some(), now };
    let plan = plan(facts);
    debug!(backup = %Key::of(&backup), ?plan, "planned");
    if let Plan::Run { slot } = plan {
        memory.job = Some(context.start(&backup, slot, now));
    }
    news.extend(report::compose(&backup, &mut status, &plan, memory.job.as_ref(), now));
    measure(context, &backup, &status, created);
    let written = write(context, &backup, &mut memory, status).await;
    if let Err(error) = written {
        // Told the next time: what the store shows by then is not made again.
        memory.job = memory.job.take().or(ended);
        return Err(error);
    }
    if let Some(job) = &ended {
        count(context, job);
    }
    for News { severity, reason, message } in &news {
        context.tenure.recorder.publish(&backup.object_ref(&()), *severity, reason, message).await;
    }
    Ok(match plan {
        Plan::Finished | Plan::Refused(_) | Plan::Suspended | Plan::Wait { until: None } => {
            Action::await_change()
        }
        Plan::Running | Plan::Run { .. } => Action::requeue(LOOK),
        Plan::Retry { at } | Plan::Wait { until: Some(at) } => Action::requeue(until(at, now)),
    })
}

async fn write(
    context: &Context,
    backup: &EtcdBackup,
    memory: &mut Memory,
    status: api::EtcdBackupStatus,
) -> Result<(), ReconcileError> {
    if backup.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let api: Api<EtcdBackup> =
        Api::namespaced(context.tenure.client.clone(), &backup.namespace().unwrap_or_default());
    let new = EtcdBackup { status: Some(status), ..backup.clone() };
    match api.replace_status(&backup.name_any(), &PostParams::default(), &new).await {
        Ok(written) => {
            memory.own.changed(written);
            Ok(())
        }
        // Deleted meanwhile: there is nobody to tell.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(ReconcileError::Status(error)),
    }
}

/// One that is made once has no age to watch.
fn measure(context: &Context, backup: &EtcdBackup, status: &api::EtcdBackupStatus, created: Timestamp) {
    let key = Key::of(backup);
    if backup.spec.suspend || Timing::of(&backup.spec) == Ok(Timing::Once) {
        return context.metrics.forget(&key);
    }
    let since = status.last_success_date.as_ref().map_or(created, |last| last.0);
    context.metrics.last_good(&key, since);
}

fn count(context: &Context, job: &Job) {
    match job.state() {
        State::Made(_) => context.metrics.attempted("made"),
        State::Failed(failure) => context.metrics.attempted(failure.reason),
        State::Stopped | State::Running(_) => {}
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    at.duration_since(now).max(jiff::SignedDuration::ZERO).unsigned_abs()
}
