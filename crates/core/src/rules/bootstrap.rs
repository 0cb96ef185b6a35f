//! No etcd cluster ID is recorded: make the one seed, or adopt what is there.
//!
//! The seed's name is recorded, with a resource version, before its pod is created: whoever creates it, even an
//! operator that wrongly believes it leads, creates the same one. Clients get a Service only after the ID is
//! recorded and the seed disarmed, so nothing is acknowledged that a second start could lose.

use super::Decision;
use super::heal::hindered;
use crate::ids::Name;
use crate::observation::{Claim, Observation, Pod, Read};
use crate::report::Event;
use crate::room;
use crate::spec::Storage;
use crate::step::{Action, Step};
use crate::version::Version;
use crate::view::View;

pub fn bootstrap(view: &View) -> Option<Decision> {
    let Observation { recorded, pods, claims, .. } = view.seen;
    if recorded.cluster.is_some() {
        return None;
    }
    let version = match view.target() {
        Ok(version) => version,
        Err(refusal) => return Decision::stuck(refusal.to_string()),
    };
    // No member was ever added: who is to join others waits for them.
    let waits = |name: &&Name| view.pod(name).is_some_and(Pod::is_joiner);
    let names = pods.iter().map(|pod| &pod.name).chain(claims.iter().map(|claim| &claim.name));
    match &recorded.seed {
        None if pods.is_empty() && claims.is_empty() => first_step(view, version),
        Some(seed) if names.filter(|name| !waits(name)).all(|name| name == seed) => {
            raise_seed(view, seed, version)
        }
        _ => adopt(view, version),
    }
}

fn first_step(view: &View, version: Version) -> Option<Decision> {
    let mut names = view.unused_names();
    let Some(name) = names.next() else {
        return Decision::wait("no unused name for the seed was given");
    };
    let mut actions = create_seed(view, name, version);
    // Not on volumes: one whose pod is gone could not be told from what is left of an older cluster.
    let learner = version.has_learners() && view.spec.storage == Storage::EmptyDir;
    let several = version.has_several_learners();
    let others = if learner { room::places(view.size() - 1, learner, several) } else { 0 };
    let others: Vec<_> = names.take(others).collect();
    actions.extend(room::make_ahead(&others, version, &[], &[name], several).into_iter().map(Action::from));
    Decision::act(format!("nothing of this cluster exists: {name} becomes its seed"), actions)
}

pub(super) fn delete_claim(claim: &Claim) -> Step {
    Step::DeleteClaim { name: claim.name.clone(), uid: claim.uid.clone() }
}

/// The record is written each time: its resource version refuses an operator that planned before the cluster began.
fn create_seed(view: &View, name: &Name, version: Version) -> Vec<Action> {
    let record = Step::RecordSeed { name: name.clone() }.into();
    let headless = (!view.seen.headless_service).then(|| Step::EnsureHeadlessService.into());
    let seed = Step::CreateSeed { name: name.clone(), version }.announcing([Event::new_member_added(name)]);
    [record].into_iter().chain(headless).chain([seed]).collect()
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
    match hindered(view, pod) {
        Some(hindrance) => Decision::stuck(format!("seed {seed} cannot start: {hindrance}")),
        None => Decision::wait(format!("seed {seed} is starting")),
    }
}

/// The seed answers as the one member of its cluster: disarm, record, and only then let clients in. The UID that is tested
/// first keeps an operator that saw an earlier seed from recording a cluster that is no more.
fn begin(view: &View, pod: &Pod) -> Option<Decision> {
    let status = view.status(&pod.name).filter(|status| status.leader.is_some())?;
    let [member] = view.members() else { return None };
    if member.name != pod.name || member.id != status.member {
        return None;
    }
    let mut actions = vec![
        Step::MarkPod { name: pod.name.clone(), uid: pod.uid.clone(), disarm: pod.armed, serve: true },
        Step::RecordCluster { id: status.cluster },
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{NOW, Scene, healthy, on_volumes};
    use super::*;
    use crate::ids::{ClusterId, MemberId};
    use crate::observation::{PodPhase, Recorded};

    /// Nothing is there but the spec.
    fn nothing() -> Scene {
        let mut scene = healthy("");
        scene.spec.size = 3;
        scene.seen.recorded = Recorded::default();
        scene.seen.headless_service = false;
        scene.seen.client_service = false;
        scene.dark();
        scene
    }

    /// The seed's pod is there, armed, and says nothing yet.
    fn starting() -> Scene {
        let mut scene = healthy("a");
        scene.seen.recorded = Recorded { seed: Some("a".into()), ..Recorded::default() };
        scene.seen.client_service = false;
        scene.pod("a").armed = true;
        scene.pod("a").serving = false;
        scene.silence("a", 1);
        scene.dark();
        scene
    }

    /// The seed answers, and no ID is recorded.
    fn started() -> Scene {
        let mut scene = healthy("a");
        scene.seen.recorded = Recorded { seed: Some("a".into()), ..Recorded::default() };
        scene.seen.client_service = false;
        scene.pod("a").armed = true;
        scene.pod("a").serving = false;
        scene
    }

    fn wait_in_line(scene: &mut Scene) {
        let mut line = healthy("a");
        line.held("y", "ay");
        line.held("z", "ayz");
        scene.seen.pods.extend(line.seen.pods.drain(1..));
    }

    #[rstest]
    #[case::fresh(nothing, |_: &mut Scene| {}, "record seed x, headless, seed x 3.5.16, create y 3.5.16 in xy, create z 3.5.16 in xyz")]
    #[case::one_is_enough(nothing, |s: &mut Scene| s.spec.size = 1, "record seed x, headless, seed x 3.5.16")]
    #[case::on_volumes(nothing, |s: &mut Scene| s.spec.storage = Storage::Persistent, "record seed x, headless, seed x 3.5.16")]
    #[case::one_after_the_other(nothing, |s: &mut Scene| s.want("3.3.12"), "record seed x, headless, seed x 3.3.12")]
    #[case::others_may_join_at_once(nothing, |s: &mut Scene| s.want("3.6.16"), "record seed x, headless, seed x 3.6.16, create y 3.6.16 in xyz, create z 3.6.16 in xyz")]
    #[case::others_wait_for_the_seed(starting, wait_in_line, "wait")]
    #[case::others_waited_for_the_seed(
        started,
        wait_in_line,
        "mark a disarm serve, record cluster 1, client"
    )]
    #[case::bad_version(nothing, |s: &mut Scene| s.want("3.5.1"), "stuck")]
    #[case::unreadable_version(nothing, |s: &mut Scene| s.want("three"), "stuck")]
    #[case::crash_before_pod(nothing, |s: &mut Scene| s.seen.recorded.seed = Some("a".into()), "record seed a, headless, seed a 3.5.16")]
    #[case::starting(starting, |_: &mut Scene| {}, "wait")]
    #[case::no_such_image(starting, |s: &mut Scene| s.pod("a").waiting = Some("ErrImagePull".into()), "stuck")]
    #[case::no_node_has_room(starting, |s: &mut Scene| {
        s.pod("a").phase = PodPhase::Pending;
        s.pod("a").node = None;
    }, "stuck")]
    #[case::not_scheduled_yet(starting, |s: &mut Scene| {
        s.pod("a").phase = PodPhase::Pending;
        s.pod("a").node = None;
        s.pod("a").created = NOW;
    }, "wait")]
    #[case::evicted(starting, |s: &mut Scene| s.pod("a").phase = PodPhase::Failed, "delete pod a")]
    #[case::going(starting, |s: &mut Scene| s.pod("a").deleting = true, "wait")]
    #[case::version_corrected(starting, |s: &mut Scene| s.want("3.5.17"), "delete pod a")]
    #[case::template_corrected(starting, |s: &mut Scene| s.spec.template = "t1".into(), "delete pod a")]
    #[case::healthy(started, |_: &mut Scene| {}, "mark a disarm serve, record cluster 1, client")]
    #[case::no_leader_yet(started, |s: &mut Scene| s.status("a").leader = None, "wait")]
    #[case::another_pod_answers_at_its_address(started, |s: &mut Scene| s.status("a").member = MemberId(9), "wait")]
    #[case::a_list_of_others(started, |s: &mut Scene| s.member("a").name = "q".into(), "wait")]
    #[case::bootstrapped(started, |s: &mut Scene| s.seen.recorded.cluster = Some(ClusterId(1)), "-")]
    #[case::all_gone_after_it_began(nothing, |s: &mut Scene| s.seen.recorded.cluster = Some(ClusterId(1)), "-")]
    #[case::adopted(|| healthy("abc"), |s: &mut Scene| s.seen.recorded = Recorded::default(), "record cluster 1")]
    #[case::foreign_pods(|| healthy("abc"), |s: &mut Scene| {
        s.seen.recorded = Recorded::default();
        s.status("c").cluster = ClusterId(2);
    }, "stuck")]
    #[case::retained_volumes(|| on_volumes("ab"), |s: &mut Scene| {
        s.seen.recorded = Recorded::default();
        s.lose_pod("a");
        s.lose_pod("b");
        s.dark();
    }, "resume a 3.5.16, resume b 3.5.16")]
    #[case::half_made_seed(|| on_volumes("a"), |s: &mut Scene| {
        s.seen.recorded = Recorded { seed: Some("a".into()), ..Recorded::default() };
        s.lose_pod("a");
        s.dark();
    }, "delete claim a")]
    fn cases(#[case] scene: fn() -> Scene, #[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = scene();
        change(&mut scene);
        assert_eq!(scene.ask(bootstrap), says);
    }
}
