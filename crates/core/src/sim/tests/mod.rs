//! Stories that the simulated world must tell: fixed ones, and random ones.

mod chance;
mod restores;
mod stories;

use super::*;
use crate::plan::Rule;
use crate::quorum::quorum;
use crate::spec::Storage;
use crate::step::Step;

const STORAGES: [Storage; 2] = [Storage::EmptyDir, Storage::Persistent];

fn calm_round(world: &mut World) -> Round {
    let round = world.reconcile(&Glitch::default(), None);
    assert!(world.broken.is_empty(), "{:?}\nafter {:#?}", world.broken, round.plan);
    round
}

/// Runs until nothing is left to do, and returns how many rounds that took.
fn settle(world: &mut World, bound: usize) -> usize {
    let mut last = String::new();
    for rounds in 1..=bound {
        let round = calm_round(world);
        last = format!("{:?}: {} {:?}", round.plan.rule, round.plan.why, round.failed);
        if at_rest(world, &round) {
            return rounds;
        }
        // Steps in a row need no time; waiting does.
        if round.plan.actions.is_empty() || round.failed.is_some() || rounds % 3 == 0 {
            world.tick();
        }
    }
    panic!("not settled after {bound} rounds: {last}\n{world:#?}");
}

/// Runs until such a step is planned, and gives that plan, which is not carried out.
fn planned(world: &mut World, step: fn(&Step) -> bool) -> Intent {
    for _ in 0..200 {
        let intent = world.intend(&Glitch::default());
        if intent.plan.actions.iter().any(|action| step(&action.step)) {
            return intent;
        }
        calm_round(world);
        world.tick();
    }
    panic!("never planned: {world:#?}");
}

/// Nothing to do, and nothing on its way out.
fn at_rest(world: &World, round: &Round) -> bool {
    let going =
        world.pods.values().any(|pod| pod.deleting) || world.claims.values().any(|claim| claim.deleting);
    round.plan.rule == Rule::Steady && !going
}

/// The world is what the spec says.
fn assert_reached(world: &World, versions: bool) {
    let id = world.recorded.cluster.expect("no cluster recorded");
    let members = &world.clusters[&id].members;
    assert_eq!(members.len(), world.spec.size as usize, "{members:?}");
    assert_eq!(world.pods.len(), members.len());
    let persistent = world.spec.storage == Storage::Persistent;
    assert_eq!(world.claims.len(), if persistent { members.len() } else { 0 });
    assert!(world.claims.values().all(|claim| claim.owned != world.spec.retains), "{:?}", world.claims);
    for member in members {
        assert!(member.started && !member.learner, "{member:?}");
        let pod = &world.pods[&member.name];
        assert!(pod.serving && pod.arms == Arms::Disarmed && !pod.deleting, "{pod:?}");
        assert_eq!(pod.template, world.spec.template);
        if versions {
            assert_eq!(pod.version.to_string(), world.spec.version);
        }
    }
    assert!(world.client_service && world.headless_service);
    assert_eq!(world.budget, Some(u32::try_from(quorum(members.len())).unwrap()));
    assert!(world.image_checks.is_empty(), "{:?}", world.image_checks);
}

fn grown(size: u32, version: &str, storage: Storage) -> World {
    let mut world = World::new(spec(size, version, storage), 7);
    settle(&mut world, 200);
    assert_reached(&world, true);
    world
}
