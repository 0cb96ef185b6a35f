//! Random stories: whatever happens, no law is broken, and once the faults are over the end is the spec.

use proptest::prelude::*;

use super::*;
use crate::observation::Read;
use crate::version::Version;

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
    Retain(bool),
    Paused(bool),
    /// An EtcdBackup names the cluster, or none does any more.
    Named(bool),
    Crash(usize),
    Deaf {
        no_members: bool,
        whom: Option<usize>,
        stale: bool,
    },
    /// A backup of that version is to be restored; whether it can be read is another question.
    Restore {
        version: &'static str,
        bad: bool,
    },
    /// The request is taken off the EtcdCluster.
    Withdraw,
    /// Another operator plans, and does not act yet.
    RivalPlans,
    RivalActs,
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
        1 => any::<bool>().prop_map(Act::Retain),
        1 => any::<bool>().prop_map(Act::Paused),
        2 => any::<bool>().prop_map(Act::Named),
        4 => (0usize..7).prop_map(Act::Crash),
        4 => (any::<bool>(), prop::option::of(0usize..7), any::<bool>())
            .prop_map(|(no_members, whom, stale)| Act::Deaf { no_members, whom, stale }),
        3 => (prop::sample::select(&VERSIONS[..]), prop::bool::weighted(0.3))
            .prop_map(|(version, bad)| Act::Restore { version, bad }),
        1 => Just(Act::Withdraw),
        2 => Just(Act::RivalPlans),
        2 => Just(Act::RivalActs),
    ]
}

fn perform(world: &mut World, rival: &mut Option<Intent>, act: &Act) {
    let (mut glitch, mut crash, mut rounds) = (Glitch::default(), None, 1);
    match act {
        Act::Calm(n) => rounds = *n,
        Act::Strike(fault) => world.strike(*fault),
        Act::Size(size) => world.spec.size = *size,
        Act::Version(version) => (*version).clone_into(&mut world.spec.version),
        Act::Template(template) => (*template).clone_into(&mut world.spec.template),
        Act::BadImage(version) => drop(world.bad_images.insert(version.parse().unwrap())),
        Act::BadTemplate(template) => drop(world.bad_templates.insert((*template).to_owned())),
        Act::Retain(retains) => world.spec.retains = *retains,
        Act::Paused(paused) => world.spec.paused = *paused,
        Act::Named(named) => world.precautions.named = named.then(|| "nightly".into()),
        Act::Restore { version, bad } => {
            world.ask_for_restore(Backup { index: 5, version: version.parse().unwrap(), bad: *bad });
        }
        Act::Withdraw => world.spec.restore = None,
        Act::RivalPlans => *rival = Some(world.intend(&glitch)),
        Act::RivalActs => {
            if let Some(intent) = rival.take() {
                late(world, &intent);
            }
        }
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

/// What the model checker keeps of a plan does the same as the whole.
fn late(world: &mut World, intent: &Intent) {
    let (mut trimmed, mut same) = (intent.clone(), world.clone());
    trimmed.trim();
    same.rival_acts(&trimmed);
    let round = world.rival_acts(intent);
    assert!(world.broken.is_empty(), "{:?}\nby a rival: {round:#?}", world.broken);
    assert_eq!(*world, same, "by a rival: {round:#?}");
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
        // A restore into nothing that failed leaves nothing: somebody decides to begin empty.
        if round.plan.rule == Rule::Restore && round.plan.why.contains("nothing but a restore that failed") {
            world.spec.restore = None;
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
        let mut rival = None;
        for act in &acts {
            perform(&mut world, &mut rival, act);
        }
        assert_converges(&mut world);
    }
}
