//! The size differs: add what is missing, remove one that is too many.

use super::Decision;
use super::heal::hindered;
use super::join::{raised_budget, remove};
use crate::observation::{Member, Pod};
use crate::quorum;
use crate::report::Event;
use crate::room;
use crate::step::Step;
use crate::view::View;

pub fn scale(view: &View) -> Option<Decision> {
    let (members, size) = (view.members().len(), view.size());
    if members < size {
        grow(view, size - members)
    } else if view.voter_count() > view.wanted() {
        shrink(view)
    } else {
        None
    }
}

/// Adds members: learners where every member knows them, several at once where every member can. Their pods come first.
pub fn grow(view: &View, missing: usize) -> Option<Decision> {
    let versions: Option<Vec<_>> =
        view.voters().map(|voter| view.answer(voter).map(|status| status.version)).collect();
    let Some(versions) = versions.filter(|_| view.healthy_voters() == view.voter_count()) else {
        return Decision::wait("a member is to be added once every voter is healthy");
    };
    let learner = versions.iter().all(|version| version.has_learners());
    let several = versions.iter().all(|version| version.has_several_learners());
    let joining = view.members().iter().find(|member| member.learner || !member.started);
    if learner || joining.is_none() {
        let made = make_room(view, room::places(missing, learner, several), several);
        if made.is_some() {
            return made;
        }
    }
    if let Some(joining) = joining.filter(|_| !several) {
        return Decision::wait(format!("a member is to be added once {} has joined", joining.name));
    }
    // The second voter cannot be agreed on before it starts: nothing else leads from one to two without learners.
    let voters = view.voter_count();
    if !learner && voters > 1 && !quorum::survives_growth(voters, view.healthy_voters()) {
        return Decision::wait("a voter is to be added once a quorum of the larger cluster is healthy");
    }
    let room = view.waiting_room();
    let Some(names) = room.first().map(|pod| view.joins_with(pod)) else {
        return Decision::wait("no unused name for a new member was given");
    };
    let late = |pod: &&&Pod| names.contains(&&pod.name) && !view.reachable(pod);
    if let Some(pod) = room.iter().find(late) {
        return awaited(view, pod);
    }
    let budget = if learner { None } else { raised_budget(view) };
    let adds = names.iter().map(|name| {
        let add = Step::AddMember { name: (*name).clone(), learner };
        add.announcing([Event::new_member_added(name)])
    });
    Decision::act(
        format!("{} more to come, {} now", missing, names.len()),
        budget.map(Into::into).into_iter().chain(adds),
    )
}

fn make_room(view: &View, places: usize, several: bool) -> Option<Decision> {
    let (version, room) = (view.lowest_running()?, view.waiting_room());
    let names: Vec<_> = view.unused_names().take(places.saturating_sub(room.len())).collect();
    if names.is_empty() {
        return None;
    }
    let before: Vec<_> = room.iter().map(|pod| &pod.name).collect();
    Decision::act(
        "members that are to be added get their pods first",
        room::make_ahead(&names, version, view.members(), &before, several),
    )
}

/// Why a pod is not there yet.
fn awaited(view: &View, pod: &Pod) -> Option<Decision> {
    let name = &pod.name;
    match hindered(view, pod) {
        Some(hindrance) => Decision::stuck(format!("{name} is to be added: {hindrance}")),
        None => Decision::wait(format!("{name} is to be added once its pod can be reached")),
    }
}

/// Unhealthy voters go first, then those of an old template, then the newest; never the leader.
fn shrink(view: &View) -> Option<Decision> {
    if view.leader().is_none() {
        return Decision::wait("a member is to leave once a leader is known");
    }
    let mut candidates: Vec<_> = view.voters().filter(|voter| !view.leads(voter)).collect();
    let order = |voter: &&Member| {
        let pod = view.pod(&voter.name);
        let current = pod.is_some_and(|pod| !view.outdated(pod));
        let age = pod.map(|pod| pod.created);
        (view.healthy(voter), current, std::cmp::Reverse(age), voter.name.clone())
    };
    candidates.sort_by_key(order);
    let voter = candidates.first()?;
    let keep_up = view.voters().filter(|other| other.id != voter.id && view.healthy(other));
    if !view.survives_removal(voter) || !keep_up.into_iter().all(|other| view.caught_up(other)) {
        return Decision::wait(format!("{} is to leave once the others are healthy and keep up", voter.name));
    }
    Decision::act(format!("{} leaves", voter.name), remove(view, voter))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{NOW, Scene, healthy};
    use super::*;
    use crate::ids::MemberId;
    use crate::time::Moment;
    use crate::version::Version;

    #[rstest]
    #[case::fits(|_: &mut Scene| {}, "-")]
    #[case::one_more(|s: &mut Scene| s.spec.size = 4, "create x 3.5.16 in abcx")]
    #[case::two_more_one_by_one(|s: &mut Scene| s.spec.size = 5, "create x 3.5.16 in abcx, create y 3.5.16 in abcxy")]
    #[case::two_more_at_once(|s: &mut Scene| { s.run("3.6.16"); s.spec.size = 5; }, "create x 3.6.16 in abcxy, create y 3.6.16 in abcxy")]
    #[case::one_cannot_take_several(|s: &mut Scene| {
        s.run("3.6.16");
        s.run_one("b", "3.5.35");
        s.spec.size = 5;
    }, "create x 3.5.35 in abcx, create y 3.5.35 in abcxy")]
    #[case::one_after_the_other(|s: &mut Scene| { s.run("3.3.12"); s.spec.size = 5; }, "create x 3.3.12 in abcx")]
    #[case::a_voter_of_unknown_version(|s: &mut Scene| { s.silence("c", 1); s.spec.size = 4; }, "wait")]
    #[case::one_is_joining_with_a_vote(|s: &mut Scene| { s.spec.size = 5; s.list("d"); s.run("3.3.12"); }, "wait")]
    #[case::one_is_joining(|s: &mut Scene| { s.spec.size = 5; s.learner("d"); }, "create x 3.5.16 in abcdx")]
    #[case::name_in_use(|s: &mut Scene| { s.spec.size = 4; s.seen.fresh_names = vec!["a".into(), "y".into()]; }, "create y 3.5.16 in abcy")]
    #[case::newest_that_is_not_leader(|s: &mut Scene| s.spec.size = 2, "remove c, delete pod c")]
    #[case::newest_leads(|s: &mut Scene| { s.spec.size = 2; lead(s, "c"); }, "remove b, delete pod b")]
    #[case::unhealthy_first(|s: &mut Scene| { s.spec.size = 2; s.silence("b", 1); }, "remove b, delete pod b")]
    #[case::old_template_first(|s: &mut Scene| { s.spec.size = 1; s.pod("b").template = "old".into(); }, "remove b, delete pod b")]
    #[case::not_while_the_rest_could_not_agree(|s: &mut Scene| { s.spec.size = 1; s.silence("a", 1); s.silence("b", 1); }, "wait")]
    #[case::not_while_another_lags(|s: &mut Scene| { s.spec.size = 2; s.status("b").applied_index = 1; }, "wait")]
    #[case::no_leader_known(|s: &mut Scene| {
        s.spec.size = 2;
        for name in ["a", "b", "c"] {
            s.status(name).leader = None;
        }
    }, "wait")]
    fn cases(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!(scene.ask(scale), says);
    }

    #[rstest]
    #[case::ready(|s: &mut Scene| s.held("x", "abcx"), "add learner x")]
    #[case::no_address_yet(|s: &mut Scene| { s.held("x", "abcx"); s.pod("x").addressed = None; }, "wait")]
    #[case::dns_may_not_know_it_yet(|s: &mut Scene| { s.held("x", "abcx"); s.pod("x").addressed = Some(NOW); }, "wait")]
    #[case::no_such_image(|s: &mut Scene| {
        s.held("x", "abcx");
        (s.pod("x").addressed, s.pod("x").waiting) = (None, Some("ErrImagePull".into()));
    }, "stuck")]
    #[case::no_node_has_room(|s: &mut Scene| {
        s.held("x", "abcx");
        (s.pod("x").addressed, s.pod("x").node) = (None, None);
        s.pod("x").created = Moment(NOW.0 - 60_000);
    }, "stuck")]
    #[case::no_learners_before_3_4(|s: &mut Scene| { s.run("3.3.12"); s.held("x", "abcx"); }, "budget 3, add voter x")]
    #[case::never_a_learner_beside_3_3(|s: &mut Scene| {
        s.run("3.4.15");
        s.run_one("c", "3.3.12");
        s.held("x", "abcx");
        s.pod("x").version = Version::new(3, 3, 12);
    }, "budget 3, add voter x")]
    #[case::the_first_of_two(|s: &mut Scene| { s.held("y", "abcxy"); s.held("x", "abcx"); }, "add learner x")]
    #[case::two_at_once(|s: &mut Scene| {
        s.run("3.6.16");
        s.held("x", "abcxy");
        s.held("y", "abcxy");
    }, "add learner x, add learner y")]
    #[case::two_at_once_once_both_are_there(|s: &mut Scene| {
        s.run("3.6.16");
        s.held("x", "abcxy");
        s.held("y", "abcxy");
        s.pod("y").addressed = None;
    }, "wait")]
    #[case::after_the_one_that_joins(|s: &mut Scene| { s.learner("d"); s.held("x", "abcdx"); }, "wait")]
    #[case::beside_the_one_that_joins(|s: &mut Scene| {
        s.learner("d");
        s.run("3.6.16");
        s.held("x", "abcdx");
    }, "add learner x")]
    fn who_has_a_pod_is_added(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        scene.spec.size = u32::try_from(scene.seen.pods.len()).unwrap();
        assert_eq!(scene.ask(scale), says);
    }

    fn lead(scene: &mut Scene, leader: &str) {
        for name in ["a", "b", "c"] {
            scene.status(name).leader = Some(MemberId(u64::from(leader.as_bytes()[0])));
        }
    }

    #[test]
    fn one_becomes_two_without_learners() {
        let mut scene = healthy("a");
        scene.run("3.3.12");
        scene.spec.size = 2;
        scene.held("x", "ax");
        assert_eq!(scene.ask(scale), "budget 2, add voter x");
    }
}
