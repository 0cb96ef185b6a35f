//! Conditions in a status: set, removed, and kept still while nothing changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as StandardCondition, Time};

/// What the list needs to know of a condition type.
pub trait Condition {
    fn type_(&self) -> &str;
    fn status(&self) -> &str;
    /// Whether both say the same, their times aside.
    fn says_the_same(&self, other: &Self) -> bool;
    /// Takes over the time of the last change of status.
    fn keep_transition_time(&mut self, old: &Self);
}

impl Condition for StandardCondition {
    fn type_(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }

    fn says_the_same(&self, other: &Self) -> bool {
        let Self { type_, status, reason, message, observed_generation, last_transition_time: _ } = self;
        *type_ == other.type_
            && *status == other.status
            && *reason == other.reason
            && *message == other.message
            && *observed_generation == other.observed_generation
    }

    fn keep_transition_time(&mut self, old: &Self) {
        self.last_transition_time = old.last_transition_time.clone();
    }
}

/// Sets a condition, made as of now; true if the list changed. One that says nothing new leaves the list as it
/// is, its times included, so that an unchanged status is not written.
pub fn set<C: Condition>(conditions: &mut Vec<C>, mut new: C) -> bool {
    let Some(old) = conditions.iter_mut().find(|old| old.type_() == new.type_()) else {
        conditions.push(new);
        return true;
    };
    if old.says_the_same(&new) {
        return false;
    }
    if old.status() == new.status() {
        new.keep_transition_time(old);
    }
    *old = new;
    true
}

/// Removes a condition; true if it was there.
pub fn remove<C: Condition>(conditions: &mut Vec<C>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_() != type_);
    conditions.len() != before
}

pub fn find<'a, C: Condition>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.type_() == type_)
}

/// `True`, `False` and `Unknown`, as the API writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition of the standard shape, for an object of this generation.
pub fn condition(
    type_: &str,
    status: Status,
    reason: &str,
    message: impl Into<String>,
    generation: Option<i64>,
    now: Timestamp,
) -> StandardCondition {
    StandardCondition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: Time(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: Status, message: &str, now: i64) -> StandardCondition {
        condition("Ready", status, "Because", message, Some(3), at(now))
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut list = vec![condition("Other", Status::True, "R", "m", None, at(1))];
        assert!(set(&mut list, ready(Status::False, "a", 1)));
        assert!(!set(&mut list, ready(Status::False, "a", 2)), "nothing new");
        assert!(set(&mut list, ready(Status::False, "b", 3)), "a new message");
        assert_eq!(find(&list, "Ready"), Some(&ready(Status::False, "b", 1)));
        assert!(set(&mut list, ready(Status::True, "b", 4)));
        assert_eq!(find(&list, "Ready"), Some(&ready(Status::True, "b", 4)));
        assert_eq!(list.len(), 2, "and nothing else was touched");
    }

    #[test]
    fn a_new_generation_is_news() {
        let mut list = vec![ready(Status::True, "a", 1)];
        let newer = StandardCondition { observed_generation: Some(4), ..ready(Status::True, "a", 2) };
        assert!(set(&mut list, newer));
        assert_eq!(list[0].observed_generation, Some(4));
        assert_eq!(list[0].last_transition_time, Time(at(1)));
    }

    #[test]
    fn removal_tells_whether_there_was_something() {
        let mut list = vec![ready(Status::Unknown, "a", 1)];
        assert!(remove(&mut list, "Ready"));
        assert!(!remove(&mut list, "Ready"));
        assert!(list.is_empty());
    }
}
