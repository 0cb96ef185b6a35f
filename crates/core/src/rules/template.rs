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
    if let Some(member) = outdated.iter().find(|voter| astray(view, voter)) {
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
    if view.pod(&member.name).is_some_and(|pod| view.outlives_pod(pod)) {
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

/// It does not run on a template that nobody runs on: that is what keeps it down, so the new one comes at once.
fn astray(view: &View, member: &Member) -> bool {
    let Some(pod) = view.pod(&member.name) else { return false };
    let answering = view.members().iter().filter(|other| view.answers(other));
    let proven =
        answering.filter_map(|other| view.pod(&other.name)).any(|other| other.template == pod.template);
    !proven && !view.answers(member) && !pod.running() && view.outlives_pod(pod)
}

fn differs(view: &View, member: &Member) -> bool {
    view.pod(&member.name).is_some_and(|pod| !pod.deleting && view.outdated(pod))
}
