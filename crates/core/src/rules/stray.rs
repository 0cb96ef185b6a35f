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
