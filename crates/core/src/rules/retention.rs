//! Whether claims go with the EtcdCluster: an edit is as good as having said so from the start.
//!
//! Owners matter only when the cluster is deleted, so whatever else can be done is done first. To keep data is right at any
//! time; to let it go waits until a cluster runs on it.

use super::Decision;
use crate::step::Step;
use crate::view::View;

pub fn retention(view: &View) -> Option<Decision> {
    release(view).or_else(|| own(view, "claims go with the cluster from now on", !view.spec.retains, true))
}

/// What is to stay has no owner.
pub fn release(view: &View) -> Option<Decision> {
    own(view, "claims stay when the cluster is deleted", view.spec.retains, false)
}

fn own(view: &View, why: &str, wanted: bool, owned: bool) -> Option<Decision> {
    let claims = view.seen.claims.iter().chain(&view.kept.claims).chain(&view.seen.left_claims);
    let wrong = claims.filter(|claim| wanted && claim.owned != owned && !claim.deleting);
    let steps: Vec<_> = wrong
        .map(|claim| Step::OwnClaim { name: claim.name.clone(), uid: claim.uid.clone(), owned })
        .collect();
    if steps.is_empty() {
        return None;
    }
    Decision::act(why, steps)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{NOW, Scene, on_volumes};
    use super::*;
    use crate::plan::{Rule, plan};

    fn disowned(scene: &mut Scene) {
        for name in ["a", "b", "c"] {
            scene.claim(name).owned = false;
        }
    }

    #[rstest]
    #[case::as_it_was_made(|_: &mut Scene| {}, "-")]
    #[case::retained(|s: &mut Scene| s.spec.retains = true, "disown a, disown b, disown c")]
    #[case::half_done(|s: &mut Scene| { s.spec.retains = true; s.claim("b").owned = false; }, "disown a, disown c")]
    #[case::done(|s: &mut Scene| { s.spec.retains = true; disowned(s); }, "-")]
    #[case::let_go(disowned, "own a, own b, own c")]
    #[case::going_anyway(|s: &mut Scene| { s.spec.retains = true; s.claim("b").deleting = true; }, "disown a, disown c")]
    #[case::of_a_member_that_left(|s: &mut Scene| {
        s.spec.retains = true;
        disowned(s);
        let mut left = s.claim("c").clone();
        (left.name, left.owned) = ("d".into(), true);
        s.seen.left_claims.push(left);
    }, "disown d")]
    fn cases(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = on_volumes("abc");
        change(&mut scene);
        assert_eq!(scene.ask(retention), says);
    }

    #[rstest]
    #[case::at_rest(|_: &mut Scene| {}, true, true)]
    #[case::somebody_is_waited_for(|s: &mut Scene| s.silence("b", 5), true, true)]
    #[case::no_quorum(Scene::blind, true, false)]
    #[case::not_begun(|s: &mut Scene| { s.seen.recorded.cluster = None; s.seen.recorded.seed = None; s.blind(); }, true, false)]
    #[case::more_urgent(|s: &mut Scene| s.seen.budget = None, false, false)]
    #[case::paused(|s: &mut Scene| s.spec.paused = true, false, false)]
    #[case::another_operator(|s: &mut Scene| s.seen.rival = Some("it runs".into()), false, false)]
    fn data_is_kept_at_once_and_let_go_by_a_cluster_that_runs(
        #[case] change: fn(&mut Scene),
        #[case] kept: bool,
        #[case] let_go: bool,
    ) {
        for (retains, acts) in [(true, kept), (false, let_go)] {
            let mut scene = on_volumes("abc");
            scene.spec.retains = retains;
            if !retains {
                disowned(&mut scene);
            }
            change(&mut scene);
            let rule = plan(&scene.spec, &scene.seen, NOW).rule;
            assert_eq!(rule == Rule::Retention, acts, "retains: {retains}, {rule:?}");
        }
    }
}
