//! Pods and claims that no member names and no member to come needs: delete them.
//!
//! Pods are listed before members are read, so what the list does not name was removed, or was made for a member that
//! is no longer wanted. It goes before any further removal, so that leftovers never add up to an old quorum.

use super::Decision;
use crate::ids::Name;
use crate::step::Step;
use crate::view::View;

pub fn stray(view: &View) -> Option<Decision> {
    let seen = view.seen;
    let room = view.waiting_room();
    let named = |name: &Name| {
        view.members().iter().any(|member| member.name == *name) || room.iter().any(|pod| pod.name == *name)
    };
    let pods = seen
        .pods
        .iter()
        .filter(|pod| !named(&pod.name) && !pod.deleting)
        .map(|pod| Step::DeletePod { name: pod.name.clone(), uid: pod.uid.clone() });
    let claims = seen
        .claims
        .iter()
        .filter(|claim| !named(&claim.name) && !claim.deleting && view.pod(&claim.name).is_none())
        .map(|claim| Step::DeleteClaim { name: claim.name.clone(), uid: claim.uid.clone() });
    let steps: Vec<_> = pods.chain(claims).collect();
    if steps.is_empty() {
        return None;
    }
    Decision::act("left over from members that were removed, or that are not to come", steps)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{Scene, on_volumes};
    use super::*;
    use crate::observation::{NodeState, PodPhase, Read};
    use crate::version::Version;

    #[rstest]
    #[case::none(|_: &mut Scene| {}, "-")]
    #[case::pod_of_a_removed_member(|s: &mut Scene| drop_member(s, "c"), "delete pod c")]
    #[case::already_going(|s: &mut Scene| { drop_member(s, "c"); s.pod("c").deleting = true; }, "-")]
    #[case::claim_once_the_pod_is_gone(|s: &mut Scene| { drop_member(s, "c"); s.lose_pod("c"); }, "delete claim c")]
    #[case::claim_of_a_member_without_pod(|s: &mut Scene| s.lose_pod("c"), "-")]
    #[case::waits_to_join(|s: &mut Scene| { s.spec.size = 5; s.held("x", "abcx"); s.held("y", "abcxy"); }, "-")]
    #[case::waits_and_is_not_wanted(|s: &mut Scene| { s.spec.size = 4; s.held("x", "abcx"); s.held("y", "abcxy"); }, "delete pod y")]
    #[case::wait_for_each_other_and_one_is_not_wanted(|s: &mut Scene| {
        s.spec.size = 4;
        s.held("x", "abcxy");
        s.held("y", "abcxy");
    }, "delete pod x, delete pod y")]
    #[case::waits_for_members_that_left(|s: &mut Scene| { s.spec.size = 4; s.held("x", "abcqx"); }, "delete pod x")]
    #[case::does_not_know_of_a_member(|s: &mut Scene| { s.spec.size = 4; s.held("x", "abx"); }, "delete pod x")]
    #[case::waits_with_an_old_image(|s: &mut Scene| {
        s.spec.size = 4;
        s.run("3.5.35");
        s.held("x", "abcx");
        s.pod("x").version = Version::new(3, 5, 16);
    }, "delete pod x")]
    #[case::waits_while_nobody_says_what_runs(|s: &mut Scene| {
        s.spec.size = 4;
        s.held("x", "abcx");
        for name in ["a", "b", "c"] {
            s.silence(name, 1);
        }
    }, "-")]
    #[case::waits_with_the_image_of_one_that_does_not_answer(|s: &mut Scene| {
        s.spec.size = 4;
        s.held("x", "abcx");
        for name in ["a", "b"] {
            s.run_one(name, "3.5.35");
        }
        s.silence("c", 1);
    }, "-")]
    #[case::waits_with_an_old_template(|s: &mut Scene| {
        s.spec.size = 4;
        s.held("x", "abcx");
        s.pod("x").template = "old".into();
    }, "delete pod x")]
    #[case::waits_on_a_lost_node(|s: &mut Scene| {
        s.spec.size = 4;
        s.held("x", "abcx");
        s.pod("x").node.as_mut().unwrap().state = NodeState::NotReady;
    }, "delete pod x")]
    #[case::its_volume_is_gone(|s: &mut Scene| {
        s.spec.size = 4;
        s.held("x", "abcx");
        s.seen.claims.retain(|claim| claim.name.as_str() != "x");
    }, "delete pod x")]
    #[case::was_let_start_in_vain(|s: &mut Scene| {
        s.spec.size = 4;
        s.held("x", "abcx");
        s.pod("x").phase = PodPhase::Running;
    }, "delete pod x")]
    fn cases(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = on_volumes("abc");
        change(&mut scene);
        assert_eq!(scene.ask(stray), says);
    }

    fn drop_member(scene: &mut Scene, name: &str) {
        let Read::Known(members) = &mut scene.seen.members else { panic!("no list") };
        members.retain(|member| member.name.as_str() != name);
    }
}
