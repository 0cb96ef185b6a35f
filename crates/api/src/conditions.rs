//! Conditions of an `EtcdCluster`, and how they change. Which there are, and in whose words, is decided where the plan is
//! made.
//!
//! Not Kubernetes' own type: coreos' conditions have `lastUpdateTime`, and reasons with spaces in them.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
            (Condition::new("Ready", False, "Creating", "1 of 3"), 10, (10, 10)),
            (Condition::new("Ready", False, "Creating", "1 of 3"), 20, (10, 10)),
            (Condition::new("Ready", False, "Creating", "2 of 3"), 30, (10, 30)),
            (Condition::new("Ready", True, "AllMembersHealthy", ""), 40, (40, 40)),
            (Condition::new("Ready", True, "AllMembersHealthy", "").observed(Some(2)), 50, (40, 50)),
        ];
        for (condition, now, expected) in cases {
            set(&mut conditions, condition, at(now));
            assert_eq!(conditions.len(), 1);
            assert_eq!(times(&conditions[0]), expected, "at {now}");
        }
    }
}
