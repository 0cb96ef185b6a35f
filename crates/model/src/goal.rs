//! Liveness: with all troubles over and the spec at rest, the end comes, and it is the spec.
//!
//! A calm world has one next world. In normal form there are finitely many, so the way from any of them ends in one that
//! repeats: that one is the end, and it must be what the spec says, or say honestly why it cannot be.

use std::collections::HashSet;

use dashmap::DashSet;
use domain::quorum::quorum;
use domain::sim::{Arms, Glitch, Round, World};
use domain::{Rule, Storage, Version};

use crate::act::pass;
use crate::shared::hash;

/// Worlds from which the end is known to be good.
#[derive(Default)]
pub struct Known(DashSet<u64>);

/// How often a person is asked for help before it counts as a loop.
const HELP: usize = 4;
/// A way that has not ended by then grows for ever: the longest ones take a tenth of it.
const ROUNDS: usize = 1000;

impl Known {
    /// Why the end is not the spec, if it is not.
    pub fn disappointment(&self, mut world: World) -> Option<String> {
        calm_down(&mut world);
        let (mut way, mut helped) = (HashSet::new(), 0);
        loop {
            world.normalise(None);
            let here = hash(&world);
            if self.0.contains(&here) {
                break;
            }
            let again = !way.insert(here);
            let round = world.reconcile(&Glitch::default(), None);
            if let Some(law) = world.broken.first() {
                return Some(format!("on the way to the end, {law}"));
            }
            if at_rest(&world, &round) {
                if let Some(shortfall) = shortfall(&world) {
                    return Some(format!("the operator rests, but {shortfall}"));
                }
                break;
            }
            if excused(&world, &round) {
                break;
            }
            let endless = way.len() > ROUNDS;
            if again || endless {
                helped += 1;
                if endless || helped > HELP || !help(&mut world, &round) {
                    let Round { plan, failed, .. } = round;
                    let failed = failed.map(|failed| format!(" ({failed})")).unwrap_or_default();
                    return Some(format!("it never ends: {:?}, {}{failed}", plan.rule, plan.why));
                }
                way.clear();
            }
            pass(&mut world);
        }
        for known in way {
            self.0.insert(known);
        }
        None
    }
}

fn calm_down(world: &mut World) {
    world.calm();
    world.spec.paused = false;
    pass(world);
    world.cache = Default::default();
}

/// Nothing to do, and nothing on its way out.
fn at_rest(world: &World, round: &Round) -> bool {
    let going =
        world.pods.values().any(|pod| pod.deleting) || world.claims.values().any(|claim| claim.deleting);
    round.plan.rule == Rule::Steady && !going
}

/// In what the world is not what the spec says.
pub fn shortfall(world: &World) -> Option<String> {
    let Some(cluster) = world.recorded.cluster.and_then(|id| world.clusters.get(&id)) else {
        return Some("no cluster is recorded".to_owned());
    };
    let members = &cluster.members;
    let size = world.spec.size as usize;
    let claims = if world.spec.storage == Storage::Persistent { size } else { 0 };
    if (members.len(), world.pods.len(), world.claims.len()) != (size, size, claims) {
        return Some(format!(
            "there are {} members, {} pods and {} claims for a size of {size}",
            members.len(),
            world.pods.len(),
            world.claims.len()
        ));
    }
    for member in members {
        let Some(pod) = world.pods.get(&member.name) else {
            return Some(format!("{} has no pod", member.name));
        };
        let as_asked = pod.version.to_string() == world.spec.version && pod.template == world.spec.template;
        if !member.started || member.learner || !pod.serving || pod.arms != Arms::Disarmed || !as_asked {
            return Some(format!("{} is not as the spec asks: {member:?}, {pod:?}", member.name));
        }
    }
    if let Some((name, _)) = world.claims.iter().find(|(_, claim)| claim.owned == world.spec.retains) {
        return Some(format!("the claim of {name} would not go, or stay, with the cluster as the spec asks"));
    }
    let least = u32::try_from(quorum(members.len())).ok();
    if !world.client_service || !world.headless_service || world.budget != least {
        return Some(format!("clients are not served as they should be: budget {:?}", world.budget));
    }
    (!world.image_checks.is_empty()).then(|| "image checks are left over".to_owned())
}

/// The end is not the spec, and cannot be: etcd cannot go there, or the data is gone with its quorum.
fn excused(world: &World, round: &Round) -> bool {
    let plan = &round.plan;
    let refused = plan.report.conditions.iter().any(|condition| condition.reason == "SpecInvalid");
    let lost = plan.rule == Rule::QuorumLost && !world.recoverable();
    plan.actions.is_empty() && (lost || refused && plan.rule == Rule::Upgrade)
}

/// What asks for a person gets one.
fn help(world: &mut World, round: &Round) -> bool {
    if round.plan.why.contains("delete its pod and claim") {
        let up = |name| matches!(world.pods.get(name), Some(pod) if matches!(pod.process, domain::sim::Process::Up { .. }));
        let silent = world.pods.keys().find(|name| !up(name)).cloned();
        let Some(pod) = silent.as_ref().and_then(|name| world.pods.get_mut(name)) else { return false };
        pod.deleting = true;
        silent
            .and_then(|name| world.claims.get_mut(&name))
            .into_iter()
            .for_each(|claim| claim.deleting = true);
        return true;
    }
    if round.plan.why.contains("take the annotation of this one") {
        world.spec.restore = None;
        return true;
    }
    // Old binaries exit on data that the cluster took further: a person reads that in their log.
    let agreed = world.recorded.cluster.and_then(|id| world.clusters.get(&id)).map(|cluster| cluster.agreed);
    let asked = world.spec.version.parse::<Version>().ok();
    match (agreed, asked) {
        (Some(agreed), Some(asked)) if round.plan.rule == Rule::QuorumLost && agreed > asked.minor => {
            let newer = crate::questions::VERSIONS.iter().find(|v| v.starts_with(&format!("3.{agreed}.")));
            newer.is_some_and(|newer| {
                (*newer).clone_into(&mut world.spec.version);
                true
            })
        }
        _ => false,
    }
}
