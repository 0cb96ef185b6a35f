//! Members that are gone, that lost their pod, or that never answer.

use std::time::Duration;

use super::Decision;
use crate::observation::{Member, Pod, PodPhase};
use crate::report::Event;
use crate::step::{Action, Step};
use crate::view::{Data, View};

/// Its data is proven gone: remove the member by ID while the rest keep quorum. Scaling then adds a new one.
pub fn replace_lost(view: &View) -> Option<Decision> {
    let mut candidates = view.members().iter().filter(|member| lost(view, member));
    let first = candidates.next()?;
    let member = [first].into_iter().chain(candidates).find(|member| view.survives_removal(member));
    match member {
        Some(member) => Decision::act(
            format!("the data of {} is gone or going: it is removed and replaced", member.name),
            replace(view, member),
        ),
        None => Decision::wait(format!(
            "the data of {} is gone, and the others have no quorum to spare",
            first.name
        )),
    }
}

/// A learner that never started has nothing to lose: it is simply started. A voter that never started and cannot any more,
/// since the list changed meanwhile, is as good as gone; and so is one whose data goes with its pod.
fn lost(view: &View, member: &Member) -> bool {
    let had_data = member.started || !member.learner;
    let pod = view.pod(&member.name);
    let barred = !member.started && pod.is_some_and(|pod| view.stale(pod) && !pod.running());
    let going = pod.is_some_and(|pod| pod.deleting) && !view.persistent(&member.name);
    let gone = view.data(member) == Data::Gone;
    had_data && (gone || barred || going) && !view.may_start_empty(member)
}

/// A member leaves for another; its pod goes with it, its claim when the pod is gone.
fn replace(view: &View, member: &Member) -> Vec<Action> {
    let name = &member.name;
    let mut actions = vec![
        Step::RemoveMember { id: member.id, name: name.clone() }
            .announcing([Event::replacing_dead_member(name), Event::member_removed(name)]),
    ];
    actions.extend(delete_pod(view, member).map(Action::from));
    actions
}

/// The pod's graceful deletion, unless that is under way.
pub fn delete_pod(view: &View, member: &Member) -> Option<Step> {
    let pod = view.pod(&member.name).filter(|pod| !pod.deleting)?;
    Some(Step::DeletePod { name: pod.name.clone(), uid: pod.uid.clone() })
}

/// Its pod is gone and its volume is there: the same name on the same volume. Disarmed, it can only resume.
pub fn resume(view: &View) -> Option<Decision> {
    let mut steps = Vec::new();
    for member in view.members().iter().filter(|member| member.started) {
        let Some(claim) = view.claim(&member.name).filter(|claim| !claim.deleting) else { continue };
        match view.pod(&member.name) {
            Some(pod) if pod.finished() => steps.extend(delete_pod(view, member)),
            None if view.data(member) == Data::Exists => {
                let Some(version) = view.resume_version() else { continue };
                steps.push(Step::ResumeMember {
                    name: member.name.clone(),
                    version,
                    claim: claim.uid.clone(),
                });
            }
            _ => {}
        }
    }
    if steps.is_empty() {
        return None;
    }
    Decision::act("members whose volume is there get their pod back", steps)
}

/// It has its data and does not answer, for longer than we bear: with a volume it is restarted once, then it is
/// replaced under a new name. Not while its image or template is what fails.
pub fn replace_unresponsive(view: &View) -> Option<Decision> {
    let mut waiting = None;
    for member in view.members().iter().filter(|member| !view.answers(member)) {
        let starts_soon = view.may_start_empty(member) && view.pod(&member.name).is_none();
        if lost(view, member) || starts_soon {
            continue;
        }
        match silent(view, member) {
            Some(decision) if !decision.actions.is_empty() => return Some(decision),
            decision => waiting = waiting.or(decision),
        }
    }
    waiting
}

fn silent(view: &View, member: &Member) -> Option<Decision> {
    let name = &member.name;
    let silent_for = view.silent_for(member);
    // An image that fails is blamed at once; a pod that was made or changed just now is not.
    let image_fails = view.pod(name).is_some_and(Pod::image_fails);
    let knobs = &view.spec.knobs;
    let in_the_making = view.pod(name).is_some_and(Pod::in_the_making);
    let bears =
        if in_the_making { knobs.making_patience } else { Duration::ZERO }.max(knobs.unresponsive_after);
    if silent_for < bears && !image_fails {
        return Decision::wait(format!("{name} has not answered for {} s", silent_for.as_secs()));
    }
    if let Some(culprit) = suspect(view, member) {
        return Decision::stuck(format!("{name} does not answer: {culprit}"));
    }
    if !view.survives_removal(member) {
        return Decision::wait(format!("{name} does not answer, and the others have no quorum to spare"));
    }
    if let Some(restart) = restart_once(view, member) {
        return Decision::act(format!("{name} does not answer: it is restarted on its volume"), [restart]);
    }
    Decision::act(
        format!("{name} has not answered for {} s: it is replaced", silent_for.as_secs()),
        replace(view, member),
    )
}

/// Only where it can help: the volume keeps the data, the node takes orders, and it was not done since we last heard.
fn restart_once(view: &View, member: &Member) -> Option<Step> {
    let pod = view.pod(&member.name)?;
    let heard = view.seen.heard.get(&member.name)?;
    let helps = view.outlives_pod(pod) && !pod.deleting && !pod.node_lost() && pod.changed <= *heard;
    (helps && member.started).then(|| delete_pod(view, member)).flatten()
}

/// What to blame instead of the member, if there is something: replacing it would not help.
fn suspect(view: &View, member: &Member) -> Option<String> {
    let pod = view.pod(&member.name)?;
    let on_live_node = !pod.node_lost() && !pod.deleting && !pod.finished();
    if !on_live_node {
        return None;
    }
    if let Some(hindrance) = hindrance(pod, member.started) {
        return Some(hindrance);
    }
    // Not heard of since it was changed, and nobody else runs the like: the change is what fails. An operator that has
    // just begun does not know when it was changed.
    let answered = view.seen.answered.contains(&pod.uid);
    if answered && view.seen.heard.get(&member.name).is_some_and(|heard| *heard > pod.changed) {
        return None;
    }
    let others = || view.members().iter().filter(|other| other.id != member.id);
    if !others().filter_map(|other| view.answer(other)).any(|status| status.version == pod.version) {
        return Some(format!(
            "it did not come back on {}: set the version back, or delete its pod and claim to have it replaced",
            pod.version
        ));
    }
    let template_runs =
        others().filter(|other| view.answers(other)).filter_map(|other| view.pod(&other.name));
    if !template_runs.into_iter().any(|other| other.template == pod.template) {
        return Some("it did not come back with the changed pod template: set that back, or delete its pod and claim to have it replaced".to_owned());
    }
    None
}

/// What keeps a pod from starting that has nothing to do with its member. One that was placed before is replaced instead.
fn hindrance(pod: &Pod, placed_before: bool) -> Option<String> {
    if pod.image_fails() {
        let reason = pod.waiting.as_deref().unwrap_or_default();
        return Some(format!(
            "the image of {} cannot be pulled ({reason}): set another version",
            pod.version
        ));
    }
    let unplaced = pod.phase == PodPhase::Pending && pod.node.is_none() && !placed_before;
    unplaced.then(|| "its pod cannot be scheduled: look at the pod's events".to_owned())
}

/// The same of a pod that never ran, once it is clear that it does not pass by itself.
pub fn hindered(view: &View, pod: &Pod) -> Option<String> {
    let late = view.now.since(pod.created) >= view.spec.knobs.unresponsive_after;
    hindrance(pod, false).filter(|_| late || pod.image_fails())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    use super::super::scene::{NOW, Scene, healthy, on_volumes};
    use crate::observation::{NodeState, PodPhase};
    use crate::time::Moment;
    use crate::version::Version;

    #[rstest]
    #[case::well(|_: &mut Scene| {}, "-")]
    #[case::pod_gone(|s: &mut Scene| s.lose_pod("b"), "remove b")]
    #[case::pod_gone_from_a_silent_node(|s: &mut Scene| {
        s.lose_pod("b");
        s.seen.last_nodes.insert("b".into(), NodeState::NotReady);
    }, "-")]
    #[case::pod_gone_and_its_node_could_not_be_read(|s: &mut Scene| {
        s.lose_pod("b");
        s.seen.last_nodes.insert("b".into(), NodeState::Unread);
    }, "-")]
    #[case::pod_gone_and_nodes_may_not_be_read(|s: &mut Scene| {
        s.lose_pod("b");
        s.seen.last_nodes.insert("b".into(), NodeState::Unknown);
    }, "remove b")]
    #[case::evicted(|s: &mut Scene| { s.silence("b", 1); s.pod("b").phase = PodPhase::Failed; }, "remove b, delete pod b")]
    #[case::being_deleted(|s: &mut Scene| { s.silence("b", 1); s.pod("b").deleting = true; }, "remove b")]
    #[case::two_are_being_deleted(|s: &mut Scene| { s.pod("b").deleting = true; s.pod("c").deleting = true; }, "wait")]
    #[case::cannot_be_heard(|s: &mut Scene| s.silence("b", 1000), "-")]
    #[case::two_gone(|s: &mut Scene| { s.lose_pod("b"); s.lose_pod("c"); }, "wait")]
    #[case::learner_gone(|s: &mut Scene| { s.learner("d"); s.lose_pod("d"); }, "remove d")]
    #[case::unstarted_learner(|s: &mut Scene| s.unstarted_learner("d"), "-")]
    #[case::made_before_the_spec_spoke_of_volumes(|s: &mut Scene| {
        s.silence("b", 1);
        s.spec.storage = crate::spec::Storage::Persistent;
    }, "-")]
    #[case::voter_that_may_have_voted(|s: &mut Scene| s.list("d"), "remove d")]
    fn lost_on_empty_dir(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!(scene.ask(replace_lost), says);
    }

    #[rstest]
    #[case::pod_gone(|s: &mut Scene| s.lose_pod("b"), "-", "resume b 3.5.16")]
    #[case::two_pods_gone(|s: &mut Scene| { s.lose_pod("b"); s.lose_pod("c"); }, "-", "resume b 3.5.16, resume c 3.5.16")]
    #[case::claim_gone(|s: &mut Scene| { s.lose_pod("b"); s.seen.claims.remove(1); }, "remove b", "-")]
    #[case::claim_goes(|s: &mut Scene| { s.lose_pod("b"); s.claim("b").deleting = true; }, "-", "-")]
    #[case::claim_made_anew_by_hand(|s: &mut Scene| {
        s.silence("b", 1);
        s.claim("b").uid = "other".into();
    }, "remove b, delete pod b", "-")]
    #[case::evicted(|s: &mut Scene| { s.silence("b", 1); s.pod("b").phase = PodPhase::Failed; }, "-", "delete pod b")]
    #[case::may_run_unseen(|s: &mut Scene| {
        s.lose_pod("b");
        s.seen.last_nodes.insert("b".into(), NodeState::NotReady);
    }, "-", "-")]
    #[case::node_could_not_be_read(|s: &mut Scene| {
        s.lose_pod("b");
        s.seen.last_nodes.insert("b".into(), NodeState::Unread);
    }, "-", "-")]
    #[case::in_mid_upgrade(|s: &mut Scene| { s.run_one("c", "3.6.16"); s.lose_pod("c"); }, "-", "resume c 3.5.16")]
    fn on_a_volume(#[case] change: fn(&mut Scene), #[case] gone: &str, #[case] back: &str) {
        let mut scene = on_volumes("abc");
        change(&mut scene);
        assert_eq!((scene.ask(replace_lost).as_str(), scene.ask(resume).as_str()), (gone, back));
    }

    #[rstest]
    #[case::well(|_: &mut Scene| {}, "-", "-")]
    #[case::for_a_moment(|s: &mut Scene| s.silence("b", 59), "wait", "wait")]
    #[case::too_long(|s: &mut Scene| s.silence("b", 60), "remove b, delete pod b", "delete pod b")]
    #[case::silent_in_an_outage_that_just_ended(|s: &mut Scene| {
        s.silence("b", 600);
        s.seen.listed_since = Some(Moment(NOW.0 - 59_000));
    }, "wait", "wait")]
    #[case::silent_ever_since_an_outage(|s: &mut Scene| {
        s.silence("b", 600);
        s.seen.listed_since = Some(Moment(NOW.0 - 60_000));
    }, "remove b, delete pod b", "delete pod b")]
    #[case::sooner_where_asked(|s: &mut Scene| {
        s.silence("b", 20);
        s.spec.knobs.unresponsive_after = Duration::from_secs(20);
    }, "remove b, delete pod b", "delete pod b")]
    #[case::restarted_since(|s: &mut Scene| {
        s.silence("b", 200);
        s.pod("b").changed = Moment(NOW.0 - 100_000);
    }, "remove b, delete pod b", "remove b, delete pod b")]
    #[case::restarted_just_now(|s: &mut Scene| {
        s.silence("b", 200);
        s.pod("b").changed = Moment(NOW.0 - 30_000);
    }, "wait", "wait")]
    #[case::image_still_being_pulled(|s: &mut Scene| {
        s.silence("b", 299);
        s.pod("b").phase = PodPhase::Pending;
    }, "wait", "wait")]
    #[case::image_never_pulled(|s: &mut Scene| {
        s.silence("b", 300);
        s.pod("b").phase = PodPhase::Pending;
    }, "remove b, delete pod b", "delete pod b")]
    #[case::finds_no_node(|s: &mut Scene| {
        s.silence("b", 61);
        s.pod("b").phase = PodPhase::Pending;
        s.pod("b").node = None;
    }, "remove b, delete pod b", "delete pod b")]
    #[case::node_down(|s: &mut Scene| {
        s.silence("b", 61);
        s.pod("b").node.as_mut().unwrap().state = NodeState::NotReady;
    }, "remove b, delete pod b", "remove b, delete pod b")]
    #[case::node_could_not_be_read(|s: &mut Scene| {
        s.silence("b", 61);
        s.pod("b").node.as_mut().unwrap().state = NodeState::Unread;
    }, "remove b, delete pod b", "delete pod b")]
    #[case::stuck_in_deletion(|s: &mut Scene| {
        s.silence("b", 61);
        s.pod("b").deleting = true;
    }, "-", "remove b")]
    #[case::two_are_silent(|s: &mut Scene| { s.silence("b", 61); s.silence("c", 61); }, "wait", "wait")]
    #[case::image_cannot_be_pulled(|s: &mut Scene| {
        s.silence("b", 600);
        s.pod("b").waiting = Some("ImagePullBackOff".into());
    }, "stuck", "stuck")]
    #[case::image_cannot_be_pulled_from_the_start(|s: &mut Scene| {
        s.silence("b", 1);
        s.pod("b").waiting = Some("ErrImagePull".into());
    }, "stuck", "stuck")]
    #[case::upgraded_just_now(|s: &mut Scene| {
        s.crash("b", 1);
        s.pod("b").version = Version::new(3, 6, 16);
        s.pod("b").changed = Moment(NOW.0 - 1_000);
    }, "wait", "wait")]
    #[case::never_came_back_from_its_upgrade(|s: &mut Scene| {
        s.crash("b", 600);
        s.pod("b").version = Version::new(3, 6, 16);
        s.pod("b").changed = Moment(NOW.0 - 600_000);
    }, "stuck", "stuck")]
    #[case::never_came_back_from_its_upgrade_by_an_operator_before(|s: &mut Scene| {
        s.crash("b", 61);
        s.pod("b").version = Version::new(3, 6, 16);
        s.seen.answered.remove(&"pod-b".into());
    }, "stuck", "stuck")]
    #[case::ran_on_the_new_version(|s: &mut Scene| {
        s.silence("b", 61);
        s.pod("b").version = Version::new(3, 6, 16);
    }, "remove b, delete pod b", "delete pod b")]
    #[case::never_came_back_with_its_template(|s: &mut Scene| {
        s.crash("b", 600);
        s.pod("b").template = "bad".into();
        s.pod("b").changed = Moment(NOW.0 - 600_000);
    }, "stuck", "stuck")]
    #[case::never_came_back_with_the_template_of_an_operator_before(|s: &mut Scene| {
        s.crash("b", 61);
        s.pod("b").template = "bad".into();
        s.seen.answered.remove(&"pod-b".into());
    }, "stuck", "stuck")]
    #[case::silent_before_this_operator_began(|s: &mut Scene| {
        s.silence("b", 61);
        s.seen.answered.remove(&"pod-b".into());
    }, "remove b, delete pod b", "delete pod b")]
    #[case::learner(|s: &mut Scene| { s.learner("d"); s.silence("d", 61); }, "remove d, delete pod d", "delete pod d")]
    fn silent(#[case] change: fn(&mut Scene), #[case] on_empty_dir: &str, #[case] on_volume: &str) {
        for (mut scene, says) in [(healthy("abc"), on_empty_dir), (on_volumes("abc"), on_volume)] {
            change(&mut scene);
            assert_eq!(scene.ask(replace_unresponsive), says);
        }
    }
}
