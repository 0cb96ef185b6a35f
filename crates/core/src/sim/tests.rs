//! Stories that the simulated world must tell: fixed ones first, then random ones.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::ids::Name;
use crate::observation::Read;
use crate::plan::Rule;
use crate::quorum::quorum;
use crate::spec::Storage;
use crate::version::Version;

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
fn a_bad_template_is_set_back(#[values("3.3.12", "3.5.16", "3.6.16")] version: &str) {
    for storage in STORAGES {
        let mut world = grown(3, version, storage);
        world.bad_templates.insert("bad".to_owned());
        world.spec.template = "bad".to_owned();
        for _ in 0..300 {
            calm_round(&mut world);
            world.tick();
        }
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

/// One thing that happens.
#[derive(Clone, Debug)]
enum Act {
    Calm(u8),
    Strike(Fault),
    Size(u32),
    Version(&'static str),
    Template(&'static str),
    BadImage(&'static str),
    BadTemplate(&'static str),
    Paused(bool),
    Crash(usize),
    Deaf { no_members: bool, whom: Option<usize>, stale: bool },
}

const VERSIONS: [&str; 5] = ["3.3.12", "3.4.15", "3.5.16", "3.5.35", "3.6.16"];
const TEMPLATES: [&str; 3] = ["t0", "t1", "t2"];

fn fault() -> impl Strategy<Value = Fault> {
    let nth = 0usize..7;
    prop_oneof![
        3 => nth.clone().prop_map(Fault::DeletePod),
        2 => nth.clone().prop_map(Fault::FailPod),
        2 => nth.clone().prop_map(Fault::KillProcess),
        1 => nth.clone().prop_map(Fault::Wipe),
        1 => nth.clone().prop_map(Fault::Corrupt),
        2 => nth.clone().prop_map(Fault::Pause),
        2 => nth.clone().prop_map(Fault::NodeDown),
        3 => nth.clone().prop_map(Fault::NodeUp),
        1 => nth.clone().prop_map(Fault::NodeGone),
        1 => nth.prop_map(Fault::DeleteClaim),
        2 => Just(Fault::OperatorCrash),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (1u8..40).prop_map(Act::Calm),
        6 => fault().prop_map(Act::Strike),
        3 => (1u32..=7).prop_map(Act::Size),
        3 => prop::sample::select(&VERSIONS[..]).prop_map(Act::Version),
        2 => prop::sample::select(&TEMPLATES[..]).prop_map(Act::Template),
        1 => prop::sample::select(&VERSIONS[..]).prop_map(Act::BadImage),
        1 => prop::sample::select(&TEMPLATES[..]).prop_map(Act::BadTemplate),
        1 => any::<bool>().prop_map(Act::Paused),
        4 => (0usize..4).prop_map(Act::Crash),
        4 => (any::<bool>(), prop::option::of(0usize..7), any::<bool>())
            .prop_map(|(no_members, whom, stale)| Act::Deaf { no_members, whom, stale }),
    ]
}

fn perform(world: &mut World, act: &Act) {
    let (mut glitch, mut crash, mut rounds) = (Glitch::default(), None, 1);
    match act {
        Act::Calm(n) => rounds = *n,
        Act::Strike(fault) => world.strike(*fault),
        Act::Size(size) => world.spec.size = *size,
        Act::Version(version) => (*version).clone_into(&mut world.spec.version),
        Act::Template(template) => (*template).clone_into(&mut world.spec.template),
        Act::BadImage(version) => drop(world.bad_images.insert(version.parse().unwrap())),
        Act::BadTemplate(template) => drop(world.bad_templates.insert((*template).to_owned())),
        Act::Paused(paused) => world.spec.paused = *paused,
        Act::Crash(after) => crash = Some(*after),
        Act::Deaf { no_members, whom, stale } => {
            glitch.no_members = *no_members;
            glitch.stale_cache = *stale;
            let count = world.pods.len().max(1);
            glitch.deaf.extend(whom.and_then(|nth| world.pods.keys().nth(nth % count).cloned()));
        }
    }
    for _ in 0..rounds {
        let round = world.reconcile(&glitch, crash);
        assert!(world.broken.is_empty(), "{:?}\nafter {act:?}: {:#?}", world.broken, round.plan);
        world.tick();
        assert!(world.broken.is_empty(), "{:?}\nafter {act:?} and time: {:#?}", world.broken, round.plan);
    }
}

/// Faults off, spec at rest: within the bound the world is what the spec says, or says honestly why it cannot be.
fn assert_converges(world: &mut World) {
    world.calm();
    world.spec.paused = false;
    world.tick();
    let mut last = None;
    for step in 0..1200 {
        let round = calm_round(world);
        if at_rest(world, &round) {
            assert_reached(world, true);
            return;
        }
        let refused = round.plan.report.conditions.iter().any(|c| c.reason == "SpecInvalid");
        if refused && round.plan.rule == Rule::Upgrade && round.plan.actions.is_empty() {
            return;
        }
        // What asks for a person gets one: the pod and claim that never came back from their change are deleted.
        if step % 300 == 299 && round.plan.why.contains("delete its pod and claim") {
            let silent = world.pods.keys().find(|name| world.up(name).is_none()).cloned().unwrap();
            world.pods.get_mut(&silent).unwrap().deleting = true;
            world.claims.get_mut(&silent).into_iter().for_each(|claim| claim.deleting = true);
        }
        // Old binaries exit on data that the cluster took further: a person reads that in their log.
        if step % 300 == 299 && round.plan.rule == Rule::QuorumLost && world.recoverable() {
            let agreed = world.clusters[&world.recorded.cluster.unwrap()].agreed;
            let newer = VERSIONS.iter().find(|v| v.parse::<Version>().unwrap().minor == agreed).unwrap();
            (*newer).clone_into(&mut world.spec.version);
        }
        if round.plan.rule == Rule::QuorumLost && !world.recoverable() && round.plan.actions.is_empty() {
            return;
        }
        last = Some(round);
        world.tick();
    }
    let seen = world.observe(true, &Glitch::default());
    let members = match seen.members {
        Read::Known(members) => format!("{members:?}"),
        Read::Unknown(reason) => reason,
    };
    let last = last.map(|round| (round.plan.rule, round.plan.why, round.failed));
    let story: Vec<_> = world.pods.iter().map(|(name, pod)| format!("{name}: {pod:?}")).collect();
    panic!("no end: {last:?}\n{members}\n{}\n{:?}", story.join("\n"), world.claims);
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_no_law_is_broken_and_the_end_is_the_spec(
        size in 1u32..=5,
        version in prop::sample::select(&VERSIONS[..]),
        persistent in any::<bool>(),
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let storage = if persistent { Storage::Persistent } else { Storage::EmptyDir };
        let mut world = World::new(spec(size, version, storage), 7);
        for act in &acts {
            perform(&mut world, act);
        }
        assert_converges(&mut world);
    }
}
