//! What status says of a backup, and the events beside it.

use api::conditions::{self, Condition, ConditionStatus};
use api::v1beta2::{BackupProgress, rounded_size};
use api::{EtcdBackup, EtcdBackupStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use runtime::events::Severity;
use snapshot::Progress;

use super::job::{Failure, Good, Job, State};
use super::plan::Plan;

const READY: &str = "Ready";
const PROGRESSING: &str = "Progressing";
const STALLED: &str = "Stalled";

/// Something that happened, for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

/// Takes over what became of an attempt, and says it.
pub fn record(status: &mut EtcdBackupStatus, job: &Job, now: Timestamp) -> Vec<News> {
    match job.state() {
        State::Running(_) | State::Stopped => Vec::new(),
        State::Made(good) => made(status, &good),
        State::Failed(failure) => {
            status.succeeded = false;
            status.failures = status.failures.saturating_add(1);
            status.last_failure = Some(Time(now));
            status.reason.clone_from(&failure.message);
            stall(status, failure.reason, &failure.message, job.generation, now);
            vec![warning(failure)]
        }
    }
}

/// A spec that was changed is a new start.
pub fn forgive(status: &mut EtcdBackupStatus, generation: Option<i64>) {
    if status.observed_generation != generation {
        status.failures = 0;
        status.last_failure = None;
    }
}

fn made(status: &mut EtcdBackupStatus, good: &Good) -> Vec<News> {
    let manifest = &good.manifest;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    status.succeeded = true;
    status.reason.clear();
    status.failures = 0;
    status.last_failure = None;
    status.etcd_version.clone_from(&manifest.etcd_version);
    status.etcd_revision = manifest.revision;
    status.last_success_date = Some(Time(manifest.finished));
    status.last_slot = Some(Time(manifest.slot));
    status.last_object.clone_from(&good.object);
    status.size_bytes = number(manifest.size);
    status.keys = number(manifest.keys);
    status.kept = i64::try_from(good.kept).unwrap_or(i64::MAX);
    status.conditions.retain(|condition| condition.type_ != STALLED);
    let news = News { severity: Severity::Normal, reason: "BackupMade", message: said(status) };
    std::iter::once(news).chain(good.not_pruned.clone().map(warning)).collect()
}

fn warning(failure: Failure) -> News {
    News { severity: Severity::Warning, reason: failure.reason, message: failure.message }
}

/// The last good backup in a sentence.
fn said(status: &EtcdBackupStatus) -> String {
    let size = rounded_size(u64::try_from(status.size_bytes).unwrap_or_default());
    let EtcdBackupStatus { etcd_revision, keys, last_object, etcd_version, .. } = status;
    format!(
        "{last_object} holds revision {etcd_revision} of etcd {etcd_version}: {keys} keys, {size}, verified"
    )
}

/// Lays the plan over status.
pub fn compose(
    backup: &EtcdBackup,
    status: &mut EtcdBackupStatus,
    plan: &Plan,
    job: Option<&Job>,
    now: Timestamp,
) -> Vec<News> {
    use ConditionStatus::{False, True};
    let generation = backup.metadata.generation;
    let mut news = Vec::new();
    if let Plan::Refused(refusal) = plan {
        let message = refusal.to_string();
        if conditions::find(&status.conditions, STALLED).is_none_or(|old| old.message != message) {
            news.push(News {
                severity: Severity::Warning,
                reason: refusal.reason(),
                message: message.clone(),
            });
        }
        status.reason.clone_from(&message);
        stall(status, refusal.reason(), &message, generation, now);
    } else if status.failures == 0 {
        status.reason.clear();
        status.conditions.retain(|condition| condition.type_ != STALLED);
    }
    let running = job.filter(|job| job.is_running());
    status.progress = running.map(|job| BackupProgress {
        slot: Some(Time(job.slot)),
        started: Some(Time(job.started)),
        size: moved(&job.state()),
    });
    status.next_backup = match plan {
        Plan::Retry { at } => Some(Time(*at)),
        Plan::Wait { until } => until.map(Time),
        _ => None,
    };
    status.observed_generation = generation;

    let (progressing, doing, words) = match running {
        Some(job) => (True, "Saving", telling(&job.state())),
        None => (False, "Idle", String::new()),
    };
    set(status, Condition::new(PROGRESSING, progressing, doing, words), generation, now);
    let stalled = conditions::find(&status.conditions, STALLED).cloned();
    let ready = match (stalled, plan) {
        (Some(stalled), _) => Condition::new(READY, False, &stalled.reason, stalled.message),
        (None, Plan::Finished) => Condition::new(READY, True, "BackupComplete", said(status)),
        (None, Plan::Suspended) => {
            Condition::new(READY, False, "Suspended", "spec.suspend is true: no backup is begun")
        }
        (None, _) if status.succeeded => Condition::new(READY, True, "BackedUp", said(status)),
        (None, Plan::Wait { until: Some(first) }) => {
            Condition::new(READY, False, "Scheduled", format!("the first backup is due at {first}"))
        }
        (None, _) => Condition::new(READY, False, "Saving", "the first backup is not finished yet"),
    };
    set(status, ready, generation, now);
    news
}

fn stall(
    status: &mut EtcdBackupStatus,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    set(status, Condition::new(STALLED, ConditionStatus::True, reason, message), generation, now);
}

fn set(status: &mut EtcdBackupStatus, condition: Condition, generation: Option<i64>, now: Timestamp) {
    conditions::set(&mut status.conditions, condition.observed(generation), now);
}

fn moved(state: &State) -> String {
    match state {
        State::Running(Some(Progress::Moved { bytes, .. } | Progress::Verifying { bytes })) => {
            rounded_size(*bytes)
        }
        _ => String::new(),
    }
}

fn telling(state: &State) -> String {
    match state {
        State::Running(Some(Progress::Moved { bytes, .. })) => {
            format!("{} are in the store", rounded_size(*bytes))
        }
        State::Running(Some(Progress::Verifying { bytes })) => {
            format!("all of {} is in the store, and is read back", rounded_size(*bytes))
        }
        State::Running(Some(progress)) => progress.to_string(),
        _ => "looking at the store and for a member".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::plan::Refusal;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn backup() -> EtcdBackup {
        let mut backup = EtcdBackup::new("b", api::EtcdBackupSpec::default());
        backup.metadata.generation = Some(1);
        backup
    }

    fn ready(status: &EtcdBackupStatus) -> (ConditionStatus, &str) {
        let ready = conditions::find(&status.conditions, READY).unwrap();
        (ready.status, ready.reason.as_str())
    }

    fn failed(status: &mut EtcdBackupStatus, second: i64) -> Vec<News> {
        let failure = Failure { reason: "BucketNotFound", message: "there is no bucket".into() };
        let job = Job::ended(&backup(), at(0), State::Failed(failure));
        record(status, &job, at(second))
    }

    #[test]
    fn failures_are_counted_and_shown_until_a_backup_is_made() {
        let (backup, mut status) = (backup(), EtcdBackupStatus::default());
        for second in [1, 2] {
            assert_eq!(failed(&mut status, second)[0].reason, "BucketNotFound");
            compose(&backup, &mut status, &Plan::Retry { at: at(9) }, None, at(second));
        }
        assert_eq!(
            (status.succeeded, status.failures, status.reason.as_str()),
            (false, 2, "there is no bucket")
        );
        assert_eq!(status.next_backup, Some(Time(at(9))));
        assert_eq!(ready(&status), (ConditionStatus::False, "BucketNotFound"));
        // Still shown while the next attempt is under way.
        compose(&backup, &mut status, &Plan::Running, None, at(9));
        assert_eq!(ready(&status), (ConditionStatus::False, "BucketNotFound"));
    }

    #[test]
    fn an_edit_forgives_what_failed_before() {
        let (backup, mut status) = (backup(), EtcdBackupStatus::default());
        failed(&mut status, 1);
        compose(&backup, &mut status, &Plan::Retry { at: at(9) }, None, at(1));
        forgive(&mut status, Some(1));
        assert_eq!(status.failures, 1);
        forgive(&mut status, Some(2));
        compose(&backup, &mut status, &Plan::Run { slot: at(0) }, None, at(2));
        assert_eq!((status.failures, status.reason.as_str()), (0, ""));
        assert_eq!(ready(&status), (ConditionStatus::False, "Saving"));
    }

    #[test]
    fn a_refusal_is_said_once_and_gone_with_its_cause() {
        let (backup, mut status) = (backup(), EtcdBackupStatus::default());
        let refused = Plan::Refused(Refusal::Tls);
        assert_eq!(compose(&backup, &mut status, &refused, None, at(1)).len(), 1);
        assert!(compose(&backup, &mut status, &refused, None, at(2)).is_empty());
        assert_eq!(ready(&status), (ConditionStatus::False, "TLSNotBuilt"));
        assert!(status.reason.contains("not built"), "{}", status.reason);
        compose(&backup, &mut status, &Plan::Wait { until: Some(at(9)) }, None, at(3));
        assert_eq!((ready(&status), status.reason.as_str()), ((ConditionStatus::False, "Scheduled"), ""));
    }

    #[test]
    fn what_says_nothing_new_is_no_change() {
        let (backup, mut status) = (backup(), EtcdBackupStatus::default());
        compose(&backup, &mut status, &Plan::Suspended, None, at(1));
        let before = status.clone();
        compose(&backup, &mut status, &Plan::Suspended, None, at(2));
        assert_eq!(status, before);
    }
}
