//! The normal form of a world, for a model checker: worlds that differ only by the clock, by counters, or by which names
//! and numbers were given to things that are alike, become equal, so that what can happen is finite.
//!
//! Order is kept everywhere: which of two moments, names or IDs comes first is all that a rule may go by.

use std::collections::{BTreeMap, BTreeSet};

use super::operator::Intent;
use super::world::{Arms, Memory, SimClaim, SimPod, World};
use crate::ids::{ClusterId, MemberId, Name, Uid};
use crate::observation::{Member, Recorded, Restore, Stage};
use crate::step::Step;
use crate::time::Moment;

const NOW: Moment = Moment(1_000_000);
const TERM: u64 = 1;
/// Lags are counted back from here; there are fewer members than that.
const COMMITTED: u64 = 100;
/// A lag of one may be caught up with, more may not; beyond that only the order counts.
const LAG: u64 = 2;

/// More failures of a pod than any rule counts to are alike.
const FAILURES: u32 = 5;

type Numbers<'a> = &'a mut dyn FnMut(u64) -> u64;

impl World {
    /// Brings this world, and what a rival intends in it, into normal form.
    pub fn normalise(&mut self, rival: Option<&mut Intent>) {
        self.writes = 0;
        for pod in self.pods.values_mut().chain(self.cache.0.values_mut()) {
            pod.failures = pod.failures.min(FAILURES);
        }
        self.forget();
        self.settle_time();
        self.settle_indices();
        self.settle_nodes();
        self.settle_numbers(rival);
    }

    /// What nothing refers to any more.
    fn forget(&mut self) {
        let pods = self.pods.values().chain(self.cache.0.values());
        let claims = self.claims.values().chain(self.cache.1.values());
        let disks = pods.filter_map(|pod| pod.disk.as_ref());
        let disks = disks.chain(claims.filter_map(|claim| claim.disk.as_ref()));
        let mut held: BTreeSet<_> = disks.map(|disk| disk.cluster).chain(self.recorded.cluster).collect();
        for pod in self.pods.values() {
            if let Arms::New { token } | Arms::Restored { token, .. } = pod.arms {
                held.insert(ClusterId(token));
            }
        }
        self.clusters.retain(|id, _| held.contains(id));
        let (pods, claims) =
            (self.pods.keys().chain(self.cache.0.keys()), self.claims.keys().chain(self.cache.1.keys()));
        let mut known: BTreeSet<Name> = pods.chain(claims).cloned().collect();
        known.extend(self.recorded.voters.iter().chain(&self.recorded.seed).cloned());
        for cluster in self.clusters.values_mut() {
            let listed: BTreeSet<_> = cluster.members.iter().map(|member| member.id).collect();
            cluster.voted.retain(|id| listed.contains(id));
            known.extend(cluster.members.iter().map(|member| member.name.clone()));
        }
        self.memory.heard.retain(|name, _| known.contains(name));
        let pods: BTreeSet<_> = self.pods.values().chain(self.cache.0.values()).map(|pod| &pod.uid).collect();
        self.memory.answered.retain(|uid| pods.contains(uid));
        self.memory.nodes.retain(|name, _| known.contains(name));
        self.memory.rolled =
            self.memory.rolled.filter(|rolled| Some(rolled.cluster) == self.recorded.cluster);
        self.memory.hash_checks.retain(|check| known.contains(&check.member));
    }

    /// The clock is set back; what is older than any rule asks keeps its place in the order, and no more.
    fn settle_time(&mut self) {
        let knobs = &self.spec.knobs;
        let mut horizon = knobs.unresponsive_after.max(knobs.making_patience).max(knobs.image_check_retry);
        if self.recorded.restore.is_some() || self.spec.restore.is_some() {
            horizon = horizon.max(knobs.seed_patience).max(knobs.room_patience);
        }
        let horizon = u64::try_from(horizon.as_millis()).unwrap_or(u64::MAX);
        let now = self.now;
        // Beyond the horizon it is no more than long ago.
        let listed = |since: Moment| Moment(NOW.0 - now.0.saturating_sub(since.0).min(horizon + 1));
        self.memory.listed_since = self.memory.listed_since.map(listed);
        let age = |moment: Moment| now.0.saturating_sub(moment.0);
        let mut old = BTreeSet::new();
        self.each_moment(&mut |moment| {
            if age(*moment) > horizon {
                old.insert(age(*moment));
            }
        });
        let old: BTreeMap<u64, u64> = old.into_iter().zip(horizon + 1..).collect();
        self.each_moment(&mut |moment| {
            let settled = old.get(&age(*moment)).copied().unwrap_or(age(*moment));
            *moment = Moment(NOW.0 - settled);
        });
        self.now = NOW;
    }

    fn each_moment(&mut self, visit: &mut dyn FnMut(&mut Moment)) {
        for pod in self.pods.values_mut().chain(self.cache.0.values_mut()) {
            visit(&mut pod.created);
            visit(&mut pod.changed);
        }
        self.memory.heard.values_mut().for_each(&mut *visit);
        self.memory.leaderless_since.iter_mut().for_each(&mut *visit);
        self.image_checks.iter_mut().for_each(|check| visit(&mut check.at));
        self.precautions.asked.iter_mut().for_each(|asked| visit(&mut asked.at));
    }

    fn settle_indices(&mut self) {
        let ids: Vec<_> = self.clusters.keys().copied().collect();
        for id in ids {
            let Some(cluster) = self.clusters.get_mut(&id) else { continue };
            let committed = std::mem::replace(&mut cluster.committed, COMMITTED);
            cluster.term = TERM;
            let mut lags = BTreeSet::new();
            self.each_index(id, &mut |index| lags.extend([committed.saturating_sub(*index)]));
            let far: BTreeMap<u64, u64> = lags.into_iter().filter(|lag| *lag > LAG).zip(LAG + 1..).collect();
            self.each_index(id, &mut |index| {
                let lag = committed.saturating_sub(*index);
                *index = COMMITTED - far.get(&lag).copied().unwrap_or(lag);
            });
        }
    }

    fn each_index(&mut self, id: ClusterId, visit: &mut dyn FnMut(&mut u64)) {
        let pods =
            self.pods.values_mut().chain(self.cache.0.values_mut()).filter_map(|pod| pod.disk.as_mut());
        let claims = self.claims.values_mut().chain(self.cache.1.values_mut());
        for disk in pods.chain(claims.filter_map(|claim| claim.disk.as_mut())) {
            if disk.cluster == id {
                visit(&mut disk.index);
            }
        }
    }

    /// Nodes that are alike are named in the order of their pods.
    fn settle_nodes(&mut self) {
        let on = |node: &Name, pods: &BTreeMap<Name, SimPod>| -> Vec<Name> {
            let here = pods.iter().filter(|(_, pod)| pod.node.as_ref() == Some(node));
            here.map(|(name, _)| name.clone()).collect()
        };
        let remembered = |node: &Name| -> Vec<Name> {
            self.memory.nodes.iter().filter(|(_, on)| *on == node).map(|(name, _)| name.clone()).collect()
        };
        let checked = |node: &Name| self.image_checks.iter().position(|check| check.node == *node);
        let mut nodes: Vec<_> = self.nodes.keys().cloned().collect();
        // Those that carry nothing come last.
        nodes.sort_by_cached_key(|node| {
            let here = on(node, &self.pods);
            let gone = format!("{:?}", self.nodes.get(node));
            (here.is_empty(), here, on(node, &self.cache.0), remembered(node), checked(node), gone)
        });
        let names: BTreeMap<Name, Name> = nodes.into_iter().zip(self.nodes.keys().cloned()).collect();
        let rename = |node: &mut Name| {
            if let Some(name) = names.get(node) {
                node.clone_from(name);
            }
        };
        let pods = self.pods.values_mut().chain(self.cache.0.values_mut());
        pods.filter_map(|pod| pod.node.as_mut()).for_each(rename);
        self.memory.nodes.values_mut().for_each(rename);
        self.image_checks.iter_mut().for_each(|check| rename(&mut check.node));
        let states = std::mem::take(&mut self.nodes);
        self.nodes = states.into_iter().map(|(node, state)| (names[&node].clone(), state)).collect();
    }

    /// Names, UIDs and IDs come from one counter; without the gaps that the dead left, it starts over.
    fn settle_numbers(&mut self, mut rival: Option<&mut Intent>) {
        let mut used = BTreeSet::new();
        let mut collect = |number| {
            used.insert(number);
            number
        };
        self.renumber(&mut collect);
        if let Some(rival) = rival.as_deref_mut() {
            rival.trim();
            rival.renumber(&mut collect);
        }
        self.made = used.len() as u64;
        if used.last().copied().unwrap_or(0) == self.made {
            return;
        }
        let settled: BTreeMap<u64, u64> = used.into_iter().zip(1..).collect();
        let mut settle = |number| settled.get(&number).copied().unwrap_or(number);
        self.renumber(&mut settle);
        if let Some(rival) = rival {
            rival.renumber(&mut settle);
        }
    }

    fn renumber(&mut self, with: Numbers) {
        renumber_recorded(&mut self.recorded, with);
        for (pods, claims) in [(&mut self.pods, &mut self.claims), (&mut self.cache.0, &mut self.cache.1)] {
            rekey(pods, with, name_number, renumber_pod);
            rekey(claims, with, name_number, renumber_claim);
        }
        rekey(
            &mut self.clusters,
            with,
            |id, with| id.0 = with(id.0),
            |cluster, with| {
                cluster.members.iter_mut().for_each(|member| renumber_member(member, with));
                cluster.voted =
                    std::mem::take(&mut cluster.voted).into_iter().map(|id| MemberId(with(id.0))).collect();
                cluster.leader.iter_mut().for_each(|id| id.0 = with(id.0));
            },
        );
        let Memory { heard, answered, listed_since: _, leaderless_since: _, nodes, hash_checks, rolled } =
            &mut self.memory;
        rekey(heard, with, name_number, |_, _| {});
        *answered =
            std::mem::take(answered).into_iter().map(|uid| renumbered(uid, with, uid_number)).collect();
        rekey(nodes, with, name_number, |_, _| {});
        rolled.iter_mut().for_each(|rolled| rolled.cluster.0 = with(rolled.cluster.0));
        hash_checks.iter_mut().for_each(|check| name_number(&mut check.member, with));
        for check in &mut self.image_checks {
            uid_number(&mut check.uid, with);
            check.pod = Name(format!("check-{}", check.uid));
        }
    }
}

impl Intent {
    /// Only what it does, and what its preconditions rest on.
    pub(super) fn trim(&mut self) {
        let plan = &mut self.plan;
        plan.why.clear();
        plan.wake_after = None;
        plan.passing = false;
        plan.actions.iter_mut().for_each(|action| action.events.clear());
        let report = &mut plan.report;
        report.phase = crate::Phase::None;
        report.control_paused = false;
        report.size = 0;
        report.reason.clear();
        report.ready.clear();
        report.unready.clear();
        report.conditions.clear();
        report.leader = None;
        report.db_size = None;
        report.target_version = None;
        let seen = &mut self.seen;
        (seen.live, seen.headless_service, seen.client_service) = (false, false, false);
        (seen.budget, seen.agreed) = (None, None);
        seen.seed = None;
        seen.hearsay.clear();
        seen.members = crate::Read::Unknown(String::new());
        seen.statuses.clear();
        seen.left_claims.clear();
        seen.image_checks.clear();
        seen.backups = crate::Read::Unknown(String::new());
        seen.hash_checks.clear();
        seen.rolled = None;
        seen.heard.clear();
        seen.answered.clear();
        (seen.listed_since, seen.leaderless_since) = (None, None);
        seen.last_nodes.clear();
        seen.fresh_names.clear();
        let steps = plan.actions.iter().map(|action| &action.step);
        let touched: Vec<_> = steps
            .filter_map(|step| match step {
                Step::DeletePod { name, .. }
                | Step::PatchImage { name, .. }
                | Step::AddMember { name, .. } => Some(name.clone()),
                _ => None,
            })
            .collect();
        seen.pods.retain(|pod| touched.contains(&pod.name));
        seen.claims.retain(|claim| touched.contains(&claim.name));
        for pod in &mut seen.pods {
            pod.node = None;
            pod.peers.clear();
            pod.waiting = None;
            pod.failing = None;
            pod.claim = None;
            (pod.created, pod.changed) = (NOW, NOW);
        }
    }

    fn renumber(&mut self, with: Numbers) {
        renumber_recorded(&mut self.seen.recorded, with);
        self.plan.report.voters.iter_mut().for_each(|name| name_number(name, with));
        for pod in &mut self.seen.pods {
            name_number(&mut pod.name, with);
            uid_number(&mut pod.uid, with);
        }
        for claim in &mut self.seen.claims {
            name_number(&mut claim.name, with);
            uid_number(&mut claim.uid, with);
        }
        for action in &mut self.plan.actions {
            renumber_step(&mut action.step, with);
        }
    }
}

fn renumber_recorded(recorded: &mut Recorded, with: Numbers) {
    recorded.seed.iter_mut().chain(&mut recorded.voters).for_each(|name| name_number(name, with));
    recorded.cluster.iter_mut().for_each(|id| id.0 = with(id.0));
    recorded.restore.iter_mut().for_each(|restore| renumber_restore(restore, with));
}

/// Requests are the user's, and keep their UIDs. Nobody acts on the words of a failure, which hold names.
fn renumber_restore(restore: &mut Restore, with: Numbers) {
    if let Stage::Failed(why) = &mut restore.stage {
        why.clear();
    }
    name_number(&mut restore.seed, with);
    restore.replaced.iter_mut().for_each(|name| name_number(name, with));
}

fn renumber_pod(pod: &mut SimPod, with: Numbers) {
    uid_number(&mut pod.uid, with);
    pod.claim.iter_mut().for_each(|uid| uid_number(uid, with));
    pod.disk.iter_mut().for_each(|disk| renumber_disk(disk, with));
    match &mut pod.arms {
        Arms::New { token } | Arms::Restored { token, .. } => *token = with(*token),
        Arms::Existing { peers } => {
            *peers =
                std::mem::take(peers).into_iter().map(|name| renumbered(name, with, name_number)).collect();
        }
        Arms::Disarmed => {}
    }
}

fn renumber_claim(claim: &mut SimClaim, with: Numbers) {
    uid_number(&mut claim.uid, with);
    claim.disk.iter_mut().for_each(|disk| renumber_disk(disk, with));
}

fn renumber_disk(disk: &mut super::Disk, with: Numbers) {
    disk.cluster.0 = with(disk.cluster.0);
    disk.member.0 = with(disk.member.0);
}

fn renumber_member(member: &mut Member, with: Numbers) {
    member.id.0 = with(member.id.0);
    let old = member.name.clone();
    name_number(&mut member.name, with);
    if old != member.name {
        member.peer_urls = super::etcd::member(member.id, &member.name, member.learner).peer_urls;
    }
}

fn renumber_step(step: &mut Step, with: Numbers) {
    match step {
        Step::ListLive
        | Step::EnsureHeadlessService
        | Step::EnsureClientService
        | Step::SetBudget { .. }
        | Step::BackUp { .. }
        | Step::CheckImage { .. } => {}
        Step::RecordCluster { id } => id.0 = with(id.0),
        Step::RollLog { to } => to.cluster.0 = with(to.cluster.0),
        Step::RecordSeed { name }
        | Step::CreateSeed { name, .. }
        | Step::CreateRestoredSeed { name, .. }
        | Step::AddMember { name, .. } => {
            name_number(name, with);
        }
        Step::RecordRestore { restore } => renumber_restore(restore, with),
        Step::SwapCluster { id, restore, .. } => {
            id.0 = with(id.0);
            renumber_restore(restore, with);
        }
        Step::CreateMember { name, peers, joining, .. } => {
            name_number(name, with);
            // The world goes by names.
            peers.iter_mut().for_each(|peer| name_number(&mut peer.name, with));
            joining.iter_mut().for_each(|name| name_number(name, with));
        }
        Step::ResumeMember { name, claim: uid, .. }
        | Step::MarkPod { name, uid, .. }
        | Step::Adopt { name, uid }
        | Step::StopServing { name, uid }
        | Step::PatchImage { name, uid, .. }
        | Step::DeletePod { name, uid }
        | Step::DeleteClaim { name, uid }
        | Step::OwnClaim { name, uid, .. } => {
            name_number(name, with);
            uid_number(uid, with);
        }
        Step::Promote { id, name } | Step::RemoveMember { id, name } => {
            id.0 = with(id.0);
            name_number(name, with);
        }
        Step::MoveLeader { from, to } => {
            from.0 = with(from.0);
            to.0 = with(to.0);
        }
        Step::DropImageCheck { pod, uid } => {
            uid_number(uid, with);
            *pod = Name(format!("check-{uid}"));
        }
        Step::CompareHash { member, with: other, .. } => {
            name_number(member, with);
            name_number(other, with);
        }
    }
}

fn name_number(name: &mut Name, with: Numbers) {
    if let Some(old) = name.0.strip_prefix('m').and_then(|number| number.parse().ok()) {
        let new = with(old);
        if new != old {
            *name = World::member_name(new);
        }
    }
}

fn renumbered<T>(mut of: T, with: Numbers, number: fn(&mut T, Numbers)) -> T {
    number(&mut of, with);
    of
}

fn uid_number(uid: &mut Uid, with: Numbers) {
    if let Some(old) = uid.0.strip_prefix('u').and_then(|number| number.parse().ok()) {
        let new = with(old);
        if new != old {
            *uid = Uid(format!("u{new}"));
        }
    }
}

/// The same map under new keys; `with` keeps their order.
fn rekey<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    with: Numbers,
    key_number: fn(&mut K, Numbers),
    value_number: fn(&mut V, Numbers),
) {
    *map = std::mem::take(map)
        .into_iter()
        .map(|(mut key, mut value)| {
            key_number(&mut key, with);
            value_number(&mut value, with);
            (key, value)
        })
        .collect();
}
