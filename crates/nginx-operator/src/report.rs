//! What is said of an instance: its status, and the events that tell how it changed. Pure: no client required.

use api::nginx::conditions::{OPERAND_READY, PROGRESSING, READY, reason};
use api::nginx::{self, NginxOperator, NginxOperatorStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use runtime::backoff::Retry;
use runtime::conditions::{Status, condition, find, set};
use runtime::events::Severity;

use crate::health::{Health, Verdict};
use crate::plan::{Kind, Step};

/// Longer messages are cut.
const MAX_MESSAGE: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

/// The status after a reconcile that worked.
pub fn status(instance: &NginxOperator, health: &Health, image: &str, now: Timestamp) -> NginxOperatorStatus {
    let Health { operand, progressing, replicas, ready } = health;
    let reconciled = Verdict {
        status: Status::True,
        reason: reason::RECONCILED,
        message: "the operand's objects are as asked for".to_owned(),
    };
    let mut status = NginxOperatorStatus {
        observed_generation: instance.metadata.generation,
        replicas: *replicas,
        ready_replicas: *ready,
        selector: nginx::selector(&instance.name_any()),
        image: instance.spec.image.as_deref().unwrap_or(image).to_owned(),
        conditions: instance.status.clone().unwrap_or_default().conditions,
    };
    for (type_, verdict) in [(READY, &reconciled), (OPERAND_READY, operand), (PROGRESSING, progressing)] {
        set(&mut status.conditions, of_verdict(instance, type_, verdict, now));
    }
    status
}

/// The status after one that failed: what was known of the operand stays, and may be old.
pub fn failed(
    instance: &NginxOperator,
    reason: &'static str,
    error: &str,
    retry: Retry,
    now: Timestamp,
) -> NginxOperatorStatus {
    let mut status = instance.status.clone().unwrap_or_default();
    status.observed_generation = instance.metadata.generation;
    let Retry { failures, after } = retry;
    let tries =
        if failures == 1 { "failed once".to_owned() } else { format!("failed {failures} times in a row") };
    let message = format!("{error} ({tries}, next try in {after:.1?})");
    let verdict = Verdict { status: Status::False, reason, message };
    set(&mut status.conditions, of_verdict(instance, READY, &verdict, now));
    status
}

fn of_verdict(instance: &NginxOperator, type_: &str, verdict: &Verdict, now: Timestamp) -> Condition {
    let Verdict { status, reason, message } = verdict;
    condition(type_, *status, reason, shortened(message), instance.metadata.generation, now)
}

fn shortened(message: &str) -> String {
    if message.chars().count() <= MAX_MESSAGE {
        return message.to_owned();
    }
    message.chars().take(MAX_MESSAGE - 1).chain(['…']).collect()
}

/// What was done, and what became of it since the status was last written.
pub fn events(instance: &NginxOperator, new: &NginxOperatorStatus, done: &[Step]) -> Vec<Event> {
    let old = instance.status.clone().unwrap_or_default();
    let mut events: Vec<Event> = done.iter().map(|step| told(instance, &old, new, step)).collect();
    let changed = |type_| {
        let new = find(&new.conditions, type_)?;
        let before = find(&old.conditions, type_);
        before
            .is_none_or(|old| (&old.status, &old.reason) != (&new.status, &new.reason))
            .then_some((before, new))
    };
    if let Some((_, operand)) = changed(OPERAND_READY) {
        match operand.status.as_str() {
            "True" => events.push(normal(operand_reason(&operand.reason), operand.message.clone())),
            "False" => events.push(warning(operand_reason(&operand.reason), operand.message.clone())),
            _ => {}
        }
    }
    if let Some((before, progressing)) = changed(PROGRESSING) {
        if progressing.reason == reason::ROLLOUT_STALLED {
            events.push(warning(reason::ROLLOUT_STALLED, progressing.message.clone()));
        } else if progressing.reason == reason::ROLLED_OUT && before.is_some() {
            events.push(normal(reason::ROLLED_OUT, format!("{} replicas run {}", new.replicas, new.image)));
        }
    }
    events
}

/// Reasons are a closed set; the status has them as text.
fn operand_reason(text: &str) -> &'static str {
    [
        reason::ALL_REPLICAS_ANSWER,
        reason::SCALED_TO_ZERO,
        reason::REPLICAS_MISSING,
        reason::PODS_REFUSED,
        reason::IMAGE_PULL_FAILED,
        reason::CRASH_LOOP,
        reason::CONTAINER_FAILED,
        reason::UNSCHEDULABLE,
    ]
    .into_iter()
    .find(|known| *known == text)
    .unwrap_or(OPERAND_READY)
}

fn told(
    instance: &NginxOperator,
    old: &NginxOperatorStatus,
    new: &NginxOperatorStatus,
    step: &Step,
) -> Event {
    let name = instance.name_any();
    match step {
        Step::Create { kind, .. } => normal(reason::CREATED, format!("{} {name} was created", kind.as_str())),
        Step::Patch { kind: Kind::Deployment, .. } if old.image != new.image && !old.image.is_empty() => {
            normal(reason::UPDATED, format!("Deployment {name} goes from {} to {}", old.image, new.image))
        }
        Step::Patch { kind, .. } => {
            normal(reason::UPDATED, format!("{} {name} was set right", kind.as_str()))
        }
    }
}

fn normal(reason: &'static str, message: String) -> Event {
    Event { severity: Severity::Normal, reason, message }
}

fn warning(reason: &'static str, message: String) -> Event {
    Event { severity: Severity::Warning, reason, message }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::nginx::NginxOperatorSpec;

    use super::*;
    use crate::health::assess;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn instance() -> NginxOperator {
        let mut instance = NginxOperator::new("web", NginxOperatorSpec::default());
        instance.metadata.generation = Some(4);
        instance
    }

    fn starting(instance: &NginxOperator, now: i64) -> NginxOperatorStatus {
        status(instance, &assess(1, None, &[]), "nginx:latest", at(now))
    }

    fn said(status: &NginxOperatorStatus, type_: &str) -> (String, String) {
        let condition = find(&status.conditions, type_).unwrap();
        assert_eq!(condition.observed_generation, Some(4));
        (condition.status.clone(), condition.reason.clone())
    }

    #[test]
    fn a_status_that_says_the_same_is_the_same() {
        let mut instance = instance();
        let first = starting(&instance, 1);
        assert_eq!(said(&first, READY), ("True".into(), "Reconciled".into()));
        assert_eq!(said(&first, OPERAND_READY), ("Unknown".into(), "Starting".into()));
        assert_eq!(said(&first, PROGRESSING), ("True".into(), "RollingOut".into()));
        instance.status = Some(first.clone());
        assert_eq!(starting(&instance, 2), first);
        assert_eq!(events(&instance, &first, &[]), []);
    }

    #[test]
    fn a_failure_keeps_what_was_known_and_tells_of_the_next_try() {
        let mut instance = instance();
        instance.status = Some(starting(&instance, 1));
        let retry = Retry { failures: 3, after: Duration::from_secs(4) };
        let failed = failed(&instance, "NameTaken", "the name is taken", retry, at(2));
        assert_eq!(said(&failed, READY), ("False".into(), "NameTaken".into()));
        let message = &find(&failed.conditions, READY).unwrap().message;
        assert_eq!(message, "the name is taken (failed 3 times in a row, next try in 4.0s)");
        assert_eq!(said(&failed, OPERAND_READY), ("Unknown".into(), "Starting".into()));
    }

    #[test]
    fn events_tell_of_changes_and_of_nothing_else() {
        let mut instance = instance();
        instance.status = Some(starting(&instance, 1));
        let mut health = assess(1, None, &[]);
        health.operand = Verdict {
            status: Status::False,
            reason: reason::IMAGE_PULL_FAILED,
            message: "pod web-1: no image".into(),
        };
        let broken = status(&instance, &health, "nginx:latest", at(2));
        assert_eq!(
            events(&instance, &broken, &[]),
            [warning("ImagePullFailed", "pod web-1: no image".into())]
        );
        instance.status = Some(broken);
        health.operand.message = "pod web-2: no image".into();
        let again = status(&instance, &health, "nginx:latest", at(3));
        assert_eq!(events(&instance, &again, &[]), [], "the same trouble is told once");
    }

    #[test]
    fn an_upgrade_is_told_from_one_image_to_the_other() {
        let mut instance = instance();
        instance.status = Some(starting(&instance, 1));
        instance.spec.image = Some("nginx:2".into());
        let step = Step::Patch { kind: Kind::Deployment, patch: serde_json::Value::Null };
        let new = starting(&instance, 2);
        let events = events(&instance, &new, &[step]);
        assert_eq!(events, [normal("Updated", "Deployment web goes from nginx:latest to nginx:2".into())]);
    }

    #[test]
    fn messages_have_at_most_so_many_characters() {
        assert_eq!(shortened(&"ü".repeat(1024)), "ü".repeat(1024));
        assert_eq!(shortened(&"ü".repeat(1025)).chars().count(), 1024);
    }
}
