//! The plan: what to do next, why, when to look again, and what to say.

use std::time::Duration;

use crate::report::Report;
use crate::step::Action;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The rule that spoke.
    pub rule: Rule,
    /// What this rule does or waits for, for logs and for a person.
    pub why: String,
    /// Applied in order; empty means wait.
    pub actions: Vec<Action>,
    /// Look again after this time even if nothing changes; `None`: only when something does.
    pub wake_after: Option<Duration>,
    pub report: Report,
}

/// The rules in order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    HandsOff,
    Bootstrap,
    QuorumLost,
    Unknown,
    Stray,
    ReplaceLost,
    Resume,
    Start,
    Promote,
    ReplaceUnresponsive,
    Serve,
    Scale,
    Upgrade,
    Template,
    Steady,
}

impl Rule {
    /// Stable, for logs, events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::HandsOff => "HandsOff",
            Self::Bootstrap => "Bootstrap",
            Self::QuorumLost => "QuorumLost",
            Self::Unknown => "Unknown",
            Self::Stray => "Stray",
            Self::ReplaceLost => "ReplaceLost",
            Self::Resume => "Resume",
            Self::Start => "Start",
            Self::Promote => "Promote",
            Self::ReplaceUnresponsive => "ReplaceUnresponsive",
            Self::Serve => "Serve",
            Self::Scale => "Scale",
            Self::Upgrade => "Upgrade",
            Self::Template => "Template",
            Self::Steady => "Steady",
        }
    }
}
