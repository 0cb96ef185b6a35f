//! What upgrades and template changes share: one member at a time, followers first, the leader moved before its turn.

use super::Decision;
use crate::observation::Member;
use crate::step::Step;
use crate::view::View;

/// The next of `members` to go: followers by name, the leader last.
pub fn next<'a>(view: &View, members: impl Iterator<Item = &'a Member>) -> Option<&'a Member> {
    members.min_by_key(|member| (view.leads(member), member.name.clone()))
}

/// A restart of this member is bearable: a quorum of others is healthy, or there never can be one.
pub fn bearable(view: &View, member: &Member) -> bool {
    view.voter_count() <= 2 || view.survives_restart(member)
}

/// Leadership goes to a healthy follower that keeps up, one that is done already if there is one. Old etcd has no
/// such call and hands over when it is told to end.
pub fn move_leader(view: &View, leader: &Member, done: impl Fn(&Member) -> bool) -> Option<Decision> {
    let status = view.answer(leader)?;
    if !view.leads(leader) || !status.version.moves_leader() {
        return None;
    }
    let heirs = view.voters().filter(|voter| {
        voter.id != leader.id && voter.started && view.healthy(voter) && view.caught_up(voter)
    });
    let heir = heirs.min_by_key(|heir| (!done(heir), heir.name.clone()))?;
    Decision::act(
        format!("leadership moves from {} to {}", leader.name, heir.name),
        [Step::MoveLeader { from: leader.id, to: heir.id }],
    )
}

/// Why a rollout must wait: it only goes on when every member is where it should be.
pub fn unready(view: &View) -> Option<String> {
    if view.members().len() < view.size() {
        return Some("not all members are there".to_owned());
    }
    view.unsettled()
}
