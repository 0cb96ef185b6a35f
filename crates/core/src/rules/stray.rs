//! Pods and claims that no member names: delete them.
//!
//! Members are added before their pod is created, and pods are listed before members are read, so what the list does
//! not name was removed. It goes before any further removal, so that leftovers never add up to an old quorum.

use super::Decision;
use crate::ids::Name;
use crate::step::Step;
use crate::view::View;

pub fn stray(view: &View) -> Option<Decision> {
    let seen = view.seen;
    let named = |name: &Name| view.members().iter().any(|member| member.name == *name);
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
    Decision::act("left over from members that were removed", steps)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{Scene, on_volumes};
    use super::*;
    use crate::observation::Read;

    #[rstest]
    #[case::none(|_: &mut Scene| {}, "-")]
    #[case::pod_of_a_removed_member(|s: &mut Scene| drop_member(s, "c"), "delete pod c")]
    #[case::already_going(|s: &mut Scene| { drop_member(s, "c"); s.pod("c").deleting = true; }, "-")]
    #[case::claim_once_the_pod_is_gone(|s: &mut Scene| { drop_member(s, "c"); s.lose_pod("c"); }, "delete claim c")]
    #[case::claim_of_a_member_without_pod(|s: &mut Scene| s.lose_pod("c"), "-")]
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
