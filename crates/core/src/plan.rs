//! The plan: what to do next, why, when to look again, and what to say.

use std::time::Duration;

use crate::observation::Observation;
use crate::report::Report;
use crate::rules::{Decision, GATES, RULES, retention};
use crate::spec::Spec;
use crate::status;
use crate::step::{Action, Step};
use crate::time::Moment;
use crate::view::{View, set_aside};

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
    /// Nobody answered just now, as in an election, and somebody did a moment ago: not worth writing status yet.
    pub passing: bool,
}

/// The rules in order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    HandsOff,
    Rival,
    Restore,
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
    Retention,
    Settle,
    Steady,
}

impl Rule {
    /// Stable, for logs, events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::HandsOff => "HandsOff",
            Self::Rival => "Rival",
            Self::Restore => "Restore",
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
            Self::Retention => "Retention",
            Self::Settle => "Settle",
            Self::Steady => "Steady",
        }
    }
}

/// Members are polled this often at rest: a lost quorum shows within ten seconds.
const POLL: Duration = Duration::from_secs(3);
/// And this often while something is under way.
const POLL_BUSY: Duration = Duration::from_millis(250);

/// The next steps for this cluster. Pure: the same arguments give the same plan.
pub fn plan(spec: &Spec, seen: &Observation, now: Moment) -> Plan {
    let (visible, kept) = set_aside(seen);
    let view = View { spec, seen: &visible, kept: &kept, now };
    let (rule, mut decision) = decide(&view);
    let report = status::report(&view, rule, &decision);
    if !seen.live && decision.actions.iter().any(|action| rests_on_absence(&action.step)) {
        decision.actions = vec![Step::ListLive.into()];
    }
    let passing = rule == Rule::Unknown && view.silent_for_a_moment();
    Plan {
        rule,
        passing,
        wake_after: wake_after(&view, rule, &decision),
        why: decision.why,
        actions: decision.actions,
        report,
    }
}

fn decide(view: &View) -> (Rule, Decision) {
    let spoken = |(rule, speak): &(Rule, crate::rules::RuleFn)| speak(view).map(|decision| (*rule, decision));
    if let Some(last_word) = GATES.iter().find_map(spoken) {
        // Who waits for a quorum may delete the cluster to make it anew: no reason to let its volumes go with it.
        let may_act = last_word.1.actions.is_empty() && !matches!(last_word.0, Rule::HandsOff | Rule::Rival);
        let released = if may_act { retention::release(view) } else { None };
        return released.map_or(last_word, |released| (Rule::Retention, released));
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
                | Step::CreateRestoredSeed { .. }
                | Step::SwapCluster { .. }
                | Step::CreateMember { .. }
                | Step::ResumeMember { .. }
        )
}

fn wake_after(view: &View, rule: Rule, decision: &Decision) -> Option<Duration> {
    match rule {
        _ if !decision.actions.is_empty() => Some(Duration::ZERO),
        Rule::HandsOff => None,
        Rule::Steady => Some(POLL),
        _ if decision.stuck => Some(POLL),
        // A backup may take long to download.
        Rule::Restore => Some(POLL_BUSY),
        _ if in_vain(view) => Some(POLL),
        _ => Some(POLL_BUSY),
    }
}

/// Somebody is silent, and nothing new was heard or seen of anyone silent for longer than a pod may take to be made.
fn in_vain(view: &View) -> bool {
    let silent = view.seen.heard.iter().filter(|(name, _)| view.status(name).is_none());
    let news = silent.map(|(name, heard)| view.pod(name).map_or(*heard, |pod| pod.changed.max(*heard)));
    news.max().is_some_and(|news| view.now.since(news) >= view.spec.knobs.making_patience)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::rules::scene::{NOW, Scene, healthy, on_volumes};

    fn planned(scene: &Scene) -> Plan {
        plan(&scene.spec, &scene.seen, NOW)
    }

    fn hush(scene: &mut Scene, seconds: u64) {
        for name in ["a", "b", "c"] {
            scene.silence(name, seconds);
        }
    }

    #[rstest]
    #[case::steady(|_: &mut Scene| {}, Rule::Steady, Some(POLL))]
    #[case::paused(|s: &mut Scene| s.spec.paused = true, Rule::HandsOff, None)]
    #[case::lost_and_too_small(|s: &mut Scene| { s.lose_pod("b"); s.spec.size = 5; }, Rule::ReplaceLost, Some(Duration::ZERO))]
    #[case::waiting(|s: &mut Scene| s.silence("b", 5), Rule::ReplaceUnresponsive, Some(POLL_BUSY))]
    #[case::a_person_first(|s: &mut Scene| { s.silence("b", 5); s.want("3.4.1"); }, Rule::Upgrade, Some(POLL))]
    #[case::change_of_mind(|s: &mut Scene| { s.learner("d"); s.want("3.5.17"); }, Rule::Abandon, Some(Duration::ZERO))]
    #[case::election(|s: &mut Scene| s.blind(), Rule::Unknown, Some(POLL_BUSY))]
    #[case::outage(|s: &mut Scene| { s.dark(); hush(s, 10); }, Rule::Unknown, Some(POLL_BUSY))]
    #[case::outage_for_long(|s: &mut Scene| { s.dark(); hush(s, 300); }, Rule::Unknown, Some(POLL))]
    #[case::one_of_them_came_back_just_now(|s: &mut Scene| {
        s.dark();
        hush(s, 300);
        s.pod("b").changed = NOW;
    }, Rule::Unknown, Some(POLL_BUSY))]
    #[case::quorum_lost_for_long(|s: &mut Scene| {
        s.lose_pod("b");
        s.lose_pod("c");
        s.dark();
        hush(s, 300);
    }, Rule::QuorumLost, Some(POLL))]
    fn the_most_urgent_rule_speaks(
        #[case] change: fn(&mut Scene),
        #[case] rule: Rule,
        #[case] wake: Option<Duration>,
    ) {
        let mut scene = healthy("abc");
        change(&mut scene);
        let plan = planned(&scene);
        assert_eq!((plan.rule, plan.wake_after), (rule, wake), "{}", plan.why);
    }

    #[rstest]
    #[case::removal(|s: &mut Scene| s.lose_pod("b"))]
    #[case::scale_down(|s: &mut Scene| s.spec.size = 1)]
    #[case::resume(|s: &mut Scene| { *s = on_volumes("abc"); s.lose_pod("b"); })]
    #[case::creation(|s: &mut Scene| { s.spec.size = 4; s.unstarted_learner("d"); })]
    fn nothing_that_a_cache_could_spoil_is_done_from_one(#[case] change: fn(&mut Scene)) {
        let mut scene = healthy("abc");
        change(&mut scene);
        scene.seen.live = false;
        let steps: Vec<_> = planned(&scene).actions.into_iter().map(|action| action.step).collect();
        assert_eq!(steps, [Step::ListLive]);
        scene.seen.live = true;
        assert!(planned(&scene).actions.iter().any(|action| rests_on_absence(&action.step)));
    }

    #[test]
    fn a_moment_of_silence_is_not_news() {
        let mut scene = healthy("abc");
        scene.dark();
        assert!(planned(&scene).passing);
        scene.seen.last_listed = Moment(NOW.0 - 7000);
        assert!(!planned(&scene).passing);
    }

    #[test]
    fn members_that_answer_and_no_quorum_that_does_are_news_after_a_moment() {
        let mut scene = healthy("abc");
        scene.blind();
        assert!(planned(&scene).passing);
        scene.seen.last_listed = Moment(NOW.0 - 7000);
        assert!(!planned(&scene).passing);
    }
}
