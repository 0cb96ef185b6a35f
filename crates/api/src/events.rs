//! Events: reasons and sentences. The first four are the ones that coreos printed and that the book shows.

/// How loud an event is; the value is what `kubectl describe` prints in the column Type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// What happened, ready to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

impl Event {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}

pub const NEW_MEMBER_ADDED: &str = "New Member Added";
pub const MEMBER_REMOVED: &str = "Member Removed";
pub const REPLACING_DEAD_MEMBER: &str = "Replacing Dead Member";
pub const MEMBER_UPGRADED: &str = "Member Upgraded";

pub const QUORUM_LOST: &str = "QuorumLost";
pub const QUORUM_REGAINED: &str = "QuorumRegained";
pub const SPEC_INVALID: &str = "SpecInvalid";
pub const UPGRADE_REFUSED: &str = "UpgradeRefused";
pub const IMAGE_UNUSABLE: &str = "ImageUnusable";
pub const ALARM_RAISED: &str = "AlarmRaised";
pub const DATABASE_NEARLY_FULL: &str = "DatabaseNearlyFull";

pub fn new_member_added(member: &str) -> Event {
    Event::normal(NEW_MEMBER_ADDED, format!("New member {member} added to cluster"))
}

pub fn member_removed(member: &str) -> Event {
    Event::normal(MEMBER_REMOVED, format!("Existing member {member} removed from the cluster"))
}

pub fn replacing_dead_member(member: &str) -> Event {
    Event::normal(REPLACING_DEAD_MEMBER, format!("The dead member {member} is being replaced"))
}

pub fn member_upgraded(member: &str, from: &str, to: &str) -> Event {
    Event::normal(MEMBER_UPGRADED, format!("Member {member} upgraded from {from} to {to}"))
}

/// `what` names the members that are missing and the next step for a person.
pub fn quorum_lost(what: &str) -> Event {
    Event::warning(QUORUM_LOST, what)
}

pub fn quorum_regained() -> Event {
    Event::normal(QUORUM_REGAINED, "A majority of members answers again: the cluster takes writes")
}

pub fn spec_invalid(why: &str) -> Event {
    Event::warning(SPEC_INVALID, why)
}

pub fn upgrade_refused(from: &str, to: &str, why: &str) -> Event {
    Event::warning(UPGRADE_REFUSED, format!("Cannot go from {from} to {to}: {why}"))
}

pub fn image_unusable(image: &str, why: &str) -> Event {
    Event::warning(
        IMAGE_UNUSABLE,
        format!(
            "Image {image} cannot be used: {why}. No member was touched; set another version, or the old one"
        ),
    )
}

/// `alarm` as etcd names it: NOSPACE or CORRUPT.
pub fn alarm_raised(alarm: &str, member: &str) -> Event {
    Event::warning(ALARM_RAISED, format!("Member {member} raised the alarm {alarm}"))
}

pub fn database_nearly_full(member: &str, percent: u64) -> Event {
    Event::warning(
        DATABASE_NEARLY_FULL,
        format!(
            "The database of member {member} fills {percent} % of its quota: compact and defragment, or raise \
             ETCD_QUOTA_BACKEND_BYTES in spec.pod.etcdEnv"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_events_keep_its_words() {
        for (event, reason, message) in [
            (new_member_added("X"), "New Member Added", "New member X added to cluster"),
            (member_removed("X"), "Member Removed", "Existing member X removed from the cluster"),
            (replacing_dead_member("X"), "Replacing Dead Member", "The dead member X is being replaced"),
            (
                member_upgraded("X", "3.1.10", "3.2.13"),
                "Member Upgraded",
                "Member X upgraded from 3.1.10 to 3.2.13",
            ),
        ] {
            assert_eq!(event, Event { severity: Severity::Normal, reason, message: message.into() });
        }
    }
}
