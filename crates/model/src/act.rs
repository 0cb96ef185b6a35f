//! What can happen next.

use std::fmt;
use std::time::Duration;

use domain::Spec;
use domain::sim::{Fault, Glitch, Intent, Memory, Round, World};

/// How long a tick of the checker's clock is: as long as the rules' shortest patience, so that few ticks tell all.
pub const TICK: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Kubelets, schedulers and etcd do their work, and time passes.
    Pass,
    /// The operator looks, plans and acts.
    Reconcile,
    /// It does so, and dies after that many steps.
    Crash(usize),
    /// It does so while the member list cannot be read.
    NoList,
    /// It does so while one member does not answer it.
    Deaf(usize),
    /// It does so on a cache that was not brought up to date.
    Stale,
    /// Another operator, which believes that it leads, looks and plans.
    RivalPlans,
    /// It acts on what it saw then.
    RivalActs,
    Strike(Fault),
    Size(u32),
    Version(&'static str),
    Template(&'static str),
    /// Claims are to stay when the cluster is deleted, or not any more.
    Retain,
    Pause,
    /// The store, or the tool that reads the backup, fails from now on.
    SpoilBackup,
    /// The request for a restore is taken back.
    Withdraw,
}

impl Act {
    /// What counts as trouble; the rest is everyday life, and free.
    pub fn is_trouble(self) -> bool {
        !matches!(self, Self::Pass | Self::Reconcile | Self::RivalActs)
    }

    /// A death of the operator after each of the steps that it would take here.
    pub fn crashes(world: &World) -> impl Iterator<Item = Self> + use<> {
        (0..=steps(world)).map(Self::Crash)
    }

    /// Lets it happen. `None` if it means nothing here.
    pub fn happen(self, world: &mut World, rival: &mut Option<Intent>) -> Option<Option<Round>> {
        let mut glitch = Glitch::default();
        let mut crash = None;
        match self {
            Self::Pass => {
                pass(world);
                return Some(None);
            }
            Self::Reconcile => {}
            Self::Crash(after) => {
                crash = Some(after).filter(|after| *after <= steps(world));
                crash?;
            }
            Self::NoList => glitch.no_members = true,
            Self::Deaf(nth) => glitch.deaf.extend(Some(world.pods.keys().nth(nth)?.clone())),
            Self::Stale => {
                if world.cache == (world.pods.clone(), world.claims.clone()) {
                    return None;
                }
                glitch.stale_cache = true;
            }
            Self::RivalPlans => {
                // It remembers nothing of what we do, and leaves our memory and cache alone.
                let mut its = world.clone();
                its.memory = Memory::default();
                let intent = its.intend(&glitch);
                *rival = Some(intent).filter(|intent| !intent.plan.actions.is_empty());
                rival.as_ref()?;
                return Some(None);
            }
            Self::RivalActs => {
                let intent = rival.take()?;
                return Some(Some(world.rival_acts(&intent)));
            }
            Self::Strike(fault) => {
                world.strike(fault);
                return Some(None);
            }
            Self::SpoilBackup => {
                let before = world.backups.clone();
                world.backups.values_mut().for_each(|backup| backup.bad = true);
                return (world.backups != before).then_some(None);
            }
            Self::Size(_)
            | Self::Version(_)
            | Self::Template(_)
            | Self::Retain
            | Self::Pause
            | Self::Withdraw => {
                let before = world.spec.clone();
                self.edit(&mut world.spec);
                return (world.spec != before).then_some(None);
            }
        }
        Some(Some(world.reconcile(&glitch, crash)))
    }

    fn edit(self, spec: &mut Spec) {
        match self {
            Self::Size(size) => spec.size = size,
            Self::Version(version) => version.clone_into(&mut spec.version),
            Self::Template(template) => template.clone_into(&mut spec.template),
            Self::Retain => spec.retains = !spec.retains,
            Self::Pause => spec.paused = !spec.paused,
            Self::Withdraw => spec.restore = None,
            _ => {}
        }
    }
}

/// Dying after the last one is dying before the report; beyond that there is nothing to die after.
fn steps(world: &World) -> usize {
    world.clone().intend(&Glitch::default()).plan.actions.len()
}

/// One tick.
pub fn pass(world: &mut World) {
    // The world's own tick is a second.
    world.now = world.now + TICK.saturating_sub(Duration::from_secs(1));
    world.tick();
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => write!(f, "{} s pass", TICK.as_secs()),
            Self::Reconcile => f.write_str("the operator"),
            Self::Crash(after) => write!(f, "the operator, which dies after {after} steps,"),
            Self::NoList => f.write_str("the operator, which cannot read the member list,"),
            Self::Deaf(nth) => write!(f, "the operator, which does not hear member {nth},"),
            Self::Stale => f.write_str("the operator, on a stale cache,"),
            Self::RivalPlans => f.write_str("another operator looks, and believes that it leads"),
            Self::RivalActs => f.write_str("the other operator, late,"),
            Self::Strike(fault) => write!(f, "TROUBLE {fault:?}"),
            Self::Size(size) => write!(f, "EDIT size: {size}"),
            Self::Version(version) => write!(f, "EDIT version: {version}"),
            Self::Template(template) => write!(f, "EDIT template: {template}"),
            Self::Retain => f.write_str("EDIT whenDeleted: Retain, or not any more"),
            Self::Pause => f.write_str("EDIT paused, or not any more"),
            Self::SpoilBackup => f.write_str("TROUBLE the backup cannot be read any more"),
            Self::Withdraw => f.write_str("EDIT the request for a restore is taken back"),
        }
    }
}
