//! A backup takes the place of what the cluster holds.
//!
//! The restore controller verified the backup and wrote its request. Here a seed is made from it, beside what is there and
//! without touching that; only when the seed answers, as the one member of a cluster of its own, does it become the
//! cluster, in one write. Members of before stop serving then. Their data stays until the restored cluster is full. If
//! the seed cannot be made, it goes, and everything is as it was.

use super::Decision;
use super::bootstrap::delete_claim;
use crate::ids::Name;
use crate::observation::{Pod, PodPhase, Restore, Stage};
use crate::report::Event;
use crate::spec::RestoreRequest;
use crate::step::{Action, Step};
use crate::version::{Refusal, Version};
use crate::view::View;

/// Tries of one container, with the kubelet's growing pauses a bit more than a minute: a store that is away for a moment
/// is no reason to give up.
const TRIES: u32 = 4;

pub fn restore(view: &View) -> Option<Decision> {
    let asked = view.spec.restore.as_ref();
    let begun = view.seen.recorded.restore.as_ref();
    let served = |asked: &RestoreRequest| begun.is_some_and(|begun| begun.request == asked.uid);
    if let Some(begun) = begun {
        match (&begun.stage, asked.filter(|asked| served(asked))) {
            (Stage::Seeding, Some(asked)) => return raise(view, asked, begun),
            (Stage::Seeding, None) => return fail(begun, "its request was withdrawn from the EtcdCluster"),
            (Stage::Failed(_), _) if !leftovers(view, begun).is_empty() => {
                return Decision::act("a seed that failed goes", leftovers(view, begun));
            }
            _ => {}
        }
    }
    if let Some(asked) = asked.filter(|asked| !served(asked)) {
        return begin(view, asked);
    }
    match &begun?.stage {
        Stage::Filling => make_way(view),
        Stage::Failed(why) if view.seen.recorded.cluster.is_none() && asked.is_some() => {
            Decision::stuck(format!(
                "there is nothing but a restore that failed: {why}; create another EtcdRestore, or take the annotation \
                 of this one from the EtcdCluster to begin empty"
            ))
        }
        _ => None,
    }
}

/// The restored cluster is full: what was there before is of no more use, and the ordinary rules clear it away.
pub fn finish(view: &View) -> Option<Decision> {
    let begun = view.seen.recorded.restore.as_ref()?;
    let open = begun.stage == Stage::Filling || !begun.replaced.is_empty();
    let full = view.voter_count() >= view.size() && view.unsettled().is_none();
    // A seed may answer before its kubelet tells of it, and with that what was found in its data.
    let untold = view.pod(&begun.seed).is_some_and(|seed| seed.phase == PodPhase::Pending);
    if !open || !full || untold {
        return None;
    }
    let stage = if begun.stage == Stage::Filling { Stage::Done } else { begun.stage.clone() };
    let restore = Restore { stage, replaced: Vec::new(), ..begun.clone() };
    Decision::act("the restored cluster is full", [Step::RecordRestore { restore }])
}

fn begin(view: &View, asked: &RestoreRequest) -> Option<Decision> {
    let unused = |name: &&Name| view.pod(name).is_none() && view.claim(name).is_none();
    let Some(seed) = view.seen.fresh_names.iter().find(unused) else {
        return Decision::wait("no unused name for the seed was given");
    };
    let before = view.seen.recorded.restore.as_ref();
    let replaced = before.map(|before| before.replaced.clone()).unwrap_or_default();
    let (request, seed) = (asked.uid.clone(), seed.clone());
    let restore = Restore { request, seed: seed.clone(), stage: Stage::Seeding, again: 0, replaced };
    match version(view, asked) {
        Err(refusal) => fail(&restore, refusal.to_string()),
        Ok(version) => {
            let record = Step::RecordRestore { restore };
            let actions = [record.into()].into_iter().chain(create(view, &seed, version, asked));
            Decision::act(
                format!("{} asks for a backup to be restored: {seed} is made from it", asked.name),
                actions,
            )
        }
    }
}

/// A backup runs on its own minor first; the ordinary upgrade takes it from there to the spec's.
fn version(view: &View, asked: &RestoreRequest) -> Result<Version, Refusal> {
    view.spec.hops.restore_on(asked.version, view.target()?)
}

fn create(view: &View, name: &Name, version: Version, asked: &RestoreRequest) -> Vec<Action> {
    let headless = (!view.seen.headless_service).then(|| Step::EnsureHeadlessService.into());
    let seed = Step::CreateRestoredSeed { name: name.clone(), version, request: asked.uid.clone() };
    headless.into_iter().chain([seed.announcing([Event::new_member_added(name)])]).collect()
}

fn fail(begun: &Restore, why: impl Into<String>) -> Option<Decision> {
    let why = why.into();
    let restore = Restore { stage: Stage::Failed(why.clone()), ..begun.clone() };
    Decision::act(format!("the restore failed: {why}"), [Step::RecordRestore { restore }])
}

/// Pod and claim of a seed that never became the cluster: nothing was ever promised on them.
fn leftovers(view: &View, begun: &Restore) -> Vec<Step> {
    let seed = &begun.seed;
    if view.seen.recorded.seed.as_ref() == Some(seed) {
        return Vec::new();
    }
    let pod = view.pod(seed).filter(|pod| !pod.deleting).map(delete_pod);
    let claim = view.claim(seed).filter(|claim| !claim.deleting).map(delete_claim);
    pod.into_iter().chain(claim).collect()
}

fn delete_pod(pod: &Pod) -> Step {
    Step::DeletePod { name: pod.name.clone(), uid: pod.uid.clone() }
}

fn raise(view: &View, asked: &RestoreRequest, begun: &Restore) -> Option<Decision> {
    let seed = &begun.seed;
    let version = match version(view, asked) {
        Ok(version) => version,
        Err(refusal) => return fail(begun, refusal.to_string()),
    };
    let Some(pod) = view.pod(seed) else {
        // What an earlier try left on the volume may be half of something.
        return match view.claim(seed) {
            Some(claim) if claim.deleting => Decision::wait(format!("the claim of {seed} is being deleted")),
            Some(claim) => Decision::act(format!("{seed} starts over"), [delete_claim(claim)]),
            None => Decision::act(format!("{seed} has no pod"), create(view, seed, version, asked)),
        };
    };
    if pod.deleting {
        return Decision::wait(format!("the pod of {seed} is being deleted"));
    }
    if pod.finished() {
        return Decision::act(format!("the pod of {seed} ended before its cluster began"), [delete_pod(pod)]);
    }
    if let Some(swap) = swap(view, begun, pod) {
        return Some(swap);
    }
    if let Some(why) = hopeless(view, pod, begun) {
        return fail(begun, why);
    }
    if let Some(failing) = pod.failing.as_ref().filter(|failing| failing.spoils) {
        let restore = Restore { again: begun.again + 1, ..begun.clone() };
        let why = format!("{seed} starts over, its data was left half-made: {}", failing.words);
        return Decision::act(why, [Step::RecordRestore { restore }, delete_pod(pod)]);
    }
    if view.seen.seed.is_none() && (view.image_differs(pod, version) || view.outdated(pod)) {
        let why = format!("{seed} has not started, and the spec was changed: it is made anew");
        return Decision::act(why, leftovers(view, begun));
    }
    Decision::wait(format!("{seed} is being made from the backup"))
}

/// Why the seed will never run.
fn hopeless(view: &View, pod: &Pod, begun: &Restore) -> Option<String> {
    if let Some(failing) = &pod.failing {
        let times = if failing.spoils { begun.again + 1 } else { failing.times };
        if times >= TRIES {
            return Some(format!("{} failed {times} times: {}", pod.name, failing.words));
        }
    }
    if view.now.since(pod.created) < view.spec.knobs.seed_patience {
        return None;
    }
    let reason = pod.waiting.as_deref().unwrap_or_default();
    if pod.image_fails() {
        return Some(format!(
            "an image of {} cannot be pulled ({reason}): look at the pod's events",
            pod.name
        ));
    }
    if pod.node.is_none() {
        return Some(format!(
            "{} found no node: make room for one more pod, or for one that may share a node",
            pod.name
        ));
    }
    let reason = pod.waiting.as_deref().unwrap_or("a volume that cannot be mounted, or no network");
    (!pod.begun)
        .then(|| format!("no container of {} ever started ({reason}): look at the pod's events", pod.name))
}

/// The seed answers as the one member of its own cluster: from now on that is the cluster. Only then does anybody of
/// before stop serving, and only after that does the seed begin to.
fn swap(view: &View, begun: &Restore, pod: &Pod) -> Option<Decision> {
    let answer = view.seen.seed.as_ref().filter(|answer| answer.status.leader.is_some())?;
    let [member] = answer.members.as_slice() else { return None };
    let status = &answer.status;
    if member.name != pod.name
        || member.id != status.member
        || view.seen.recorded.cluster == Some(status.cluster)
    {
        return None;
    }
    let pods = view.seen.pods.iter().map(|pod| &pod.name);
    let there = pods.chain(view.seen.claims.iter().map(|claim| &claim.name)).chain(&begun.replaced);
    let mut replaced: Vec<Name> = there.filter(|name| **name != pod.name).cloned().collect();
    replaced.sort_unstable();
    replaced.dedup();
    let restore = Restore { stage: Stage::Filling, replaced, ..begun.clone() };
    let mut steps = vec![Step::SwapCluster { id: status.cluster, version: status.version, restore }];
    let before = view.seen.pods.iter().filter(|other| other.name != pod.name);
    steps.extend(before.chain(&view.kept.pods).filter_map(|pod| retire(view, pod)));
    steps.push(Step::MarkPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        disarm: pod.armed,
        serve: true,
    });
    if !view.seen.client_service {
        steps.push(Step::EnsureClientService);
    }
    Decision::act(format!("{} is healthy: cluster {} takes over", pod.name, status.cluster), steps)
}

/// A member of before ends if its data stays without it; else it only stops serving.
fn retire(view: &View, pod: &Pod) -> Option<Step> {
    if pod.deleting {
        None
    } else if view.outlives_pod(pod) {
        Some(delete_pod(pod))
    } else {
        pod.serving.then(|| Step::StopServing { name: pod.name.clone(), uid: pod.uid.clone() })
    }
}

/// Nobody of before serves any more, nor keeps a member of the restored cluster from its node.
fn make_way(view: &View) -> Option<Decision> {
    let retired: Vec<_> = view.kept.pods.iter().filter_map(|pod| retire(view, pod)).collect();
    if !retired.is_empty() {
        return Decision::act("members of before the restore stop serving", retired);
    }
    let homeless =
        |pod: &Pod| pod.node.is_none() && view.now.since(pod.created) >= view.spec.knobs.room_patience;
    let crowded = view.seen.pods.iter().find(|pod| homeless(pod))?;
    let pods: Vec<_> = view.kept.pods.iter().filter(|pod| !pod.deleting).map(delete_pod).collect();
    if pods.is_empty() {
        return None;
    }
    Decision::act(format!("{} finds no node: members of before the restore make room", crowded.name), pods)
}

#[cfg(test)]
mod tests;
