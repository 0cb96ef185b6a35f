//! The normal form changes nothing that matters: whatever happens, it happens in it just the same.

use model::questions::{self, Bounds};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_follows_is_the_same(nth in any::<prop::sample::Index>(), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60)) {
        let mut questions = questions::all(Bounds::Standard);
        // From nothing, on one node: nodes that are alike change places, and a number means another one then.
        questions.retain(|question| question.world.pods.is_empty());
        for question in &mut questions {
            let first = question.world.nodes.pop_first();
            question.world.nodes = first.into_iter().collect();
        }
        let question = nth.get(&questions);
        let (mut raw, mut normal) = (question.world.clone(), question.world.clone());
        for pick in picks {
            // Everyday life has to go on between troubles.
            let everyday = [model::Act::Reconcile, model::Act::Pass];
            let troubles: Vec<_> = question.menu.iter().copied().chain(model::Act::crashes(&raw)).collect();
            let act = *pick.get(&[&everyday.repeat(troubles.len())[..], &troubles].concat());
            // Nodes that are alike change places in it, so that their number is another's.
            let of_a_node = format!("{act:?}").contains("Node");
            if act == model::Act::RivalPlans || of_a_node {
                continue;
            }
            normal.normalise(None);
            act.happen(&mut raw, &mut None);
            act.happen(&mut normal, &mut None);
            let mut both = [raw.clone(), normal.clone()];
            for world in &mut both {
                world.normalise(None);
                // Where somebody ran who is no more is remembered for longer without it, and not asked for.
                world.memory.nodes.clear();
            }
            let [raw, normal] = both;
            prop_assert_eq!(raw, normal, "after {}", act);
        }
    }
}
