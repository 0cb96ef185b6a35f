//! What follows from an observation: who answers, who is healthy, whose data is where. Facts only, no decisions.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::{MemberId, Name};
use crate::observation::{Claim, Member, NodeState, Observation, Pod, PodPhase, Read, Status};
use crate::quorum;
use crate::spec::{Spec, Storage};
use crate::step::Peer;
use crate::time::Moment;
use crate::version::{Refusal, Version};

/// A container that we started or restarted ourselves may be down this long before it proves anything.
const RESTART_GRACE: Duration = Duration::from_secs(8);

/// Waiting reasons that blame the image, not the member.
pub const IMAGE_REASONS: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];

#[derive(Clone, Copy)]
pub struct View<'a> {
    pub spec: &'a Spec,
    pub seen: &'a Observation,
    /// What a restore replaced.
    pub kept: &'a Kept,
    pub now: Moment,
}

/// Pods and claims that belong to the past of a restored cluster: to its rule a thing to keep, to all others not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub pods: Vec<Pod>,
    pub claims: Vec<Claim>,
}

/// What the rules see, and what is kept from them.
pub fn set_aside(seen: &Observation) -> (Cow<'_, Observation>, Kept) {
    let replaced = seen.recorded.restore.as_ref().map_or(&[][..], |restore| &restore.replaced);
    if replaced.is_empty() {
        return (Cow::Borrowed(seen), Kept::default());
    }
    let mut visible = seen.clone();
    let pods = visible.pods.extract_if(.., |pod| replaced.contains(&pod.name)).collect();
    let claims = visible.claims.extract_if(.., |claim| replaced.contains(&claim.name)).collect();
    visible.statuses.retain(|name, _| !replaced.contains(name));
    (Cow::Owned(visible), Kept { pods, claims })
}

/// Where the data of a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    Exists,
    /// Proven gone: the pod is gone from a node that is up or gone, it ended on an emptyDir, or its claim is gone.
    Gone,
    Unsure,
}

/// Whether the cluster can agree on anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quorum {
    Holds,
    /// The second of two voters has not started yet: expected where there are no learners.
    AwaitsSecond,
    Lost,
    Unknown(String),
}

impl Pod {
    pub(crate) fn finished(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    pub(crate) fn running(&self) -> bool {
        self.phase == PodPhase::Running && self.waiting.is_none() && !self.deleting
    }

    pub(crate) fn node_lost(&self) -> bool {
        self.node.as_ref().is_some_and(|node| matches!(node.state, NodeState::NotReady | NodeState::Gone))
    }

    /// Its node takes care of it and has not got as far as etcd: the image is pulled, the volume attached.
    pub(crate) fn in_the_making(&self) -> bool {
        let placed = self.node.is_some() && !self.node_lost();
        self.phase == PodPhase::Pending && placed && self.waiting.is_none() && !self.deleting
    }

    /// Its `--initial-cluster` names these, no more and no less.
    pub(crate) fn knows(&self, members: &[Member]) -> bool {
        let listed: BTreeSet<_> = members.iter().map(|member| &member.name).collect();
        self.peers.iter().collect::<BTreeSet<_>>() == listed
    }

    pub(crate) fn image_fails(&self) -> bool {
        self.waiting.as_deref().is_some_and(|reason| IMAGE_REASONS.contains(&reason))
    }
}

impl<'a> View<'a> {
    pub fn pod(&self, name: &Name) -> Option<&'a Pod> {
        self.seen.pods.iter().find(|pod| pod.name == *name)
    }

    pub fn claim(&self, name: &Name) -> Option<&'a Claim> {
        self.seen.claims.iter().find(|claim| claim.name == *name)
    }

    pub fn status(&self, name: &Name) -> Option<&'a Status> {
        self.seen.statuses.get(name).and_then(Read::known)
    }

    /// The members of a list that was read linearizably; none if there is no such list.
    pub fn members(&self) -> &'a [Member] {
        self.seen.members.known().map_or(&[], Vec::as_slice)
    }

    pub fn voters(&self) -> impl Iterator<Item = &'a Member> + use<'a> {
        self.members().iter().filter(|member| !member.learner)
    }

    pub fn learners(&self) -> impl Iterator<Item = &'a Member> + use<'a> {
        self.members().iter().filter(|member| member.learner)
    }

    pub fn voter_count(&self) -> usize {
        self.voters().count()
    }

    pub fn size(&self) -> usize {
        self.spec.size as usize
    }

    /// The member's own answer.
    pub fn answer(&self, member: &Member) -> Option<&'a Status> {
        self.status(&member.name).filter(|status| status.member == member.id)
    }

    pub fn answers(&self, member: &Member) -> bool {
        self.answer(member).is_some()
    }

    /// A voter that follows a leader, on the image its pod asks for, and is not about to go.
    pub fn healthy(&self, member: &Member) -> bool {
        let (Some(status), Some(pod)) = (self.answer(member), self.pod(&member.name)) else { return false };
        !member.learner
            && status.leader.is_some()
            && !pod.deleting
            && pod.updated
            && pod.version == status.version
    }

    pub fn healthy_others(&self, member: &Member) -> usize {
        self.voters().filter(|other| other.id != member.id && self.healthy(other)).count()
    }

    pub fn healthy_voters(&self) -> usize {
        self.voters().filter(|voter| self.healthy(voter)).count()
    }

    pub fn survives_removal(&self, member: &Member) -> bool {
        member.learner
            || quorum::survives_removal(self.voter_count(), self.healthy_others(member), self.healthy(member))
    }

    pub fn survives_restart(&self, member: &Member) -> bool {
        member.learner || quorum::survives_restart(self.voter_count(), self.healthy_others(member))
    }

    /// As the members that answer with the highest term say.
    pub fn leader(&self) -> Option<MemberId> {
        let answers = self.seen.statuses.values().filter_map(Read::known);
        answers.filter_map(|status| status.leader.map(|leader| (status.term, leader))).max().map(|(_, id)| id)
    }

    pub fn leads(&self, member: &Member) -> bool {
        self.leader() == Some(member.id)
    }

    pub fn caught_up(&self, member: &Member) -> bool {
        self.answer(member).is_some_and(|status| {
            self.newest_entry().saturating_sub(status.applied_index) <= self.spec.knobs.catch_up_entries
        })
    }

    /// How far the log is, as far as anyone says.
    pub fn newest_entry(&self) -> u64 {
        self.seen.statuses.values().filter_map(Read::known).map(|s| s.raft_index).max().unwrap_or(0)
    }

    /// What the spec says of members to come says nothing of a pod that is there.
    pub fn persistent(&self, name: &Name) -> bool {
        let made_so = match self.pod(name) {
            Some(pod) => pod.claim.is_some(),
            None => self.spec.storage == Storage::Persistent,
        };
        made_so || self.claim(name).is_some()
    }

    /// The pod is gone, but the node it ran on does not answer, or nobody says how it is: the process may still run.
    pub fn may_run_unseen(&self, name: &Name) -> bool {
        matches!(self.seen.last_nodes.get(name), Some(NodeState::NotReady | NodeState::Unread))
    }

    pub fn data(&self, member: &Member) -> Data {
        let name = &member.name;
        if self.answers(member) {
            return Data::Exists;
        }
        let claim = self.claim(name);
        match self.pod(name) {
            Some(pod) if self.persistent(name) => match claim {
                Some(claim) if pod.claim.as_ref().is_none_or(|uid| *uid == claim.uid) => Data::Exists,
                _ => Data::Gone,
            },
            Some(pod) if pod.finished() => Data::Gone,
            Some(_) => Data::Exists,
            None if self.may_run_unseen(name) => Data::Unsure,
            None if self.persistent(name) => match claim {
                Some(claim) if claim.deleting => Data::Unsure,
                Some(_) => Data::Exists,
                None => Data::Gone,
            },
            None => Data::Gone,
        }
    }

    /// A member that never started may be (re)created empty only if it cannot have voted: a learner, one whose claim
    /// still is the one it had; or the second of two, which nothing else can help.
    pub fn may_start_empty(&self, member: &Member) -> bool {
        !member.started
            && (member.learner
                || self.claim(&member.name).is_some_and(|claim| !claim.deleting)
                || self.voter_count() == 2)
    }

    /// Its `--initial-cluster` neither is the member list nor will be: without data etcd refuses to start, for ever.
    pub fn stale(&self, pod: &Pod) -> bool {
        let room: BTreeSet<_> = self.waiting_room().into_iter().map(|pod| &pod.name).collect();
        pod.armed && !self.will_be_listed(pod, &room)
    }

    /// The claim it was made with is gone: it can never run.
    pub fn unbacked(&self, pod: &Pod) -> bool {
        pod.claim.as_ref().is_some_and(|uid| self.claim(&pod.name).is_none_or(|claim| claim.uid != *uid))
    }

    /// The list as `--initial-cluster` must name it.
    pub fn peers(members: &[Member]) -> Vec<Peer> {
        let peers = members.iter().flat_map(|member| {
            member.peer_urls.iter().map(|url| Peer { name: member.name.clone(), url: url.clone() })
        });
        peers.collect()
    }

    /// What joiners start on.
    pub fn lowest_running(&self) -> Option<Version> {
        self.seen.statuses.values().filter_map(Read::known).map(|status| status.version).min()
    }

    /// Everyone who started tells of itself.
    pub fn all_answer(&self) -> bool {
        !self.members().is_empty() && self.members().iter().all(|m| self.answers(m) || !m.started)
    }

    /// The lowest version that runs, or ran when it was last heard of: a silent member may still be on the old one.
    pub fn current_version(&self) -> Option<Version> {
        let lowest = self.lowest_running();
        // What the cluster has left behind cannot come back, whatever was recorded.
        let left_behind = |old: &Version| self.seen.agreed.is_some_and(|agreed| old.before_minor_of(agreed));
        match (lowest, self.seen.recorded.version.filter(|recorded| !left_behind(recorded))) {
            (Some(lowest), _) if self.all_answer() => Some(lowest),
            (Some(lowest), Some(recorded)) => Some(lowest.min(recorded)),
            (lowest, recorded) => lowest.or(recorded),
        }
    }

    /// The spec's version, if it may run at all.
    pub fn target(&self) -> Result<Version, Refusal> {
        self.spec.hops.accept(self.spec.version.parse()?)
    }

    /// The version that all members go to next; refused if the whole way is not open.
    pub fn next_version(&self) -> Result<Version, Refusal> {
        let target = self.target()?;
        let Some(current) = self.current_version() else { return Ok(target) };
        Ok(self.spec.hops.route(current, target)?.first().copied().unwrap_or(target))
    }

    /// The version for the pod of a member that has its data, when nobody can say what it ran.
    pub fn resume_version(&self) -> Option<Version> {
        self.lowest_running().or(self.seen.recorded.version).or_else(|| self.target().ok())
    }

    pub fn image_differs(&self, pod: &Pod, version: Version) -> bool {
        pod.version != version || pod.repository != self.spec.repository
    }

    /// The pod is to be made anew: its template changed, or its claim goes when it does.
    pub fn outdated(&self, pod: &Pod) -> bool {
        let changed = pod.template != self.spec.template && !pod.is_inherited();
        changed || self.claim(&pod.name).is_some_and(|claim| claim.deleting)
    }

    /// The data is still there when the pod is not.
    pub fn outlives_pod(&self, pod: &Pod) -> bool {
        let mut claims = self.seen.claims.iter().chain(&self.kept.claims);
        claims.any(|claim| {
            claim.name == pod.name
                && !claim.deleting
                && pod.claim.as_ref().is_none_or(|uid| *uid == claim.uid)
        })
    }

    /// How many members there may be: one more than the size while a member is being swapped for a new one.
    pub fn wanted(&self) -> usize {
        self.size() + usize::from(self.swaps())
    }

    /// Where data does not outlive its pod, members are swapped, new before old.
    pub fn swaps(&self) -> bool {
        let pods = self.voters().filter(|voter| voter.started).filter_map(|voter| self.pod(&voter.name));
        pods.into_iter().any(|pod| self.outdated(pod) && !self.outlives_pod(pod))
    }

    /// Every member is a started, healthy voter that keeps up.
    pub fn unsettled(&self) -> Option<String> {
        let of = |what: &str, member: &Member| Some(format!("{} {what}", member.name));
        for member in self.members() {
            if member.learner || !member.started {
                return of("is still joining", member);
            } else if !self.healthy(member) {
                return of("is not healthy", member);
            } else if !self.caught_up(member) {
                return of("is still catching up", member);
            }
        }
        None
    }

    /// The members as etcd tells them, linearizably or not.
    pub fn told_members(&self) -> &'a [Member] {
        self.seen.members.known().unwrap_or(&self.seen.hearsay)
    }

    /// The voters as etcd tells them, or as last recorded.
    pub fn told_voters(&self) -> Vec<&'a Name> {
        let told: Vec<_> =
            self.told_members().iter().filter(|m| !m.learner).map(|member| &member.name).collect();
        if told.is_empty() { self.seen.recorded.voters.iter().collect() } else { told }
    }

    /// The voters as far as anyone knows; right after the cluster began its seed is all there is.
    pub fn known_voters(&self) -> Vec<&'a Name> {
        let told = self.told_voters();
        if told.is_empty() { self.seen.recorded.seed.iter().collect() } else { told }
    }

    /// Its pod proves that the member does not run.
    pub fn proven_down(&self, name: &Name) -> bool {
        match self.pod(name) {
            None => !self.may_run_unseen(name),
            Some(pod) if pod.finished() => true,
            Some(pod) => {
                (pod.phase == PodPhase::Pending || pod.waiting.is_some())
                    && self.now.since(pod.changed) >= RESTART_GRACE
            }
        }
    }

    pub fn quorum(&self) -> Quorum {
        let Read::Unknown(reason) = &self.seen.members else { return Quorum::Holds };
        if self.awaited_second().is_some() {
            return Quorum::AwaitsSecond;
        }
        let voters = self.known_voters();
        let up = voters.iter().filter(|name| !self.proven_down(name)).count();
        let leaderless = self
            .seen
            .leaderless_since
            .is_some_and(|since| self.now.since(since) >= self.spec.knobs.leaderless_after);
        if leaderless || (!voters.is_empty() && up < quorum::quorum(voters.len())) {
            return Quorum::Lost;
        }
        Quorum::Unknown(reason.clone())
    }

    /// Nothing proves a loss yet, and a quorum was heard of too lately to speak of silence. That members answer each for
    /// itself says nothing of a quorum.
    pub fn silent_for_a_moment(&self) -> bool {
        self.now.since(self.seen.last_listed) < self.spec.knobs.moment()
            && matches!(self.quorum(), Quorum::Unknown(_))
    }

    /// Of two voters the one that has not started: without it the other cannot list members linearizably, and for the
    /// same reason its plain list is complete.
    pub fn awaited_second(&self) -> Option<&'a Member> {
        let hearsay = &self.seen.hearsay;
        let unstarted = hearsay.iter().find(|member| !member.started && !member.learner)?;
        let first = hearsay.iter().find(|member| member.id != unstarted.id)?;
        (hearsay.len() == 2 && !first.learner && self.data(first) != Data::Gone).then_some(unstarted)
    }

    /// Not long enough ago to say that it fails to start.
    pub fn second_just_starts(&self) -> bool {
        self.awaited_second().is_some_and(|second| self.silent_for(second) < RESTART_GRACE)
    }

    /// How long this member has not answered, counted from our own last change to its pod, and from when there was a
    /// quorum again: in an outage everybody is silent.
    pub fn silent_for(&self, member: &Member) -> Duration {
        let heard = self.seen.heard.get(&member.name).copied().unwrap_or(self.now);
        let changed = self.pod(&member.name).map_or(heard, |pod| pod.changed);
        let listed = self.seen.listed_since.unwrap_or(heard);
        self.now.since(heard.max(changed).max(listed))
    }
}
