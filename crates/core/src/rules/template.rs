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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{Scene, healthy, on_volumes};
    use super::*;

    #[rstest]
    #[case::same(|s: &mut Scene| s.spec.template = "t0".into(), "-", "-")]
    #[case::inherited_ones_stay(|s: &mut Scene| for name in ["a", "b", "c"] { s.pod(name).template = String::new(); }, "-", "-")]
    #[case::changed(|_: &mut Scene| {}, "create x 3.5.16 in abcx", "delete pod b")]
    #[case::not_while_one_is_silent(|s: &mut Scene| s.silence("c", 1), "wait", "wait")]
    #[case::b_and_c_done(|s: &mut Scene| { done(s, "b"); done(s, "c"); }, "create x 3.5.16 in abcx", "move leader to b")]
    #[case::came_up_bad(|s: &mut Scene| {
        s.pod("b").template = "bad".into();
        s.crash("b", 10);
    }, "wait", "delete pod b")]
    #[case::broken_before(|s: &mut Scene| s.crash("b", 10), "wait", "wait")]
    fn cases(#[case] change: fn(&mut Scene), #[case] on_empty_dir: &str, #[case] on_volume: &str) {
        for (mut scene, says) in [(healthy("abc"), on_empty_dir), (on_volumes("abc"), on_volume)] {
            scene.spec.template = "t1".into();
            change(&mut scene);
            assert_eq!(scene.ask(template), says);
        }
    }

    fn done(scene: &mut Scene, name: &str) {
        scene.pod(name).template = "t1".into();
    }

    #[rstest]
    #[case::new_one_is_there(|s: &mut Scene| done(s, "d"), "remove b, delete pod b")]
    #[case::only_the_leader_is_old(|s: &mut Scene| { done(s, "b"); done(s, "c"); done(s, "d"); }, "move leader to b")]
    fn a_swap_ends(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("abcd");
        scene.spec.size = 3;
        scene.spec.template = "t1".into();
        change(&mut scene);
        assert_eq!(scene.ask(template), says);
    }

    #[test]
    fn the_only_member_is_swapped_before_its_data_goes() {
        let mut scene = healthy("a");
        scene.spec.template = "t1".into();
        assert_eq!(scene.ask(template), "create x 3.5.16 in ax");
        scene.held("x", "ax");
        assert_eq!(scene.ask(template), "add learner x");
    }

    #[test]
    fn a_claim_that_goes_with_its_pod_is_saved_by_a_swap() {
        let mut scene = on_volumes("a");
        scene.claim("a").deleting = true;
        assert_eq!(scene.ask(template), "create x 3.5.16 in ax");
        scene.held("x", "ax");
        assert_eq!(scene.ask(template), "add learner x");
    }
}
