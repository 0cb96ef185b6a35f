//! The runbook: every rule, in order of urgency.
//!
//! Gates come first, and the first gate that speaks has the last word; while it waits, only volumes that are to stay are set
//! free. After them the cluster has an identity and a quorum: the first rule that can act acts; if none can, the most urgent
//! one that waits says what for, one that needs a person before one that does not. A rule that must not act beside another
//! checks that itself: waiting never blocks what is safe to do.

pub mod bootstrap;
pub mod hands_off;
pub mod heal;
pub mod join;
pub mod precaution;
pub mod quorum;
pub mod restore;
pub mod retention;
pub mod rival;
mod rollout;
pub mod scale;
#[cfg(test)]
pub mod scene;
pub mod serve;
pub mod stray;
pub mod template;
pub mod upgrade;

use crate::plan::Rule;
use crate::step::Action;
use crate::view::View;

/// What a rule says: do this, or (without actions) wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub why: String,
    pub actions: Vec<Action>,
    /// Waiting will not end by itself: a person, or an edit, has to do something.
    pub stuck: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "rules return an Option, and these end them")]
impl Decision {
    pub fn act<A: Into<Action>>(
        why: impl Into<String>,
        actions: impl IntoIterator<Item = A>,
    ) -> Option<Self> {
        Some(Self { why: why.into(), actions: actions.into_iter().map(Into::into).collect(), stuck: false })
    }

    pub fn wait(why: impl Into<String>) -> Option<Self> {
        Some(Self { why: why.into(), actions: Vec::new(), stuck: false })
    }

    pub fn stuck(why: impl Into<String>) -> Option<Self> {
        Some(Self { why: why.into(), actions: Vec::new(), stuck: true })
    }
}

pub type RuleFn = fn(&View) -> Option<Decision>;

pub const GATES: [(Rule, RuleFn); 6] = [
    (Rule::HandsOff, hands_off::hands_off),
    (Rule::Rival, rival::rival),
    (Rule::Restore, restore::restore),
    (Rule::Bootstrap, bootstrap::bootstrap),
    (Rule::QuorumLost, quorum::lost),
    (Rule::Unknown, quorum::unknown),
];

pub const RULES: [(Rule, RuleFn); 14] = [
    (Rule::Stray, stray::stray),
    (Rule::ReplaceLost, heal::replace_lost),
    (Rule::Abandon, join::abandon),
    (Rule::Resume, heal::resume),
    (Rule::Start, join::start),
    (Rule::Serve, serve::serve),
    (Rule::Promote, join::promote),
    (Rule::ReplaceUnresponsive, heal::replace_unresponsive),
    (Rule::Scale, scale::scale),
    (Rule::Restore, restore::finish),
    (Rule::Upgrade, upgrade::upgrade),
    (Rule::Template, template::template),
    (Rule::Retention, retention::retention),
    (Rule::Settle, settle),
];

/// Everything is done, but not everybody is well yet.
fn settle(view: &View) -> Option<Decision> {
    view.unsettled().map(|who| Decision { why: who, actions: Vec::new(), stuck: false })
}
