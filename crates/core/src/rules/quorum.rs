//! There is no linearizable member list. Say what that means, bring back what has its data, change no membership.

use super::Decision;
use crate::ids::Name;
use crate::observation::{Claim, Pod};
use crate::step::Step;
use crate::version::Version;
use crate::view::{Quorum, View};

pub fn lost(view: &View) -> Option<Decision> {
    if view.quorum() != Quorum::Lost {
        return None;
    }
    let ended = view.seen.claims.iter().filter_map(|claim| clear(view, claim));
    let corrected = view.seen.pods.iter().filter_map(|pod| correct(view, pod));
    let actions = bring_back(view).chain(ended).chain(corrected).map(Into::into).collect();
    Some(Decision { why: story(view), actions, stuck: false })
}

pub fn unknown(view: &View) -> Option<Decision> {
    let why = match view.quorum() {
        Quorum::Holds | Quorum::Lost => return None,
        Quorum::AwaitsSecond => "the second member has not started".to_owned(),
        Quorum::Unknown(reason) => format!("no member answers for the cluster: {reason}"),
    };
    Some(Decision { why, actions: bring_back(view).map(Into::into).collect(), stuck: false })
}

/// Who is down, and what a person can do.
pub fn story(view: &View) -> String {
    let voters = view.known_voters();
    let (down, up): (Vec<&Name>, Vec<&Name>) = voters.iter().partition(|name| view.proven_down(name));
    let (kept, gone): (Vec<&Name>, Vec<&Name>) = down.iter().partition(|name| has_data(view, name));
    let named = |names: &[&Name]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let mut story = Vec::new();
    let of_all = |names: &[&Name], what: &str| {
        format!("{} of {} members {what}: {}", names.len(), voters.len(), named(names))
    };
    if !down.is_empty() {
        story.push(of_all(&down, "are down"));
    }
    // A member that restarted without a quorum is silent too: that is named only where it is the cause.
    if up.len() >= crate::quorum::quorum(voters.len()) {
        let silent: Vec<&Name> = up.iter().copied().filter(|name| view.status(name).is_none()).collect();
        story.push(if silent.is_empty() {
            format!("{} know of no leader: look at the network between them", named(&up))
        } else {
            of_all(&silent, "do not answer") + "; look at their nodes and logs"
        });
    }
    if !kept.is_empty() {
        let kept = named(&kept);
        story.push(format!("{kept} still have their data and come back as soon as their pods can run: look at their events and logs"));
    }
    if voters.len() - gone.len() < crate::quorum::quorum(voters.len()) {
        story.push(format!(
            "the data of {} is gone: create an EtcdRestore to bring back a backup",
            named(&gone)
        ));
    }
    story.join("; ")
}

fn has_data(view: &View, name: &Name) -> bool {
    match view.pod(name) {
        Some(pod) => !pod.finished() || view.claim(name).is_some(),
        None => view.claim(name).is_some_and(|claim| !claim.deleting),
    }
}

/// Creates only, and nothing that could start empty beside data: what is resumed is disarmed.
fn bring_back<'a>(view: &'a View) -> impl Iterator<Item = Step> + use<'a> {
    start_second(view).into_iter().chain(view.seen.claims.iter().filter_map(|claim| resume(view, claim)))
}

fn start_second(view: &View) -> Option<Step> {
    let second = view.awaited_second()?;
    match view.pod(&second.name) {
        None => Some(Step::CreateMember {
            name: second.name.clone(),
            version: view.resume_version()?,
            peers: View::peers(&view.seen.hearsay),
            joining: Vec::new(),
        }),
        // Disarmed, it could only resume, and it never started; with another list than etcd's it never will.
        Some(pod) if !pod.deleting && (pod.finished() || (!pod.running() && barred(view, pod))) => {
            Some(delete(pod))
        }
        Some(_) => None,
    }
}

fn barred(view: &View, pod: &Pod) -> bool {
    !pod.armed || !pod.knows(&view.seen.hearsay)
}

/// A claim whose pod is gone gets it back. Only claims of known voters, where any are known.
fn resume(view: &View, claim: &Claim) -> Option<Step> {
    let voters = view.known_voters();
    let ours = voters.is_empty() || voters.contains(&&claim.name);
    let awaited = view.awaited_second().is_some_and(|second| second.name == claim.name);
    if !ours
        || awaited
        || claim.deleting
        || view.may_run_unseen(&claim.name)
        || view.pod(&claim.name).is_some()
    {
        return None;
    }
    let version = view.resume_version()?;
    Some(Step::ResumeMember { name: claim.name.clone(), version, claim: claim.uid.clone() })
}

/// A pod that ended makes room for the one that resumes on its claim.
fn clear(view: &View, claim: &Claim) -> Option<Step> {
    view.pod(&claim.name).filter(|pod| pod.finished() && !pod.deleting && !claim.deleting).map(delete)
}

/// What the spec asks for still reaches pods that do not run: it may be the very thing that helps.
fn correct(view: &View, pod: &Pod) -> Option<Step> {
    if pod.running() || pod.finished() || pod.deleting || view.status(&pod.name).is_some() {
        return None;
    }
    match reachable(view, pod) {
        Some(version) if view.image_differs(pod, version) => {
            Some(Step::PatchImage { name: pod.name.clone(), uid: pod.uid.clone(), version })
        }
        _ => (view.outlives_pod(pod) && view.outdated(pod)).then(|| delete(pod)),
    }
}

/// The version that this pod's data can run at on the way to the spec's: from what last ran, or from what it asks for.
fn reachable(view: &View, pod: &Pod) -> Option<Version> {
    let target = view.target().ok()?;
    let from = view.seen.recorded.version.unwrap_or(pod.version).min(pod.version);
    let route = view.spec.hops.route(from, target).ok()?;
    // A pod that is already further on the way is not sent back to an earlier hop.
    let onward = route.iter().copied().find(|hop| *hop >= pod.version);
    onward.or(route.first().copied()).or(Some(target))
}

fn delete(pod: &Pod) -> Step {
    Step::DeletePod { name: pod.name.clone(), uid: pod.uid.clone() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::scene::{NOW, Scene, healthy, on_volumes};
    use super::*;
    use crate::observation::{NodeState, PodPhase};
    use crate::time::Moment;

    #[rstest]
    #[case::holds(|_: &mut Scene| {}, "-", "-")]
    #[case::nobody_reachable(|s: &mut Scene| s.dark(), "-", "wait")]
    #[case::leaderless_for_a_moment(|s: &mut Scene| {
        s.blind();
        s.seen.leaderless_since = Some(Moment(NOW.0 - 1000));
    }, "-", "wait")]
    #[case::leaderless(|s: &mut Scene| {
        s.blind();
        s.seen.leaderless_since = Some(Moment(NOW.0 - 5000));
    }, "wait", "-")]
    #[case::one_pod_gone(|s: &mut Scene| { s.lose_pod("b"); s.dark(); }, "-", "wait")]
    #[case::two_pods_gone(|s: &mut Scene| { s.lose_pod("b"); s.lose_pod("c"); s.dark(); }, "wait", "-")]
    #[case::two_crash(|s: &mut Scene| { s.crash("b", 1); s.crash("c", 1); s.dark(); }, "wait", "-")]
    #[case::two_restarted_by_us(|s: &mut Scene| {
        for name in ["b", "c"] {
            s.crash(name, 1);
            s.pod(name).changed = NOW;
        }
        s.dark();
    }, "-", "wait")]
    #[case::on_nodes_that_do_not_answer(|s: &mut Scene| {
        for name in ["b", "c"] {
            s.lose_pod(name);
            s.seen.last_nodes.insert(name.into(), NodeState::NotReady);
        }
        s.dark();
    }, "-", "wait")]
    #[case::a_version_for_those_that_crash(|s: &mut Scene| {
        s.crash("b", 1);
        s.crash("c", 1);
        s.want("3.5.17");
        s.dark();
    }, "image b 3.5.17, image c 3.5.17", "-")]
    fn on_empty_dirs(#[case] change: fn(&mut Scene), #[case] says: &str, #[case] unsure: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!((scene.ask(lost).as_str(), scene.ask(unknown).as_str()), (says, unsure));
    }

    #[rstest]
    #[case::all_pods_gone(|s: &mut Scene| {
        for name in ["a", "b", "c"] {
            s.lose_pod(name);
        }
        s.dark();
    }, "resume a 3.5.16, resume b 3.5.16, resume c 3.5.16", "-")]
    #[case::a_claim_that_goes(|s: &mut Scene| {
        for name in ["b", "c"] {
            s.lose_pod(name);
        }
        s.claim("c").deleting = true;
        s.dark();
    }, "resume b 3.5.16", "-")]
    #[case::of_a_removed_member(|s: &mut Scene| {
        s.seen.recorded.voters = vec!["a".into()];
        s.lose_pod("a");
        s.lose_pod("c");
        s.dark();
    }, "resume a 3.5.16", "-")]
    #[case::evicted(|s: &mut Scene| {
        for name in ["b", "c"] {
            s.silence(name, 1);
            s.pod(name).phase = PodPhase::Failed;
        }
        s.dark();
    }, "delete pod b, delete pod c", "-")]
    #[case::one_gone_while_the_others_cannot_be_heard(|s: &mut Scene| { s.lose_pod("b"); s.dark(); }, "-", "resume b 3.5.16")]
    fn on_volumes_too(#[case] change: fn(&mut Scene), #[case] says: &str, #[case] unsure: &str) {
        let mut scene = on_volumes("abc");
        change(&mut scene);
        assert_eq!((scene.ask(lost).as_str(), scene.ask(unknown).as_str()), (says, unsure));
    }

    #[rstest]
    #[case::no_pod_yet(|_: &mut Scene| {}, "create b 3.5.16 in ab")]
    #[case::first_restarted_and_silent(|s: &mut Scene| s.silence("a", 1), "create b 3.5.16 in ab")]
    fn the_second_voter_is_started(#[case] change: fn(&mut Scene), #[case] says: &str) {
        let mut scene = healthy("a");
        scene.list("b");
        scene.seen.hearsay[0].started = true;
        scene.blind();
        change(&mut scene);
        assert_eq!(scene.ask(unknown), says);
    }

    #[rstest]
    #[case::as_listed("ab", "wait")]
    #[case::a_third_was_removed_meanwhile("abc", "delete pod b")]
    fn a_second_voter_that_can_never_start_is_made_anew(#[case] peers: &str, #[case] says: &str) {
        let mut scene = healthy("ab");
        scene.member("b").started = false;
        (scene.seen.hearsay[0].started, scene.seen.hearsay[1].started) = (true, false);
        scene.pod("b").armed = true;
        scene.pod("b").peers = peers.chars().map(|name| name.to_string().into()).collect();
        scene.crash("b", 1);
        scene.blind();
        assert_eq!(scene.ask(unknown), says);
    }

    #[rstest]
    #[case::gone(
        |s: &mut Scene| { s.lose_pod("b"); s.lose_pod("c"); s.dark(); },
        "2 of 3 members are down: b, c; the data of b, c is gone: create an EtcdRestore to bring back a backup"
    )]
    #[case::hanging(
        |s: &mut Scene| { s.silence("b", 5); s.silence("c", 5); },
        "2 of 3 members do not answer: b, c; look at their nodes and logs"
    )]
    #[case::one_crashes_and_one_hangs(
        |s: &mut Scene| { s.crash("b", 60); s.silence("c", 5); },
        "1 of 3 members are down: b; 1 of 3 members do not answer: c; look at their nodes and logs; \
         b still have their data and come back as soon as their pods can run: look at their events and logs"
    )]
    #[case::apart(|_: &mut Scene| {}, "a, b, c know of no leader: look at the network between them")]
    fn the_story_names_members_and_the_next_step(#[case] change: fn(&mut Scene), #[case] told: &str) {
        let mut scene = healthy("abc");
        change(&mut scene);
        assert_eq!(scene.with_view(story), told);
    }
}
