//! Conditions: their types, their reasons, and how they change.
//!
//! The first four are the ones that coreos wrote and the book shows, with reasons that have spaces in them. Ours have
//! reasons in `CamelCase`, carry `observedGeneration`, and keep their meaning for ever.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster answers and takes writes.
pub const AVAILABLE: &str = "Available";
/// Members are being added or removed, to reach `spec.size`.
pub const SCALING: &str = "Scaling";
/// Members are being moved to `spec.version`.
pub const UPGRADING: &str = "Upgrading";
/// A member that failed is being brought back or replaced.
pub const RECOVERING: &str = "Recovering";

/// The cluster is what its spec asks for, and every member is healthy.
pub const READY: &str = "Ready";
/// The operator is at work on the cluster, or waits for something that will come.
pub const PROGRESSING: &str = "Progressing";
/// Some member does not do its part, or the database needs care; the cluster may still serve.
pub const DEGRADED: &str = "Degraded";
/// A majority of members is down: no writes. `Unknown` when nobody can be asked.
pub const QUORUM_LOST: &str = "QuorumLost";
/// The spec asks for something that the operator may not do; nothing is touched until it changes.
pub const SPEC_INVALID: &str = "SpecInvalid";
/// `spec.paused` is set: the operator looks, and does nothing.
pub const PAUSED: &str = "Paused";

/// Reasons of coreos' four conditions, as the book prints them.
pub mod book {
    pub const CLUSTER_AVAILABLE: &str = "Cluster available";
    pub const SCALING_UP: &str = "Scaling up";
    pub const SCALING_DOWN: &str = "Scaling down";
    pub const CLUSTER_UPGRADING: &str = "Cluster upgrading";
    pub const DISASTER_RECOVERY: &str = "Disaster recovery";

    pub fn scaling_message(current: usize, desired: usize) -> String {
        format!("Current cluster size: {current}, desired cluster size: {desired}")
    }

    pub fn upgrading_message(version: &str) -> String {
        format!("upgrading to {version}")
    }
}

/// Reasons of our own conditions.
pub mod reason {
    pub const CREATING: &str = "Creating";
    pub const ALL_MEMBERS_HEALTHY: &str = "AllMembersHealthy";
    pub const AS_SPECIFIED: &str = "AsSpecified";
    pub const SCALING: &str = "Scaling";
    pub const UPGRADING: &str = "Upgrading";
    pub const ROLLING_OUT: &str = "RollingOut";
    pub const RECOVERING: &str = "Recovering";
    pub const MEMBER_DOWN: &str = "MemberDown";
    pub const MAJORITY_DOWN: &str = "MajorityDown";
    pub const MAJORITY_UP: &str = "MajorityUp";
    pub const NOBODY_ANSWERS: &str = "NobodyAnswers";
    pub const PAUSED: &str = "Paused";
    pub const TLS_NOT_SUPPORTED: &str = "TLSNotSupported";
    pub const VERSION_REFUSED: &str = "VersionRefused";
    pub const SPEC_REFUSED: &str = "SpecRefused";
    pub const IMAGE_UNUSABLE: &str = "ImageUnusable";
    pub const NO_SPACE: &str = "NoSpace";
    pub const CORRUPT: &str = "Corrupt";
    pub const DATABASE_NEARLY_FULL: &str = "DatabaseNearlyFull";
    pub const MISSING_RIGHTS: &str = "MissingRights";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// One aspect of the cluster's state at this moment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which aspect. `kubectl wait --for=condition=Ready` waits for the one of that type.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// Whether it holds; `Unknown` while the operator cannot tell.
    pub status: ConditionStatus,
    /// Why, in a word or two that programs may compare.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Why, in a sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// When anything in this condition last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// `metadata.generation` of the spec that this condition speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// A condition that has no times yet: [`set`] gives it those.
    pub fn new(type_: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) -> Self {
        Self {
            type_: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: None,
            last_update_time: None,
            observed_generation: None,
        }
    }

    #[must_use]
    pub fn observed(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }
}

pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Puts `new` in the place of the condition of its type. Times move only with what they speak of, so that a state that
/// stays the same is no change to write.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition, now: Timestamp) {
    let now = Some(Time(now));
    let Some(old) = conditions.iter_mut().find(|old| old.type_ == new.type_) else {
        new.last_transition_time.clone_from(&now);
        new.last_update_time = now;
        conditions.push(new);
        return;
    };
    let same_status = old.status == new.status;
    new.last_transition_time = if same_status { old.last_transition_time.clone() } else { now.clone() };
    new.last_update_time.clone_from(&old.last_update_time);
    if *old != new {
        new.last_update_time = now;
        *old = new;
    }
}

/// Takes the condition away: coreos' conditions are gone when they do not hold.
pub fn clear(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn times(condition: &Condition) -> (i64, i64) {
        let second = |time: &Option<Time>| time.as_ref().unwrap().0.as_second();
        (second(&condition.last_transition_time), second(&condition.last_update_time))
    }

    #[test]
    fn times_move_only_with_what_they_speak_of() {
        use ConditionStatus::{False, True};
        let mut conditions = vec![];
        let cases = [
            (Condition::new(READY, False, reason::CREATING, "1 of 3"), 10, (10, 10)),
            (Condition::new(READY, False, reason::CREATING, "1 of 3"), 20, (10, 10)),
            (Condition::new(READY, False, reason::CREATING, "2 of 3"), 30, (10, 30)),
            (Condition::new(READY, True, reason::ALL_MEMBERS_HEALTHY, ""), 40, (40, 40)),
            (Condition::new(READY, True, reason::ALL_MEMBERS_HEALTHY, "").observed(Some(2)), 50, (40, 50)),
        ];
        for (condition, now, expected) in cases {
            set(&mut conditions, condition, at(now));
            assert_eq!(conditions.len(), 1);
            assert_eq!(times(&conditions[0]), expected, "at {now}");
        }
    }

    #[test]
    fn conditions_come_and_go_by_type() {
        let mut conditions = vec![];
        set(
            &mut conditions,
            Condition::new(AVAILABLE, ConditionStatus::True, book::CLUSTER_AVAILABLE, ""),
            at(1),
        );
        let upgrading = book::upgrading_message("3.2.13");
        set(
            &mut conditions,
            Condition::new(UPGRADING, ConditionStatus::True, book::CLUSTER_UPGRADING, upgrading),
            at(2),
        );
        assert_eq!(find(&conditions, UPGRADING).unwrap().message, "upgrading to 3.2.13");
        clear(&mut conditions, UPGRADING);
        assert!(find(&conditions, UPGRADING).is_none());
        assert!(find(&conditions, AVAILABLE).is_some());
    }
}
