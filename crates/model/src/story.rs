//! A violation, told so that a person can follow it.

use std::fmt::Write;

use domain::sim::{Arms, Process, World};

use crate::act::Act;

/// What happened, act by act, and how the world looked at the end.
pub fn tell(start: &World, acts: &[Act], end: &str) -> String {
    let (mut world, mut rival) = (start.clone(), None);
    let mut story = String::from("The shortest story:\n");
    for (nth, act) in acts.iter().enumerate() {
        world.normalise(rival.as_mut());
        let round = act.happen(&mut world, &mut rival).flatten();
        let _ = write!(story, "{:3}. {act}", nth + 1);
        if let Some(round) = round {
            let steps: Vec<_> = round.plan.actions[..round.done].iter().map(|action| &action.step).collect();
            let why = if round.plan.why.is_empty() { "as it meant to" } else { &round.plan.why };
            let _ = write!(story, " ({:?}) {why}: {steps:?}", round.plan.rule);
            if let Some(failed) = round.failed {
                let _ = write!(story, ", then: {failed}");
            }
        }
        story.push('\n');
    }
    world.normalise(rival.as_mut());
    let _ = writeln!(story, "And so {end}.\nThe world then:\n{}", describe(&world));
    story
}

fn describe(world: &World) -> String {
    let mut lines = vec![format!(
        "  spec: size {}, version {}, template {}; recorded: {:?}",
        world.spec.size, world.spec.version, world.spec.template, world.recorded
    )];
    for (name, pod) in &world.pods {
        let process = match &pod.process {
            Process::Down => "down".to_owned(),
            Process::Waiting(reason) => reason.clone(),
            Process::Up { version, speaks, paused } => {
                format!("up on {version} speaks={speaks} paused={paused}")
            }
        };
        let arms = match &pod.arms {
            Arms::New { .. } => "armed to bootstrap",
            Arms::Restored { .. } => "armed to restore",
            Arms::Existing { .. } => "armed to join",
            Arms::Disarmed => "disarmed",
        };
        lines.push(format!(
            "  pod {name} of {} on {:?}: {process}, {arms}, serving={} deleting={} failed={} {} claim={:?} disk={:?}",
            pod.version,
            pod.node.as_ref().map(domain::Name::as_str),
            pod.serving,
            pod.deleting,
            pod.failed,
            pod.template,
            pod.claim,
            pod.disk
        ));
    }
    lines.extend(world.claims.iter().map(|(name, claim)| format!("  claim {name}: {claim:?}")));
    for (id, cluster) in &world.clusters {
        let members = cluster.members.iter().map(|member| {
            let kind = if member.learner { "learner" } else { "voter" };
            format!("{} ({:?} {kind} started={})", member.name, member.id, member.started)
        });
        let members = members.collect::<Vec<_>>().join(", ");
        lines.push(format!(
            "  etcd {id}: {members}; leader {:?}, agreed on 3.{}",
            cluster.leader, cluster.agreed
        ));
    }
    lines.push(format!("  nodes {:?}", world.nodes));
    lines.push(format!("  the operator remembers {:?}", world.memory));
    lines.join("\n")
}
