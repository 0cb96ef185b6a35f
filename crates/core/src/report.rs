//! What status, conditions and events say. Reasons of the book's conditions and events have spaces; ours are CamelCase.

use crate::ids::Name;
use crate::version::Version;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    pub phase: Phase,
    /// `status.reason`: why it is as it is, for a person; empty when all is well.
    pub reason: String,
    pub control_paused: bool,
    /// Voters and learners, as far as known.
    pub size: u32,
    pub ready: Vec<Name>,
    pub unready: Vec<Name>,
    /// Voters by name, to be recorded as `recorded.voters`.
    pub voters: Vec<Name>,
    pub leader: Option<Name>,
    /// The largest database of any member, in bytes.
    pub db_size: Option<u64>,
    /// The lowest version that runs.
    pub current_version: Option<Version>,
    /// The spec's version while the cluster is on its way there.
    pub target_version: Option<Version>,
    /// All that hold or deny something; a condition that is not here is taken out of status.
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    None,
    Creating,
    Running,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    pub kind: ConditionKind,
    pub status: Truth,
    pub reason: String,
    pub message: String,
    /// Publish an event with this reason and message whenever status or reason change.
    pub announce: Option<Severity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionKind {
    // The book's.
    Available,
    Scaling,
    Upgrading,
    Recovering,
    // Ours.
    Ready,
    Progressing,
    Degraded,
    QuorumLost,
    SpecInvalid,
    Restoring,
    Paused,
    /// A NOSPACE or CORRUPT alarm, or a database close to its quota.
    Alarm,
}

impl ConditionKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Scaling => "Scaling",
            Self::Upgrading => "Upgrading",
            Self::Recovering => "Recovering",
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::QuorumLost => "QuorumLost",
            Self::SpecInvalid => "SpecInvalid",
            Self::Restoring => "Restoring",
            Self::Paused => "Paused",
            Self::Alarm => "Alarm",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    True,
    False,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    Normal,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub severity: Severity,
    pub reason: String,
    pub message: String,
}

impl Event {
    fn normal(reason: &str, message: String) -> Self {
        Self { severity: Severity::Normal, reason: reason.to_owned(), message }
    }

    pub fn new_member_added(name: &Name) -> Self {
        Self::normal("New Member Added", format!("New member {name} added to cluster"))
    }

    pub fn member_removed(name: &Name) -> Self {
        Self::normal("Member Removed", format!("Existing member {name} removed from the cluster"))
    }

    pub fn replacing_dead_member(name: &Name) -> Self {
        Self::normal("Replacing Dead Member", format!("The dead member {name} is being replaced"))
    }

    pub fn no_backup(version: Version) -> Self {
        let message = format!(
            "no EtcdBackup names this cluster, or none that the operator may read: it goes to {version} without a fresh backup, and no way leads back"
        );
        Self { severity: Severity::Warning, reason: "No Backup".to_owned(), message }
    }

    pub fn member_upgraded(name: &Name, from: Version, to: Version) -> Self {
        Self::normal("Member Upgraded", format!("Member {name} upgraded from {from} to {to}"))
    }
}
