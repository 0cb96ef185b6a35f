//! Stories of restores.

use rstest::rstest;

use super::*;
use crate::ids::{ClusterId, Name};
use crate::observation::Stage;
use crate::step::Step;
use crate::version::Version;

fn backup(version: &str, bad: bool) -> Backup {
    Backup { index: 5, version: version.parse().unwrap(), bad }
}

fn stage(world: &World) -> Stage {
    world.recorded.restore.as_ref().expect("no restore was begun").stage.clone()
}

fn cluster(world: &World) -> ClusterId {
    world.recorded.cluster.expect("no cluster recorded")
}

/// Two of three members are gone with their data; with volumes, these too.
fn lose_two(world: &mut World) {
    for nth in 0..2 {
        world.strike(Fault::DeletePod(nth));
        world.strike(Fault::DeleteClaim(nth));
    }
    world.tick();
    assert_eq!(calm_round(world).plan.rule, Rule::QuorumLost);
    assert!(!world.recoverable());
}

/// Everything that is on a disk, and whose.
fn disks(world: &World) -> Vec<(Name, ClusterId)> {
    let on_claims = world.claims.iter().filter_map(|(name, claim)| Some((name, claim.disk.as_ref()?)));
    let on_pods = world.pods.iter().filter_map(|(name, pod)| Some((name, pod.disk.as_ref()?)));
    on_claims.chain(on_pods).map(|(name, disk)| (name.clone(), disk.cluster)).collect()
}

#[rstest]
fn after_a_loss_a_backup_brings_the_cluster_back(
    #[values("3.3.12", "3.5.16", "3.6.16")] version: &str,
    #[values(Storage::EmptyDir, Storage::Persistent)] storage: Storage,
) {
    let mut world = grown(3, version, storage);
    let before = cluster(&world);
    lose_two(&mut world);
    let survivors = disks(&world);
    assert_eq!(survivors.len(), 1);
    world.ask_for_restore(backup(version, false));
    while stage_or_none(&world) != Some(Stage::Done) {
        assert!(
            survivors.iter().all(|old| disks(&world).contains(old)),
            "the survivor's data is kept until then"
        );
        calm_round(&mut world);
        world.tick();
    }
    settle(&mut world, 200);
    assert_reached(&world, true);
    assert_ne!(cluster(&world), before);
    assert!(world.clusters[&cluster(&world)].committed >= 5);
    assert!(disks(&world).iter().all(|(_, of)| *of == cluster(&world)), "and not for ever");
}

/// Whoever planned the swap long ago does not make it: there would be no cluster behind the name.
#[rstest]
fn a_seed_that_was_lost_since_takes_nobodys_place(
    #[values(Storage::EmptyDir, Storage::Persistent)] storage: Storage,
) {
    let mut world = grown(3, "3.5.16", storage);
    let before = cluster(&world);
    world.ask_for_restore(backup("3.5.16", false));
    let late = planned(&mut world, |step| matches!(step, Step::SwapCluster { .. }));
    let seed = world.recorded.restore.as_ref().unwrap().seed.clone();
    let nth = world.pods.keys().position(|name| *name == seed).unwrap();
    world.strike(Fault::FailPod(nth));
    assert!(world.rival_acts(&late).failed.is_some());
    assert_eq!((cluster(&world), world.broken.as_slice()), (before, [].as_slice()));
    settle(&mut world, 300);
    assert_eq!(stage(&world), Stage::Done);
    assert_reached(&world, true);
}

fn stage_or_none(world: &World) -> Option<Stage> {
    world.recorded.restore.as_ref().map(|begun| begun.stage.clone())
}

#[rstest]
fn a_healthy_cluster_serves_until_its_backup_does(
    #[values(1, 3, 5)] size: u32,
    #[values(Storage::EmptyDir, Storage::Persistent)] storage: Storage,
) {
    let mut world = grown(size, "3.5.16", storage);
    world.ask_for_restore(backup("3.5.16", false));
    settle(&mut world, 300);
    assert_eq!(stage(&world), Stage::Done);
    assert_reached(&world, true);
}

#[rstest]
fn into_a_cluster_that_does_not_exist(#[values(Storage::EmptyDir, Storage::Persistent)] storage: Storage) {
    let mut world = World::new(spec(3, "3.5.16", storage), 7);
    world.ask_for_restore(backup("3.5.16", false));
    settle(&mut world, 200);
    assert_reached(&world, true);
    assert!(world.clusters[&cluster(&world)].committed >= 5);
    assert_eq!(world.clusters.len(), 1);
}

#[rstest]
fn an_older_backup_is_restored_on_its_own_minor_and_upgraded(
    #[values("3.3.12", "3.4.15", "3.5.35")] made_by: &str,
) {
    for storage in STORAGES {
        let mut world = grown(3, "3.6.16", storage);
        lose_two(&mut world);
        world.ask_for_restore(backup(made_by, false));
        settle(&mut world, 600);
        assert_reached(&world, true);
    }
}

#[rstest]
#[case::unreadable("3.5.16", true)]
#[case::newer_than_the_spec("3.6.16", false)]
fn a_failure_leaves_everything_as_it_was(
    #[case] made_by: &str,
    #[case] bad: bool,
    #[values(Storage::EmptyDir, Storage::Persistent)] storage: Storage,
) {
    let mut world = grown(3, "3.5.16", storage);
    let (pods, claims, id) = (world.pods.clone(), world.claims.clone(), cluster(&world));
    let uids = |pods: &std::collections::BTreeMap<Name, SimPod>| {
        pods.iter().map(|(name, pod)| (name.clone(), pod.uid.clone(), pod.serving)).collect::<Vec<_>>()
    };
    world.ask_for_restore(backup(made_by, bad));
    settle(&mut world, 200);
    assert!(matches!(stage(&world), Stage::Failed(_)), "{:?}", stage(&world));
    assert_reached(&world, true);
    assert_eq!((uids(&world.pods), cluster(&world)), (uids(&pods), id));
    assert_eq!(world.claims.keys().collect::<Vec<_>>(), claims.keys().collect::<Vec<_>>());

    world.ask_for_restore(backup("3.5.16", false));
    settle(&mut world, 300);
    assert_eq!(stage(&world), Stage::Done, "another may follow");
    assert_reached(&world, true);
}

#[test]
fn a_failure_into_nothing_does_not_begin_empty() {
    let mut world = World::new(spec(3, "3.5.16", Storage::Persistent), 7);
    world.ask_for_restore(backup("3.5.16", true));
    for _ in 0..60 {
        calm_round(&mut world);
        world.tick();
    }
    let plan = calm_round(&mut world).plan;
    assert_eq!((plan.rule, plan.actions.len()), (Rule::Restore, 0), "{}", plan.why);
    assert!(world.clusters.is_empty() && world.pods.is_empty() && world.claims.is_empty());
    world.ask_for_restore(backup("3.5.16", false));
    settle(&mut world, 200);
    assert_reached(&world, true);
}

#[rstest]
#[case::deleted(Fault::DeletePod(0))]
#[case::evicted(Fault::FailPod(0))]
#[case::killed(Fault::KillProcess(0))]
#[case::paused(Fault::Pause(0))]
#[case::node_gone(Fault::NodeGone(0))]
#[case::claim_deleted(Fault::DeleteClaim(0))]
#[case::operator(Fault::OperatorCrash)]
fn the_seed_is_struck_at_any_time(#[case] fault: Fault, #[values(1, 2, 3, 4, 5, 6)] rounds: usize) {
    for storage in STORAGES {
        let mut world = World::new(spec(3, "3.5.16", storage), 7);
        world.ask_for_restore(backup("3.5.16", false));
        for _ in 0..rounds {
            calm_round(&mut world);
            world.tick();
        }
        world.strike(fault);
        for _ in 0..120 {
            calm_round(&mut world);
            world.tick();
        }
        world.calm();
        if world.recoverable() {
            settle(&mut world, 200);
            assert_reached(&world, true);
            assert!(world.clusters[&cluster(&world)].committed >= 5);
        } else {
            assert_eq!(calm_round(&mut world).plan.rule, Rule::QuorumLost, "{rounds} {storage:?}");
        }
    }
}

#[test]
fn crashes_after_every_step_of_a_restore_end_the_same() {
    for storage in STORAGES {
        for lost in [false, true] {
            let mut world = grown(3, "3.5.16", storage);
            if lost {
                lose_two(&mut world);
            }
            world.ask_for_restore(backup("3.5.16", false));
            for _ in 0..400 {
                let round = world.reconcile(&Glitch::default(), Some(1));
                assert!(world.broken.is_empty(), "{:?} {:?}", world.broken, round.plan);
                world.tick();
            }
            settle(&mut world, 50);
            assert_eq!(stage(&world), Stage::Done);
            assert_reached(&world, true);
        }
    }
}

#[test]
fn pods_of_before_make_room() {
    let mut world = grown(3, "3.5.16", Storage::EmptyDir);
    world.ask_for_restore(backup("3.5.16", false));
    while stage_or_none(&world) != Some(Stage::Filling) {
        calm_round(&mut world);
        world.tick();
    }
    let all: Vec<_> = world.nodes.keys().cloned().collect();
    let taken: Vec<_> = world.pods.values().filter_map(|pod| pod.node.clone()).collect();
    for node in all.iter().filter(|node| !taken.contains(node)) {
        world.nodes.remove(node);
    }
    settle(&mut world, 300);
    assert_reached(&world, true);
    assert!(world.pods.values().all(|pod| pod.version == Version::new(3, 5, 16)));
}
