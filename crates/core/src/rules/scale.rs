//! The size differs: add what is missing, remove one that is too many.

use super::Decision;
use super::join::{raised_budget, remove};
use crate::observation::Member;
use crate::quorum;
use crate::report::Event;
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

/// Adds members: learners where every member knows them, several at once where every member can.
pub fn grow(view: &View, missing: usize) -> Option<Decision> {
    let versions: Option<Vec<_>> =
        view.voters().map(|voter| view.answer(voter).map(|status| status.version)).collect();
    let Some(versions) = versions.filter(|_| view.healthy_voters() == view.voter_count()) else {
        return Decision::wait("a member is to be added once every voter is healthy");
    };
    let learner = versions.iter().all(|version| version.has_learners());
    let several = versions.iter().all(|version| version.has_several_learners());
    if let Some(joining) = view.members().iter().find(|member| member.learner || !member.started)
        && !several
    {
        return Decision::wait(format!("a member is to be added once {} has joined", joining.name));
    }
    // The second voter cannot be agreed on before it starts: nothing else leads from one to two without learners.
    let voters = view.voter_count();
    if !learner && voters > 1 && !quorum::survives_growth(voters, view.healthy_voters()) {
        return Decision::wait("a voter is to be added once a quorum of the larger cluster is healthy");
    }
    let unused = view.seen.fresh_names.iter().filter(|name| {
        view.pod(name).is_none()
            && view.claim(name).is_none()
            && view.members().iter().all(|member| member.name != **name)
    });
    let names: Vec<_> = unused.take(if several { missing } else { 1 }).collect();
    if names.is_empty() {
        return Decision::wait("no unused name for a new member was given");
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

    use super::super::scene::{Scene, healthy};
    use super::*;
    use crate::ids::MemberId;

    #[rstest]
    #[case::fits(|_: &mut Scene| {}, "-")]
    #[case::one_more(|s: &mut Scene| s.spec.size = 4, "add learner x")]
    #[case::two_more_one_by_one(|s: &mut Scene| s.spec.size = 5, "add learner x")]
    #[case::two_more_at_once(|s: &mut Scene| { s.run("3.6.16"); s.spec.size = 5; }, "add learner x, add learner y")]
    #[case::one_cannot_take_several(|s: &mut Scene| {
        s.run("3.6.16");
        s.run_one("b", "3.5.35");
        s.spec.size = 5;
    }, "add learner x")]
    #[case::no_learners_before_3_4(|s: &mut Scene| { s.run("3.3.12"); s.spec.size = 4; }, "budget 3, add voter x")]
    #[case::never_a_learner_beside_3_3(|s: &mut Scene| {
        s.run("3.4.15");
        s.run_one("c", "3.3.12");
        s.spec.size = 4;
    }, "budget 3, add voter x")]
    #[case::a_voter_of_unknown_version(|s: &mut Scene| { s.silence("c", 1); s.spec.size = 4; }, "wait")]
    #[case::one_is_joining(|s: &mut Scene| { s.spec.size = 5; s.learner("d"); }, "wait")]
    #[case::one_is_joining_and_etcd_takes_several(|s: &mut Scene| {
        s.spec.size = 5;
        s.learner("d");
        s.run("3.6.16");
    }, "add learner x")]
    #[case::name_in_use(|s: &mut Scene| { s.spec.size = 4; s.seen.fresh_names = vec!["a".into(), "y".into()]; }, "add learner y")]
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
        assert_eq!(scene.ask(scale), "budget 2, add voter x");
    }
}
