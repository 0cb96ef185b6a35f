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
