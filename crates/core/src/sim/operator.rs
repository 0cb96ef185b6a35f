//! The operator: observe, plan with the real planner, apply. It may crash after any step.

use super::observe::Glitch;
use super::world::{Arms, Memory, Process, SimClaim, SimPod, World};
use crate::ids::{Name, Uid};
use crate::observation::{AskedBackup, Check, HashCheck, ImageCheck, Member, Observation, Recorded, Rolled};
use crate::plan::{Plan, plan};
use crate::spec::Storage;
use crate::step::{Peer, Step};
use crate::version::Version;

/// A plan, and what it was made from: its preconditions hold against that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Intent {
    pub plan: Plan,
    pub(super) seen: Observation,
}

/// How one round went.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    pub plan: Plan,
    /// How many steps were carried out.
    pub done: usize,
    /// Why the round ended early, if it did.
    pub failed: Option<String>,
}

impl World {
    /// One reconcile. With `crash_after`, the process dies after that many steps and forgets.
    pub fn reconcile(&mut self, glitch: &Glitch, crash_after: Option<usize>) -> Round {
        let intent = self.intend(glitch);
        self.judge(&intent.seen, &intent.plan);
        let round = self.carry_out(&intent, crash_after, Self::judge_step);
        if crash_after.is_some() {
            self.memory = Memory::default();
        } else {
            self.write_status(&round.plan);
        }
        round
    }

    /// Looks and plans, and leaves it at that for now.
    pub fn intend(&mut self, glitch: &Glitch) -> Intent {
        let mut seen = self.observe(false, glitch);
        let mut next = plan(&self.spec, &seen, self.now);
        if next.actions.iter().any(|action| action.step == Step::ListLive) {
            seen = self.observe(true, glitch);
            next = plan(&self.spec, &seen, self.now);
        }
        Intent { plan: next, seen }
    }

    /// Another operator, which believed that it leads, carries out what it once intended. It cannot know what this costs
    /// in quorum by now; but data, identity and the laws of the world stand.
    pub fn rival_acts(&mut self, intent: &Intent) -> Round {
        let memory = std::mem::take(&mut self.memory);
        let round = self.carry_out(intent, None, Self::judge_data);
        self.memory = memory;
        round
    }

    fn carry_out(
        &mut self,
        intent: &Intent,
        crash_after: Option<usize>,
        judge: fn(&mut Self, &Step),
    ) -> Round {
        let mut round = Round { plan: intent.plan.clone(), done: 0, failed: None };
        let mut recorded = intent.seen.recorded.clone();
        for action in &intent.plan.actions {
            let step = &action.step;
            if crash_after.is_some_and(|limit| round.done >= limit) {
                break;
            }
            if let Err(reason) = self.as_seen(step, &intent.seen, &recorded) {
                round.failed = Some(reason);
                break;
            }
            judge(self, step);
            if let Err(reason) = self.apply(step) {
                round.failed = Some(reason);
                break;
            }
            if matches!(step, Step::RecordCluster { .. }) {
                self.recorded.voters.clone_from(&round.plan.report.voters);
                self.recorded.version = round.plan.report.current_version;
            }
            if step.records() {
                recorded.clone_from(&self.recorded);
            }
            round.done += 1;
        }
        round
    }

    /// Destructive and recording calls carry a resource version, or ask just before: what they rest on is as it was seen.
    fn as_seen(&self, step: &Step, seen: &Observation, recorded: &Recorded) -> Result<(), String> {
        let same = match step {
            // The seed is asked once more.
            Step::SwapCluster { id, restore, .. } if !self.leads_alone(&restore.seed, *id) => false,
            step if step.records() => self.recorded == *recorded,
            // A member is added for the pod that waits for it.
            Step::AddMember { name, .. } => {
                let waits = |pod: &crate::Pod| (!pod.deleting).then(|| pod.uid.clone());
                let now = self.pods.get(name).and_then(|pod| waits(&self.pod_seen(name, pod)));
                let then = seen.pods.iter().find(|pod| pod.name == *name).and_then(waits);
                now.is_some() && now == then && self.recorded.cluster == seen.recorded.cluster
            }
            // Members are asked in the name of the cluster that the plan was made for.
            step if step.changes_membership()
                || matches!(step, Step::MoveLeader { .. } | Step::RollLog { .. }) =>
            {
                self.recorded.cluster == seen.recorded.cluster
            }
            // A claim that goes goes with its pod.
            Step::DeletePod { name, .. } if !self.claim_is_as_seen(name, seen) => false,
            Step::DeletePod { name, .. } | Step::PatchImage { name, .. } => {
                let now = self.pods.get(name).map(|pod| self.pod_seen(name, pod));
                let then = seen.pods.iter().find(|pod| pod.name == *name).cloned();
                let written = |pod: crate::Pod| (pod.uid, pod.version, pod.armed, pod.serving, pod.deleting);
                now.map(written) == then.map(written)
            }
            Step::DeleteClaim { name, uid } => self.claims.get(name).is_some_and(|claim| claim.uid == *uid),
            Step::OwnClaim { name, uid, owned } => {
                let as_seen =
                    |claim: &SimClaim| claim.uid == *uid && claim.owned != *owned && !claim.deleting;
                self.claims.get(name).is_some_and(as_seen)
            }
            _ => true,
        };
        same.then_some(()).ok_or_else(|| format!("conflict: {step:?}"))
    }

    fn claim_is_as_seen(&self, name: &Name, seen: &Observation) -> bool {
        let then = seen.claims.iter().find(|claim| claim.name == *name && !claim.deleting);
        let now = self.claims.get(name).filter(|claim| !claim.deleting);
        then.is_none_or(|then| now.is_some_and(|now| now.uid == then.uid))
    }

    fn write_status(&mut self, plan: &Plan) {
        // The report of such a plan still speaks of the cluster before; the swap wrote its own.
        if plan.actions.iter().any(|action| matches!(action.step, Step::SwapCluster { .. })) {
            return;
        }
        let voters = plan.report.voters.clone();
        let version = plan.report.current_version.or(self.recorded.version);
        if (&self.recorded.voters, &self.recorded.version) != (&voters, &version) {
            self.recorded.voters = voters;
            self.recorded.version = version;
            self.writes += 1;
        }
    }

    fn apply(&mut self, step: &Step) -> Result<(), String> {
        let etcd_refused = |refused: super::Refused| refused.0.to_owned();
        match step {
            Step::ListLive => Ok(()),
            Step::AddMember { name, learner } => {
                self.add_member(name, *learner).map(drop).map_err(etcd_refused)
            }
            Step::Promote { id, .. } => self.promote(*id).map_err(etcd_refused),
            Step::RemoveMember { id, .. } => self.remove_member(*id).map_err(etcd_refused),
            Step::MoveLeader { from, to } => self.move_leader(*from, *to).map_err(etcd_refused),
            Step::RollLog { to } => {
                self.roll_log(to.version).map_err(etcd_refused)?;
                // How many entries that takes is no matter here.
                self.memory.rolled = Some(Rolled { until: 0, ..*to });
                Ok(())
            }
            Step::CompareHash { member, version, .. } => {
                let (member, version) = (member.clone(), *version);
                self.memory.hash_checks.push(HashCheck { member, version, outcome: Check::Passed });
                Ok(())
            }
            written => {
                self.writes += 1;
                self.apply_write(written)
            }
        }
    }

    fn apply_write(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::RecordSeed { name } => {
                self.give_out(name);
                self.recorded.seed = Some(name.clone());
            }
            Step::RecordCluster { id } => {
                self.recorded.cluster = Some(*id);
                self.promise(*id);
            }
            Step::RecordRestore { restore } => {
                self.give_out(&restore.seed);
                self.recorded.restore = Some(restore.clone());
            }
            Step::SwapCluster { id, version, restore } => {
                self.recorded = Recorded {
                    seed: Some(restore.seed.clone()),
                    cluster: Some(*id),
                    voters: vec![restore.seed.clone()],
                    version: Some(*version),
                    restore: Some(restore.clone()),
                };
                self.promise(*id);
            }
            Step::CreateRestoredSeed { name, version, request } => {
                let (token, request) = (self.next_number(), request.clone());
                self.create_pod(name, *version, Arms::Restored { token, request }, None)?;
            }
            Step::StopServing { name, uid } => self.pod_of(name, uid)?.serving = false,
            Step::EnsureHeadlessService => self.headless_service = true,
            Step::EnsureClientService => self.client_service = true,
            Step::SetBudget { min_available } => self.budget = Some(*min_available),
            Step::CreateSeed { name, version } => {
                let token = self.next_number();
                self.create_pod(name, *version, Arms::New { token }, None)?;
            }
            Step::CreateMember { name, version, peers, joining } => {
                if !peers.is_empty() && !self.never_started(name, peers) {
                    return Err(format!("no member says that {name} never started"));
                }
                joining.iter().for_each(|name| self.give_out(name));
                let peers = peers.iter().map(|peer| &peer.name).chain(joining).cloned().collect();
                self.create_pod(name, *version, Arms::Existing { peers }, None)?;
            }
            Step::ResumeMember { name, version, claim } => {
                self.create_pod(name, *version, Arms::Disarmed, Some(claim))?;
            }
            Step::MarkPod { name, uid, disarm, serve } => {
                let pod = self.pod_of(name, uid)?;
                if *disarm {
                    pod.arms = Arms::Disarmed;
                }
                pod.serving |= *serve;
            }
            Step::Adopt { name, uid } => {
                let template = self.spec.template.clone();
                self.pod_of(name, uid)?.template = template;
            }
            Step::PatchImage { name, uid, version } => {
                let (now, repository) = (self.now, self.spec.repository.clone());
                let pod = self.pod_of(name, uid)?;
                pod.version = *version;
                pod.repository = repository;
                pod.changed = now;
            }
            Step::DeletePod { name, uid } => self.pod_of(name, uid)?.deleting = true,
            Step::DeleteClaim { name, uid } => {
                let claim = self.claims.get_mut(name).filter(|claim| claim.uid == *uid);
                claim.ok_or("no such claim")?.deleting = true;
            }
            Step::OwnClaim { name, uid, owned } => {
                let claim = self.claims.get_mut(name).filter(|claim| claim.uid == *uid);
                claim.ok_or("no such claim")?.owned = *owned;
            }
            Step::CheckImage { version, node } => {
                let uid = self.next_uid();
                self.image_checks.push(ImageCheck {
                    pod: Name(format!("check-{uid}")),
                    uid,
                    repository: self.spec.repository.clone(),
                    version: *version,
                    node: node.clone(),
                    outcome: Check::Running,
                    at: self.now,
                });
            }
            Step::BackUp { of, version } => self.precautions.asked.push(AskedBackup {
                name: Name(format!("{of}-before-{version}")),
                of: of.clone(),
                version: *version,
                outcome: Check::Running,
                at: self.now,
            }),
            Step::DropImageCheck { uid, .. } => self.image_checks.retain(|check| check.uid != *uid),
            other => return Err(format!("{other:?} is no write")),
        }
        Ok(())
    }

    /// What the members that are up say.
    fn never_started(&self, name: &Name, peers: &[Peer]) -> bool {
        self.clusters.iter().any(|(of, cluster)| {
            let asked = |member: &&Member| peers.iter().any(|peer| peer.name == member.name);
            cluster.members.iter().filter(asked).any(|member| self.member_up(*of, member).is_some())
                && cluster.members.iter().all(|member| member.name != *name || !member.started)
        })
    }

    fn pod_of(&mut self, name: &Name, uid: &Uid) -> Result<&mut SimPod, String> {
        self.pods
            .get_mut(name)
            .filter(|pod| pod.uid == *uid)
            .ok_or_else(|| format!("no pod {name} of that UID"))
    }

    fn create_pod(
        &mut self,
        name: &Name,
        version: Version,
        arms: Arms,
        claim: Option<&Uid>,
    ) -> Result<(), String> {
        if self.pods.contains_key(name) {
            return Err(format!("pod {name} already exists"));
        }
        self.give_out(name);
        let claim = match (self.spec.storage, claim) {
            (_, Some(uid)) => {
                let held = self.claims.get(name).is_some_and(|held| held.uid == *uid && !held.deleting);
                Some(held.then(|| uid.clone()).ok_or("the claim is gone")?)
            }
            (Storage::EmptyDir, None) => None,
            (Storage::Persistent, None) => {
                let uid = self.next_uid();
                let fresh = SimClaim { uid, disk: None, deleting: false, owned: !self.spec.retains };
                let existed = self.claims.contains_key(name);
                self.writes += u32::from(!existed);
                Some(self.claims.entry(name.clone()).or_insert(fresh).uid.clone())
            }
        };
        let pod = SimPod {
            uid: self.next_uid(),
            node: None,
            version,
            repository: self.spec.repository.clone(),
            arms,
            serving: false,
            template: self.spec.template.clone(),
            claim,
            disk: None,
            deleting: false,
            failed: false,
            failures: 0,
            created: self.now,
            changed: self.now,
            process: Process::Down,
        };
        self.pods.insert(name.clone(), pod);
        Ok(())
    }
}
