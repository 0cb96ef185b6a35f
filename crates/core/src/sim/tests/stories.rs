//! Fixed stories.

use rstest::rstest;

use super::*;
use crate::ids::Name;
use crate::step::Step;
use crate::version::Version;

#[rstest]
fn a_cluster_comes_up(
    #[values(1, 2, 3, 5, 7)] size: u32,
    #[values("3.1.10", "3.3.12", "3.4.15", "3.5.16", "3.6.16")] version: &str,
) {
    for storage in STORAGES {
        grown(size, version, storage);
    }
}

#[rstest]
#[case("3.1.10")]
#[case("3.5.16")]
#[case("3.6.16")]
fn a_new_cluster_of_three_costs_few_writes(#[case] version: &str) {
    let world = grown(3, version, Storage::EmptyDir);
    // Members, services and status; two more are left for what the world does not model.
    assert!(world.writes <= 16, "{} writes", world.writes);
}

#[rstest]
fn any_jump_of_size(#[values("3.3.12", "3.5.16", "3.6.16")] version: &str) {
    for storage in STORAGES {
        let mut world = grown(3, version, storage);
        for size in [4, 5, 7, 3, 1, 3, 2, 1, 2, 7, 1] {
            world.spec.size = size;
            settle(&mut world, 300);
            assert_reached(&world, true);
        }
    }
}

/// Whoever planned to add it long ago adds nobody: what it left on its volume belongs to a member that is no more.
#[rstest]
fn a_member_that_came_and_left_is_not_added_late(#[values("3.3.12", "3.5.16", "3.6.16")] version: &str) {
    for storage in STORAGES {
        let mut world = grown(1, version, storage);
        world.spec.size = 2;
        let late = planned(&mut world, |step| matches!(step, Step::AddMember { .. }));
        settle(&mut world, 300);
        world.spec.size = 1;
        settle(&mut world, 300);
        assert!(world.rival_acts(&late).failed.is_some());
        settle(&mut world, 300);
        assert_reached(&world, true);
    }
}

/// The pod is all that keeps a volume that somebody deleted: whoever planned to delete the pod long ago leaves it.
#[test]
fn a_volume_that_was_deleted_since_is_not_let_go() {
    let mut world = grown(1, "3.5.16", Storage::Persistent);
    world.spec.template = "t1".to_owned();
    let late = planned(&mut world, |step| matches!(step, Step::DeletePod { .. }));
    world.strike(Fault::DeleteClaim(0));
    assert!(world.rival_acts(&late).failed.is_some());
    assert!(world.pods.values().all(|pod| !pod.deleting), "{:?}", world.pods);
    assert!(world.broken.is_empty(), "{:?}", world.broken);
}

#[rstest]
fn one_minor_per_edit_and_two_by_one(#[values(1, 2, 3, 5)] size: u32) {
    for storage in STORAGES {
        let mut world = grown(size, "3.1.10", storage);
        for version in ["3.2.13", "3.3.12", "3.4.15", "3.6.16"] {
            world.spec.version = version.to_owned();
            settle(&mut world, 300);
            assert_reached(&world, true);
        }
    }
}

#[test]
fn a_backup_precedes_every_minor_where_one_is_named() {
    let mut world = grown(3, "3.4.15", Storage::EmptyDir);
    world.precautions.named = Some("nightly".into());
    world.spec.version = "3.6.16".to_owned();
    settle(&mut world, 300);
    assert_reached(&world, true);
    let before: Vec<_> = world.precautions.asked.iter().map(|asked| asked.version.to_string()).collect();
    assert_eq!(before, ["3.5.35", "3.6.16"]);
}

#[rstest]
fn an_upgrade_undone_in_the_middle(#[values(0, 3, 5, 8, 12, 16, 20)] rounds: usize) {
    for storage in STORAGES {
        let mut world = grown(3, "3.5.35", storage);
        world.spec.version = "3.6.16".to_owned();
        for _ in 0..rounds {
            calm_round(&mut world);
            world.tick();
        }
        let all_new = world.pods.values().all(|pod| pod.version == Version::new(3, 6, 16));
        world.spec.version = "3.5.35".to_owned();
        for _ in 0..60 {
            calm_round(&mut world);
            world.tick();
        }
        let report = calm_round(&mut world).plan.report;
        let back = world.pods.values().all(|pod| pod.version == Version::new(3, 5, 35));
        assert!(back || all_new, "{report:?}");
    }
}

#[test]
fn an_image_that_cannot_be_pulled_touches_nobody() {
    let mut world = grown(3, "3.5.16", Storage::EmptyDir);
    let image =
        |world: &World| -> Vec<_> { world.pods.values().map(|pod| (pod.uid.clone(), pod.changed)).collect() };
    let before = image(&world);
    world.bad_images.insert(Version::new(3, 5, 17));
    world.spec.version = "3.5.17".to_owned();
    for _ in 0..100 {
        calm_round(&mut world);
        world.tick();
    }
    assert_eq!(image(&world), before);
    world.spec.version = "3.5.16".to_owned();
    settle(&mut world, 20);
    assert_eq!(image(&world), before);
    assert_reached(&world, true);
}

#[rstest]
fn a_changed_template_is_rolled_out(
    #[values(1, 2, 3, 5)] size: u32,
    #[values("3.3.12", "3.5.16", "3.6.16")] version: &str,
) {
    for storage in STORAGES {
        let mut world = grown(size, version, storage);
        world.spec.template = "t1".to_owned();
        settle(&mut world, 300);
        assert_reached(&world, true);
    }
}

#[rstest]
fn a_bad_template_is_set_back(
    #[values("3.3.12", "3.5.16", "3.6.16")] version: &str,
    #[values(false, true)] operator_restarts: bool,
) {
    for storage in STORAGES {
        let mut world = grown(3, version, storage);
        let members = |world: &World| -> Vec<Name> { world.claims.keys().cloned().collect() };
        let before = members(&world);
        world.bad_templates.insert("bad".to_owned());
        world.spec.template = "bad".to_owned();
        for round in 0..300 {
            if operator_restarts && round == 100 {
                world.strike(Fault::OperatorCrash);
            }
            calm_round(&mut world);
            world.tick();
        }
        assert_eq!(members(&world), before, "a volume was given up for what the template did");
        let good = world.pods.values().filter(|pod| pod.template == "t0").count();
        assert!(good >= 2, "only {good} members were left alone");
        world.spec.template = "t0".to_owned();
        settle(&mut world, 300);
        assert_reached(&world, true);
    }
}

#[rstest]
#[case::deleted(Fault::DeletePod(0))]
#[case::evicted(Fault::FailPod(0))]
#[case::killed(Fault::KillProcess(0))]
#[case::wiped(Fault::Wipe(0))]
#[case::corrupt(Fault::Corrupt(0))]
#[case::paused(Fault::Pause(0))]
#[case::node_down(Fault::NodeDown(0))]
#[case::node_gone(Fault::NodeGone(0))]
#[case::claim_deleted(Fault::DeleteClaim(0))]
fn one_member_of_three_is_struck(
    #[case] fault: Fault,
    #[values("3.3.12", "3.5.16", "3.6.16")] version: &str,
) {
    for storage in STORAGES {
        for nth in 0..3 {
            let mut world = grown(3, version, storage);
            let fault = match fault {
                Fault::DeletePod(_) => Fault::DeletePod(nth),
                Fault::FailPod(_) => Fault::FailPod(nth),
                Fault::KillProcess(_) => Fault::KillProcess(nth),
                Fault::Wipe(_) => Fault::Wipe(nth),
                Fault::Corrupt(_) => Fault::Corrupt(nth),
                Fault::Pause(_) => Fault::Pause(nth),
                Fault::NodeDown(_) => Fault::NodeDown(nth),
                Fault::NodeGone(_) => Fault::NodeGone(nth),
                Fault::DeleteClaim(_) => Fault::DeleteClaim(nth),
                other => other,
            };
            world.strike(fault);
            for _ in 0..200 {
                world.tick();
                calm_round(&mut world);
            }
            let id = world.recorded.cluster.unwrap();
            assert_eq!(world.clusters[&id].members.len(), 3);
            assert!(world.clusters[&id].members.iter().all(|m| world.member_up(id, m).is_some()));
            world.calm();
            settle(&mut world, 100);
            assert_reached(&world, true);
        }
    }
}

#[test]
fn the_only_copy_on_an_empty_dir_is_gone_and_nothing_bootstraps_again() {
    let mut world = grown(1, "3.5.16", Storage::EmptyDir);
    let clusters = world.clusters.len();
    world.strike(Fault::DeletePod(0));
    for _ in 0..100 {
        world.tick();
        calm_round(&mut world);
    }
    let round = calm_round(&mut world);
    assert_eq!(round.plan.rule, Rule::QuorumLost);
    assert!(round.plan.actions.is_empty());
    assert!(round.plan.why.contains("create an EtcdRestore"), "{}", round.plan.why);
    assert_eq!((world.clusters.len(), world.pods.len()), (clusters, 0));
}

#[rstest]
#[case(1)]
#[case(3)]
fn all_pods_deleted_come_back_on_their_volumes(#[case] size: u32) {
    let mut world = grown(size, "3.5.16", Storage::Persistent);
    let names: Vec<Name> = world.pods.keys().cloned().collect();
    for nth in 0..names.len() {
        world.strike(Fault::DeletePod(nth));
    }
    world.tick();
    assert!(world.pods.is_empty());
    assert_eq!(calm_round(&mut world).plan.rule, Rule::QuorumLost);
    settle(&mut world, 100);
    assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), names);
    assert_reached(&world, true);
}

#[test]
fn crashes_after_every_step_of_a_creation_end_the_same() {
    for version in ["3.3.12", "3.5.16", "3.6.16"] {
        for storage in STORAGES {
            let mut world = World::new(spec(3, version, storage), 3);
            for _ in 0..400 {
                let round = world.reconcile(&Glitch::default(), Some(1));
                assert!(world.broken.is_empty(), "{:?} {:?}", world.broken, round.plan);
                world.tick();
            }
            settle(&mut world, 50);
            assert_reached(&world, true);
        }
    }
}

/// Whoever planned it before the user changed their mind is too late.
#[test]
fn an_edit_of_the_retention_reaches_every_claim() {
    let mut world = grown(3, "3.5.16", Storage::Persistent);
    for retains in [true, false] {
        world.spec.retains = retains;
        let late = planned(&mut world, |step| matches!(step, Step::OwnClaim { .. }));
        settle(&mut world, 10);
        assert_reached(&world, true);
        assert!(world.rival_acts(&late).failed.is_some());
        assert_reached(&world, true);
    }
}

#[test]
fn who_comes_back_last_from_an_outage_is_not_replaced() {
    for storage in STORAGES {
        let mut world = grown(3, "3.5.16", storage);
        let pods = world.pods.keys().cloned().collect::<Vec<_>>();
        let mut after = |fault, seconds| {
            world.strike(fault);
            for _ in 0..seconds {
                calm_round(&mut world);
                world.tick();
            }
        };
        after(Fault::NodeDown(0), 1);
        after(Fault::NodeDown(1), 600);
        after(Fault::NodeUp(0), 30);
        after(Fault::NodeUp(1), 10);
        settle(&mut world, 10);
        assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), pods);
    }
}
