//! The plan: what to do next, why, when to look again, and what to say.

use std::time::Duration;

use crate::observation::Observation;
use crate::report::Report;
use crate::rules::{Decision, GATES, RULES};
use crate::spec::Spec;
use crate::status;
use crate::step::{Action, Step};
use crate::time::Moment;
use crate::view::View;

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
    Abandon,
    Resume,
    Start,
    Serve,
    Promote,
    ReplaceUnresponsive,
    Scale,
    Upgrade,
    Template,
    Settle,
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
            Self::Abandon => "Abandon",
            Self::Resume => "Resume",
            Self::Start => "Start",
            Self::Serve => "Serve",
            Self::Promote => "Promote",
            Self::ReplaceUnresponsive => "ReplaceUnresponsive",
            Self::Scale => "Scale",
            Self::Upgrade => "Upgrade",
            Self::Template => "Template",
            Self::Settle => "Settle",
            Self::Steady => "Steady",
        }
    }
}

/// Members are polled this often at rest: a lost quorum shows within ten seconds.
const POLL: Duration = Duration::from_secs(4);
/// And this often while something is under way.
const POLL_BUSY: Duration = Duration::from_millis(250);

/// The next steps for this cluster. Pure: the same arguments give the same plan.
pub fn plan(spec: &Spec, seen: &Observation, now: Moment) -> Plan {
    let view = View { spec, seen, now };
    let (rule, mut decision) = decide(&view);
    let report = status::report(&view, rule, &decision);
    if !seen.live && decision.actions.iter().any(|action| rests_on_absence(&action.step)) {
        decision.actions = vec![Step::ListLive.into()];
    }
    Plan {
        rule,
        wake_after: wake_after(rule, &decision),
        why: decision.why,
        actions: decision.actions,
        report,
    }
}

fn decide(view: &View) -> (Rule, Decision) {
    let spoken = |(rule, speak): &(Rule, crate::rules::RuleFn)| speak(view).map(|decision| (*rule, decision));
    if let Some(last_word) = GATES.iter().find_map(spoken) {
        return last_word;
    }
    let mut waiting = None;
    for (rule, decision) in RULES.iter().filter_map(spoken) {
        if !decision.actions.is_empty() {
            return (rule, decision);
        }
        // What needs a person is said before what passes by itself.
        let more_telling =
            waiting.as_ref().is_none_or(|(_, said): &(Rule, Decision)| decision.stuck && !said.stuck);
        if more_telling {
            waiting = Some((rule, decision));
        }
    }
    let steady =
        Decision { why: "the cluster is as the spec asks".to_owned(), actions: Vec::new(), stuck: false };
    waiting.unwrap_or((Rule::Steady, steady))
}

/// Steps that a stale cache could make wrong: whatever destroys, and whatever is made because something is not there.
fn rests_on_absence(step: &Step) -> bool {
    step.is_destructive()
        || matches!(
            step,
            Step::RecordSeed { .. }
                | Step::CreateSeed { .. }
                | Step::CreateMember { .. }
                | Step::ResumeMember { .. }
        )
}

fn wake_after(rule: Rule, decision: &Decision) -> Option<Duration> {
    match rule {
        _ if !decision.actions.is_empty() => Some(Duration::ZERO),
        Rule::HandsOff => None,
        Rule::Steady => Some(POLL),
        _ if decision.stuck => Some(POLL),
        _ => Some(POLL_BUSY),
    }
}
