//! The pod template differs: roll it out member by member. With a volume the pod is made anew; on emptyDir the member
//! is swapped, new before old, so that no copy of the data is ever the last one to go.

use super::Decision;
use super::heal::delete_pod;
use super::join::remove;
use super::rollout::{bearable, move_leader, next, unready};
use super::scale::grow;
use crate::observation::Member;
use crate::view::View;

pub fn template(view: &View) -> Option<Decision> {
    let outdated: Vec<_> = view.voters().filter(|voter| differs(view, voter)).collect();
    if outdated.is_empty() {
        return None;
    }
    // A pod that does not run has nothing to lose: the template may be what keeps it from running.
    let idle = outdated.iter().find(|voter| {
        let pod = view.pod(&voter.name);
        view.persistent(&voter.name) && !view.answers(voter) && pod.is_some_and(|pod| !pod.running())
    });
    if let Some(member) = idle {
        return Decision::act(
            format!("{} gets a pod of the new template", member.name),
            delete_pod(view, member),
        );
    }
    if let Some(reason) = unready(view) {
        return Decision::wait(format!("the changed pod template waits: {reason}"));
    }
    let member = next(view, outdated.into_iter())?;
    let hand_over = || move_leader(view, member, |heir| !differs(view, heir));
    if view.persistent(&member.name) {
        if !bearable(view, member) {
            return Decision::wait(format!("{} gets its new pod once the others are healthy", member.name));
        }
        return hand_over().or_else(|| {
            Decision::act(format!("{} gets a pod of the new template", member.name), delete_pod(view, member))
        });
    }
    if view.voter_count() <= view.size() {
        return grow(view, 1);
    }
    if !view.survives_removal(member) {
        return Decision::wait(format!("{} is swapped once the others are healthy", member.name));
    }
    hand_over().or_else(|| {
        Decision::act(
            format!("{} was swapped for a member of the new template", member.name),
            remove(view, member),
        )
    })
}

fn differs(view: &View, member: &Member) -> bool {
    view.pod(&member.name).is_some_and(|pod| !pod.deleting && view.outdated(pod))
}
