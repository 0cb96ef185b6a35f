//! What the operator sees of the world, and what it fails to see.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Arms, Process, SimClaim, SimPod, World};
use crate::Moment;
use crate::ids::{ClusterId, Name};
use crate::observation::{Claim, Failing, Member, Node, Observation, Pod, PodPhase, Read, Status};
use crate::version::Version;

/// Reads that fail in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Glitch {
    /// The member list cannot be read.
    pub no_members: bool,
    /// These members do not answer the operator.
    pub deaf: BTreeSet<Name>,
    /// The cache is not brought up to date before this round.
    pub stale_cache: bool,
}

fn claim_seen(name: &Name, claim: &SimClaim) -> Claim {
    let SimClaim { uid, deleting, owned, .. } = claim;
    Claim { name: name.clone(), uid: uid.clone(), deleting: *deleting, owned: *owned }
}

impl World {
    /// One look. `live`: pods and claims straight from the API server.
    pub fn observe(&mut self, live: bool, glitch: &Glitch) -> Observation {
        if live || !glitch.stale_cache {
            self.cache = (self.pods.clone(), self.claims.clone());
        }
        let (pods, claims) = self.cache.clone();
        for (name, pod) in &pods {
            if let Some(node) = &pod.node {
                self.memory.nodes.insert(name.clone(), node.clone());
            }
        }
        let seed = self.seed_being_made().cloned();
        let asked = pods.keys().filter(|name| Some(*name) != seed.as_ref());
        let statuses: BTreeMap<_, _> = asked.map(|name| (name.clone(), self.ask(name, glitch))).collect();
        let cluster =
            self.recorded.cluster.or_else(|| statuses.values().find_map(Read::known).map(|s| s.cluster));
        let hearsay = self.hearsay(cluster, glitch);
        let members = match cluster {
            Some(id) if !glitch.no_members && !hearsay.is_empty() && self.has_quorum(id) => {
                Read::Known(hearsay.clone())
            }
            _ => Read::Unknown("no answer".to_owned()),
        };
        self.remember(members.known().is_some(), &hearsay, &statuses, &pods);
        let mut observation = self.assemble(&pods, &claims, live);
        let agreed = cluster.filter(|_| !hearsay.is_empty()).and_then(|id| self.clusters.get(&id));
        observation.agreed = agreed.map(|cluster| Version::new(3, cluster.agreed, 0));
        observation.members = members;
        observation.hearsay = hearsay;
        observation.statuses = statuses;
        observation.seed =
            seed.filter(|name| pods.contains_key(name)).and_then(|name| self.ask_seed(&name, glitch));
        observation
    }

    fn assemble(
        &mut self,
        pods: &BTreeMap<Name, SimPod>,
        claims: &BTreeMap<Name, SimClaim>,
        live: bool,
    ) -> Observation {
        let gone = |name: &&Name| !pods.contains_key(*name);
        let last_nodes = self.memory.nodes.iter().filter(|(name, _)| gone(name));
        Observation {
            recorded: self.recorded.clone(),
            pods: pods.iter().map(|(name, pod)| self.pod_seen(name, pod)).collect(),
            claims: claims.iter().map(|(name, claim)| claim_seen(name, claim)).collect(),
            left_claims: Vec::new(),
            live,
            headless_service: self.headless_service,
            client_service: self.client_service,
            budget: self.budget,
            members: Read::Unknown(String::new()),
            hearsay: Vec::new(),
            statuses: BTreeMap::new(),
            agreed: None,
            seed: None,
            alarms: Read::Known(Vec::new()),
            rival: None,
            image_checks: self.image_checks.clone(),
            backups: Read::Known(self.precautions.clone()),
            hash_checks: self.memory.hash_checks.clone(),
            rolled: self.memory.rolled,
            heard: self.memory.heard.clone(),
            answered: self.memory.answered.clone(),
            listed_since: self.memory.listed_since,
            // Whether status is written now or later depends on it, and nothing else.
            last_listed: Moment(0),
            leaderless_since: self.memory.leaderless_since,
            last_nodes: last_nodes.map(|(name, node)| (name.clone(), self.node_state(node))).collect(),
            fresh_names: (1..=7).map(|n| Self::member_name(self.made + n)).collect(),
        }
    }

    pub(super) fn pod_seen(&self, name: &Name, pod: &SimPod) -> Pod {
        let (phase, waiting, updated) = match &pod.process {
            _ if pod.failed => (PodPhase::Failed, None, true),
            _ if pod.node.is_none() => (PodPhase::Pending, None, true),
            Process::Down => (PodPhase::Pending, None, true),
            Process::Waiting(reason) => (PodPhase::Running, Some(reason.clone()), true),
            Process::Up { version, .. } => (PodPhase::Running, None, *version == pod.version),
        };
        let node = pod.node.as_ref().map(|node| Node { name: node.clone(), state: self.node_state(node) });
        let peers = match &pod.arms {
            Arms::New { .. } | Arms::Restored { .. } => vec![name.clone()],
            Arms::Existing { peers } => peers.iter().cloned().collect(),
            Arms::Disarmed => Vec::new(),
        };
        Pod {
            name: name.clone(),
            uid: pod.uid.clone(),
            phase,
            node,
            repository: pod.repository.clone(),
            version: pod.version,
            armed: pod.arms != Arms::Disarmed,
            peers,
            serving: pod.serving,
            ready: phase == PodPhase::Running && waiting.is_none(),
            addressed: pod.node.is_some().then_some(pod.created),
            // The model has no volume that cannot be mounted.
            begun: true,
            waiting,
            failing: (pod.failures > 0).then(|| Failing {
                times: pod.failures,
                words: "no".to_owned(),
                spoils: matches!(pod.arms, Arms::Restored { .. }),
            }),
            deleting: pod.deleting,
            template: pod.template.clone(),
            snapshot_count: 1,
            claim: pod.claim.clone(),
            created: pod.created,
            changed: pod.changed,
            updated,
        }
    }

    pub(super) fn ask(&self, name: &Name, glitch: &Glitch) -> Read<Status> {
        let silent = || Read::Unknown("no answer".to_owned());
        let (Some(version), Some(disk)) = (self.up(name), self.disk(name)) else { return silent() };
        let speaks =
            matches!(self.pods.get(name).map(|pod| &pod.process), Some(Process::Up { speaks: true, .. }));
        let Some(cluster) = self.clusters.get(&disk.cluster) else { return silent() };
        let foreign = self.recorded.cluster.is_some_and(|recorded| recorded != disk.cluster);
        let seeding = self.seed_being_made() == Some(name);
        let Some(member) = cluster.member(disk.member) else { return silent() };
        if !speaks || (foreign && !seeding) || glitch.deaf.contains(name) {
            return silent();
        }
        Read::Known(Status {
            cluster: disk.cluster,
            member: disk.member,
            version,
            leader: cluster.leader,
            term: cluster.term,
            raft_index: disk.index,
            applied_index: disk.index,
            db_size: 1,
            quota: 100,
            learner: member.learner,
        })
    }

    /// Any process tells, on its peer port, also without a quorum.
    fn hearsay(&self, cluster: Option<ClusterId>, glitch: &Glitch) -> Vec<Member> {
        let Some((id, cluster)) = cluster.and_then(|id| self.clusters.get_key_value(&id)) else {
            return Vec::new();
        };
        let tells =
            |member: &Member| !glitch.deaf.contains(&member.name) && self.member_up(*id, member).is_some();
        if cluster.members.iter().any(tells) { cluster.members.clone() } else { Vec::new() }
    }

    fn remember(
        &mut self,
        listed: bool,
        hearsay: &[Member],
        statuses: &BTreeMap<Name, Read<Status>>,
        pods: &BTreeMap<Name, SimPod>,
    ) {
        let now = self.now;
        self.memory.listed_since = listed.then(|| self.memory.listed_since.unwrap_or(now));
        for member in hearsay {
            self.memory.heard.entry(member.name.clone()).or_insert(now);
        }
        for (name, status) in statuses.iter().filter_map(|(name, status)| Some((name, status.known()?))) {
            self.memory.heard.insert(name.clone(), now);
            let Some(pod) = pods.get(name) else { continue };
            if status.version == pod.version {
                self.memory.answered.insert(pod.uid.clone());
            } else {
                self.memory.answered.remove(&pod.uid);
            }
        }
        let mut answers = statuses.values().filter_map(Read::known).peekable();
        let leaderless = answers.peek().is_some() && answers.all(|status| status.leader.is_none());
        let since = leaderless.then(|| self.memory.leaderless_since.unwrap_or(now));
        self.memory.leaderless_since = since;
    }
}
