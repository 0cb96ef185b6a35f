//! What is asked: the worlds to start from, and what may happen there.

use std::time::Duration;

use domain::sim::{Backup, Fault, Glitch, World, spec};
use domain::{Rule, Storage, Version};

use crate::act::{Act, TICK, pass};
use crate::check::Question;

/// One of each minor that the checker uses.
pub const VERSIONS: [&str; 5] = ["3.3.12", "3.4.15", "3.5.16", "3.5.35", "3.6.16"];

const NODES: usize = 3;

/// How far the checker goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// What every run of the tests affords.
    Standard,
    /// What a proof takes.
    Large,
}

/// Every question, by the name that answers are printed under.
pub fn all(bounds: Bounds) -> Vec<Question> {
    let extra = u8::from(bounds == Bounds::Large);
    let mut questions = Vec::new();
    for storage in [Storage::EmptyDir, Storage::Persistent] {
        questions.extend(["3.3.12", "3.5.16", "3.6.16"].map(|version| birth(3, version, storage, 1 + extra)));
        questions.extend([1, 2].map(|size| life(size, "3.5.16", storage, 2 + extra)));
        questions.extend(["3.3.12", "3.6.16"].map(|version| life(3, version, storage, 1 + extra)));
        questions.push(life(3, "3.5.16", storage, 2));
        questions.push(upgrade("3.5.35", "3.6.16", storage, 1 + extra));
        questions.extend(
            [Before::Nothing, Before::Healthy, Before::Lost]
                .map(|before| restore(before, storage, 1 + extra)),
        );
    }
    questions
}

/// From nothing to a cluster.
fn birth(size: u32, version: &'static str, storage: Storage, troubles: u8) -> Question {
    let menu = troubles_of(size as usize, storage).chain(edits(storage)).collect();
    let name = format!("birth of {size} on {version}, {}", on(storage));
    Question { name, world: empty(size, version, storage), troubles, menu }
}

/// From a cluster at rest.
fn life(size: u32, version: &'static str, storage: Storage, troubles: u8) -> Question {
    let menu = troubles_of(size as usize, storage).chain(edits(storage)).collect();
    let name = format!("life of {size} on {version}, {}", on(storage));
    Question { name, world: grown(size, version, storage), troubles, menu }
}

/// From the edit of a version on.
fn upgrade(from: &'static str, to: &'static str, storage: Storage, troubles: u8) -> Question {
    let mut world = grown(3, from, storage);
    to.clone_into(&mut world.spec.version);
    let back = [Act::Version(from), Act::Size(1), Act::Template("t1")];
    let menu = troubles_of(3, storage).chain(back).collect();
    Question { name: format!("upgrade of 3 from {from} to {to}, {}", on(storage)), world, troubles, menu }
}

/// What a backup takes the place of.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Healthy,
    /// Two of three members are without their data.
    Lost,
}

/// From the request for a restore on: of a good backup, or of one that turns out to be bad.
fn restore(before: Before, storage: Storage, troubles: u8) -> Question {
    let version = "3.5.16";
    let mut world = match before {
        Before::Nothing => empty(3, version, storage),
        Before::Healthy | Before::Lost => grown(3, version, storage),
    };
    if matches!(before, Before::Lost) {
        world.strike(Fault::Wipe(0));
        world.strike(Fault::Wipe(1));
    }
    let menu =
        troubles_of(4, storage).chain(edits(storage)).chain([Act::SpoilBackup, Act::Withdraw]).collect();
    world.ask_for_restore(Backup { index: 0, version: Version::new(3, 5, 16), bad: false });
    Question { name: format!("restore over 3, {before:?}, {}", on(storage)), world, troubles, menu }
}

fn on(storage: Storage) -> &'static str {
    match storage {
        Storage::EmptyDir => "emptyDir",
        Storage::Persistent => "volumes",
    }
}

fn troubles_of(size: usize, storage: Storage) -> impl Iterator<Item = Act> {
    let strikes = move |strike: fn(usize) -> Fault| (0..size).map(strike).map(Act::Strike);
    let kinds: [fn(usize) -> Fault; 6] =
        [Fault::DeletePod, Fault::FailPod, Fault::KillProcess, Fault::Wipe, Fault::Corrupt, Fault::Pause];
    let claims = if storage == Storage::Persistent { size } else { 0 };
    let operator = [Act::NoList, Act::Stale, Act::RivalPlans];
    kinds
        .into_iter()
        .flat_map(strikes)
        .chain((0..claims).map(Fault::DeleteClaim).map(Act::Strike))
        .chain(
            (0..NODES)
                .flat_map(|n| [Fault::NodeDown(n), Fault::NodeUp(n), Fault::NodeGone(n)])
                .map(Act::Strike),
        )
        .chain(operator)
        .chain((0..size).map(Act::Deaf))
}

fn edits(storage: Storage) -> impl Iterator<Item = Act> {
    let sizes = [1, 2, 3, 5].into_iter().map(Act::Size);
    let retain = (storage == Storage::Persistent).then_some(Act::Retain);
    sizes
        .chain([Act::Version("3.5.35"), Act::Version("3.6.16"), Act::Template("t1"), Act::Pause])
        .chain(retain)
}

fn empty(size: u32, version: &str, storage: Storage) -> World {
    let mut spec = spec(size, version, storage);
    spec.knobs.unresponsive_after = TICK;
    spec.knobs.making_patience = TICK * 2;
    spec.knobs.image_check_retry = TICK;
    spec.knobs.leaderless_after = Duration::from_secs(3);
    spec.knobs.catch_up_entries = 1;
    spec.knobs.seed_patience = TICK * 2;
    spec.knobs.room_patience = TICK;
    World::new(spec, NODES)
}

fn grown(size: u32, version: &str, storage: Storage) -> World {
    let mut world = empty(size, version, storage);
    // A birth without troubles takes far fewer rounds; if it ever did not end, the question would show it.
    for _ in 0..200 {
        let round = world.reconcile(&Glitch::default(), None);
        if round.plan.rule == Rule::Steady {
            break;
        }
        pass(&mut world);
    }
    world
}
