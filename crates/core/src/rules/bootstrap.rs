//! No etcd cluster ID is recorded: make the one seed, or adopt what is there.
//!
//! The seed's name is recorded, with a resource version, before its pod is created: whoever creates it, even an
//! operator that wrongly believes it leads, creates the same one. Clients get a Service only after the ID is
//! recorded and the seed disarmed, so nothing is acknowledged that a second start could lose.

use super::Decision;
use crate::ids::Name;
use crate::observation::{Claim, Pod, Read};
use crate::report::Event;
use crate::step::{Action, Step};
use crate::version::Version;
use crate::view::View;

pub fn bootstrap(view: &View) -> Option<Decision> {
    let seen = view.seen;
    if seen.recorded.cluster.is_some() {
        return None;
    }
    let version = match view.target() {
        Ok(version) => version,
        Err(refusal) => return Decision::stuck(refusal.to_string()),
    };
    let names = seen.pods.iter().map(|pod| &pod.name).chain(seen.claims.iter().map(|claim| &claim.name));
    match &seen.recorded.seed {
        None if seen.pods.is_empty() && seen.claims.is_empty() => first_step(view, version),
        Some(seed) if names.into_iter().all(|name| name == seed) => raise_seed(view, seed, version),
        _ => adopt(view, version),
    }
}

fn first_step(view: &View, version: Version) -> Option<Decision> {
    let Some(name) = view.seen.fresh_names.first() else {
        return Decision::wait("no unused name for the seed was given");
    };
    let mut actions = vec![Step::RecordSeed { name: name.clone() }.into()];
    actions.extend(create_seed(view, name, version));
    Decision::act(format!("nothing of this cluster exists: {name} becomes its seed"), actions)
}

fn delete_claim(claim: &Claim) -> Step {
    Step::DeleteClaim { name: claim.name.clone(), uid: claim.uid.clone() }
}

fn create_seed(view: &View, name: &Name, version: Version) -> Vec<Action> {
    let headless = (!view.seen.headless_service).then(|| Step::EnsureHeadlessService.into());
    let seed = Step::CreateSeed { name: name.clone(), version }.announcing([Event::new_member_added(name)]);
    headless.into_iter().chain([seed]).collect()
}

fn raise_seed(view: &View, seed: &Name, version: Version) -> Option<Decision> {
    let Some(pod) = view.pod(seed) else {
        // The volume of an earlier try holds nothing that was acknowledged, maybe of a version that is no longer asked for.
        return match view.claim(seed) {
            Some(claim) if claim.deleting => {
                Decision::wait(format!("the claim of seed {seed} is being deleted"))
            }
            Some(claim) => Decision::act(format!("seed {seed} starts over"), [delete_claim(claim)]),
            None => Decision::act(format!("seed {seed} has no pod"), create_seed(view, seed, version)),
        };
    };
    if pod.deleting {
        return Decision::wait(format!("the pod of seed {seed} is being deleted"));
    }
    let delete = Step::DeletePod { name: pod.name.clone(), uid: pod.uid.clone() };
    if pod.finished() {
        return Decision::act(format!("the pod of seed {seed} ended before the cluster began"), [delete]);
    }
    if let Some(begun) = begin(view, pod) {
        return Some(begun);
    }
    // Nothing was acknowledged yet: a corrected spec gets a new seed at once, not one on the data of another version.
    let changed = view.image_differs(pod, version) || view.outdated(pod);
    if view.status(seed).is_none() && changed {
        let claim = view.claim(seed).filter(|claim| !claim.deleting);
        let claim = claim.map(delete_claim);
        let why = format!("seed {seed} has not started, and the spec was changed: it is made anew");
        return Decision::act(why, [delete].into_iter().chain(claim));
    }
    Decision::wait(format!("seed {seed} is starting"))
}

/// The seed answers as the one member of its cluster: record, disarm, and only then let clients in.
fn begin(view: &View, pod: &Pod) -> Option<Decision> {
    let status = view.status(&pod.name).filter(|status| status.leader.is_some())?;
    let [member] = view.members() else { return None };
    if member.name != pod.name || member.id != status.member {
        return None;
    }
    let mut actions = vec![
        Step::RecordCluster { id: status.cluster },
        Step::MarkPod { name: pod.name.clone(), uid: pod.uid.clone(), disarm: pod.armed, serve: true },
    ];
    if !view.seen.client_service {
        actions.push(Step::EnsureClientService);
    }
    Decision::act(format!("seed {} is healthy: cluster {} begins", pod.name, status.cluster), actions)
}

/// Pods or volumes without a recorded ID: bring back what has data, disarmed, and take the ID that it answers with.
fn adopt(view: &View, version: Version) -> Option<Decision> {
    let seen = view.seen;
    let podless = seen.claims.iter().filter(|claim| {
        view.pod(&claim.name).is_none() && !claim.deleting && !view.may_run_unseen(&claim.name)
    });
    let version = seen.recorded.version.unwrap_or(version);
    let resume: Vec<_> = podless
        .map(|claim| Step::ResumeMember { name: claim.name.clone(), version, claim: claim.uid.clone() })
        .collect();
    if !resume.is_empty() {
        return Decision::act("volumes of this cluster exist: their members are brought back", resume);
    }
    let mut answers = seen.statuses.values().filter_map(Read::known);
    let Some(first) = answers.next() else {
        return Decision::wait("pods of this cluster exist, and none answers yet");
    };
    if answers.any(|status| status.cluster != first.cluster) {
        return Decision::stuck(
            "the pods belong to different etcd clusters: delete those that do not belong here",
        );
    }
    let all_listed = view.members().iter().filter(|member| view.answers(member)).count().eq(&seen
        .statuses
        .values()
        .filter_map(Read::known)
        .count());
    if view.members().is_empty() || !all_listed {
        return Decision::wait("pods of this cluster exist, and their member list cannot be read yet");
    }
    Decision::act(
        format!("cluster {} is adopted", first.cluster),
        [Step::RecordCluster { id: first.cluster }],
    )
}
