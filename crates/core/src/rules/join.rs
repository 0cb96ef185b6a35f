//! Members on their way in: those no longer wanted leave, those added get a pod, those caught up get a vote.

use super::Decision;
use super::heal::delete_pod;
use crate::observation::Member;
use crate::quorum;
use crate::report::Event;
use crate::step::{Action, Step};
use crate::version::Version;
use crate::view::View;

/// More members than wanted, and some have not joined yet: these leave first, so that a change of mind counts at once.
pub fn abandon(view: &View) -> Option<Decision> {
    if view.members().len() <= view.wanted() {
        return None;
    }
    let mut joining: Vec<_> =
        view.members().iter().filter(|member| member.learner || !member.started).collect();
    joining.sort_by_key(|member| (view.answers(member), member.started));
    let member = joining.into_iter().find(|member| view.survives_removal(member))?;
    Decision::act(format!("{} is not needed any more", member.name), remove(view, member))
}

/// The member leaves, its pod with it.
pub fn remove(view: &View, member: &Member) -> Vec<Action> {
    let step = Step::RemoveMember { id: member.id, name: member.name.clone() };
    let leave = step.announcing([Event::member_removed(&member.name)]);
    [leave].into_iter().chain(delete_pod(view, member).map(Action::from)).collect()
}

/// A member was added and has not started: create its pod from the list as it is now, or mend the pod it has.
pub fn start(view: &View) -> Option<Decision> {
    let version = view.lowest_running()?;
    let joining = view.members().iter().filter(|member| !member.started && !view.answers(member));
    let steps: Vec<_> = joining.filter_map(|member| start_one(view, member, version)).collect();
    if steps.is_empty() {
        return None;
    }
    Decision::act("members that were added get a pod that can start", steps)
}

fn start_one(view: &View, member: &Member, version: Version) -> Option<Step> {
    if !view.may_start_empty(member) {
        return None;
    }
    let Some(pod) = view.pod(&member.name) else {
        let claim_goes = view.claim(&member.name).is_some_and(|claim| claim.deleting);
        return (!claim_goes && !view.may_run_unseen(&member.name)).then(|| Step::CreateMember {
            name: member.name.clone(),
            version,
            peers: View::peers(view.members()),
            joining: Vec::new(),
        });
    };
    let renewable = member.learner || view.claim(&member.name).is_some() || view.voter_count() == 2;
    if !renewable || pod.deleting {
        return None;
    }
    let hopeless = pod.finished() || view.stale(pod) || view.unbacked(pod);
    if hopeless || (!pod.running() && (view.outdated(pod) || !pod.armed)) {
        return delete_pod(view, member);
    }
    (!pod.running() && view.image_differs(pod, version)).then(|| Step::PatchImage {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        version,
    })
}

/// A learner that answers for itself and has caught up gets its vote. It is disarmed before: a voter never starts
/// empty. The budget is raised before, so that no drain counts on the old quorum.
pub fn promote(view: &View) -> Option<Decision> {
    let voters = view.voter_count();
    let learner = view.learners().find(|learner| ready_to_vote(view, learner));
    let Some(learner) = learner.filter(|_| voters < view.wanted()) else {
        let joining = view.members().iter().find(|member| member.learner || !member.started)?;
        return Decision::wait(format!("{} is joining", joining.name));
    };
    if !quorum::survives_growth(voters, view.healthy_voters() + 1) {
        return Decision::wait(format!("{} could vote, and too few voters are healthy", learner.name));
    }
    let mut steps = Vec::new();
    if let Some(pod) = view.pod(&learner.name).filter(|pod| pod.armed) {
        let (name, uid) = (pod.name.clone(), pod.uid.clone());
        steps.push(Step::MarkPod { name, uid, disarm: true, serve: false });
    }
    steps.extend(raised_budget(view));
    steps.push(Step::Promote { id: learner.id, name: learner.name.clone() });
    Decision::act(format!("{} has caught up: it becomes a voter", learner.name), steps)
}

/// Old etcd may promote a learner that never started: it has to answer itself.
fn ready_to_vote(view: &View, learner: &Member) -> bool {
    let follows = view.answer(learner).is_some_and(|status| status.leader.is_some());
    let stays = view.pod(&learner.name).is_some_and(|pod| !pod.deleting);
    learner.started && follows && stays && view.caught_up(learner)
}

/// The budget for one voter more than there are, if it is lower.
pub fn raised_budget(view: &View) -> Option<Step> {
    let min_available = u32::try_from(quorum::quorum(view.voter_count() + 1)).unwrap_or(u32::MAX);
    let lower = view.seen.budget.is_none_or(|budget| budget < min_available);
    lower.then_some(Step::SetBudget { min_available })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{Scene, healthy};
    use super::*;
    use crate::version::Version;

    #[rstest]
    #[case::none(|_: &mut Scene| {}, "-", "-", "-")]
    #[case::added(|s: &mut Scene| { s.spec.size = 4; s.unstarted_learner("d"); }, "-", "create d 3.5.16 in abcd", "wait")]
    #[case::two_added(|s: &mut Scene| {
        s.spec.size = 5;
        s.unstarted_learner("d");
        s.unstarted_learner("e");
    }, "-", "create d 3.5.16 in abcde, create e 3.5.16 in abcde", "wait")]
    #[case::lowest_version_for_joiners(|s: &mut Scene| {
        s.spec.size = 4;
        s.run_one("a", "3.5.35");
        s.unstarted_learner("d");
    }, "-", "create d 3.5.16 in abcd", "wait")]
    #[case::caught_up(|s: &mut Scene| { s.spec.size = 4; s.learner("d"); }, "-", "-", "mark d disarm, budget 3, promote d")]
    #[case::disarmed_already(|s: &mut Scene| {
        s.spec.size = 4;
        s.learner("d");
        s.pod("d").armed = false;
        s.seen.budget = Some(3);
    }, "-", "-", "promote d")]
    #[case::far_behind(|s: &mut Scene| { s.spec.size = 4; s.learner("d"); s.status("d").applied_index = 10; }, "-", "-", "wait")]
    #[case::does_not_answer_itself(|s: &mut Scene| { s.spec.size = 4; s.learner("d"); s.silence("d", 1); }, "-", "-", "wait")]
    #[case::too_few_healthy(|s: &mut Scene| {
        s.spec.size = 4;
        s.learner("d");
        s.silence("b", 1);
        s.silence("c", 1);
    }, "-", "-", "wait")]
    #[case::no_longer_wanted(|s: &mut Scene| s.learner("d"), "remove d, delete pod d", "-", "wait")]
    #[case::unstarted_goes_before_started(|s: &mut Scene| {
        s.spec.size = 4;
        s.learner("d");
        s.unstarted_learner("e");
    }, "remove e", "create e 3.5.16 in abcde", "mark d disarm, budget 3, promote d")]
    #[case::stale_list(|s: &mut Scene| {
        s.spec.size = 5;
        joining(s);
        s.unstarted_learner("e");
    }, "-", "delete pod d, create e 3.5.16 in abcde", "wait")]
    #[case::template_corrected(|s: &mut Scene| { joining(s); s.spec.template = "t1".into(); }, "-", "delete pod d", "wait")]
    #[case::wrong_image(|s: &mut Scene| { joining(s); s.pod("d").version = Version::new(3, 5, 35); }, "-", "image d 3.5.16", "wait")]
    #[case::still_starting(joining, "-", "-", "wait")]
    fn cases(
        #[case] change: fn(&mut Scene),
        #[case] leaves: &str,
        #[case] starts: &str,
        #[case] votes: &str,
    ) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!(
            (scene.ask(abandon).as_str(), scene.ask(start).as_str(), scene.ask(promote).as_str()),
            (leaves, starts, votes)
        );
    }

    /// `d` is a learner whose pod waits to start.
    fn joining(scene: &mut Scene) {
        scene.spec.size = scene.spec.size.max(4);
        scene.learner("d");
        scene.member("d").started = false;
        scene.silence("d", 1);
        scene.pod("d").waiting = Some("PodInitializing".into());
    }

    #[rstest]
    #[case::may_have_voted(3, "-")]
    #[case::second_of_two(1, "create d 3.5.16 in ad")]
    fn an_unstarted_voter(#[case] voters: usize, #[case] says: &str) {
        let mut scene = healthy(&"abc"[..voters]);
        scene.list("d");
        assert_eq!(scene.ask(start), says);
    }
}
