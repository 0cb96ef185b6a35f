//! The laws, judged against the truth that the operator cannot see.

use super::world::World;
use crate::ids::{ClusterId, Name};
use crate::observation::{AskedBackup, Check, Observation, Read};
use crate::plan::{Plan, Rule};
use crate::quorum::quorum;
use crate::step::Step;

impl World {
    /// Laws about a plan as a whole and about what it rests on.
    pub(super) fn judge(&mut self, seen: &Observation, plan: &Plan) {
        let steps: Vec<_> = plan.actions.iter().map(|action| &action.step).collect();
        let changes: Vec<_> = steps.iter().filter(|step| step.changes_membership()).collect();
        let learners = changes.iter().all(|step| matches!(step, Step::AddMember { learner: true, .. }));
        self.law(!self.spec.paused || steps.is_empty(), || format!("{steps:?} while paused"));
        self.law(changes.len() <= 1 || learners, || format!("two membership changes at once: {changes:?}"));
        let blind = matches!(seen.members, Read::Unknown(_));
        self.law(!blind || changes.is_empty(), || {
            format!("membership changed on an unknown list: {changes:?}")
        });
        for step in steps {
            self.law(seen.live || !step.is_destructive(), || format!("{step:?} rests on a cache"));
            let touched = match step {
                Step::DeletePod { name, .. } | Step::PatchImage { name, .. } => {
                    seen.pods.iter().find(|pod| pod.name == *name)
                }
                _ => None,
            };
            let idle = touched.is_none_or(|pod| !pod.running());
            let deletes_claim = matches!(step, Step::DeleteClaim { .. });
            let early = seen.recorded.cluster.is_none();
            // A restore has laws of its own.
            let restores = plan.rule == Rule::Restore;
            self.law(!blind || early || restores || (idle && !deletes_claim), || {
                format!("{step:?} on an unknown list")
            });
            let seeds = matches!(step, Step::CreateSeed { .. } | Step::RecordSeed { .. });
            self.law(early || !seeds, || format!("{step:?} with an ID recorded"));
        }
    }

    /// Laws about one step, just before it is carried out.
    pub(super) fn judge_step(&mut self, step: &Step) {
        self.judge_quorum(step);
        self.judge_data(step);
        self.judge_fullness(step);
        self.judge_service(step);
        self.judge_log(step);
        self.judge_precaution(step);
    }

    /// No member goes to a version that reads its log wrongly.
    fn judge_log(&mut self, step: &Step) {
        let (Step::PatchImage { name, version, .. }, Some(id)) = (step, self.recorded.cluster) else {
            return;
        };
        let misread = self.up(name).is_some_and(|from| version.misreads_log_of(from));
        let readable = self.clusters.get(&id).map_or(0, |cluster| cluster.readable);
        self.law(!misread || readable >= version.minor, || format!("{step:?} with an old log"));
    }

    /// Where an EtcdBackup names the cluster, nobody goes first to a new minor without a backup made for that, which needs
    /// a quorum.
    fn judge_precaution(&mut self, step: &Step) {
        let Step::PatchImage { version, .. } = step else { return };
        let begins = self.pods.values().all(|pod| pod.version.before_minor_of(*version));
        let made = |asked: &AskedBackup| asked.version == *version && asked.outcome == Check::Passed;
        let able = self.recorded.cluster.is_some_and(|id| self.has_quorum(id));
        let careless =
            able && begins && self.precautions.named.is_some() && !self.precautions.asked.iter().any(made);
        self.law(!careless, || format!("{step:?} without a backup before it"));
    }

    /// No voluntary step below quorum; one or two members cannot do without.
    fn judge_quorum(&mut self, step: &Step) {
        let Some(id) = self.recorded.cluster else { return };
        let removes = matches!(step, Step::RemoveMember { .. });
        let (Step::DeletePod { name, .. } | Step::PatchImage { name, .. } | Step::RemoveMember { name, .. }) =
            step
        else {
            return;
        };
        let voters = self.voter_names(id);
        let up = voters.iter().filter(|voter| self.stays_up(voter)).count();
        if !voters.contains(name) || (!removes && voters.len() <= 2) || up < quorum(voters.len()) {
            return;
        }
        let left = voters.len() - usize::from(removes);
        let others_up = up - usize::from(self.stays_up(name));
        self.law(others_up >= quorum(left), || {
            format!("{step:?} goes below quorum: {others_up} of {left} would be up")
        });
    }

    /// It is up, and not on its way down by somebody's earlier order.
    fn stays_up(&self, name: &Name) -> bool {
        let ordered = |pod: &super::SimPod| pod.deleting || self.up(name) != Some(pod.version);
        self.pods.get(name).is_some_and(|pod| !ordered(pod))
    }

    /// The last copy of the data stays, and so does the claim of every member.
    pub(super) fn judge_data(&mut self, step: &Step) {
        self.judge_restore(step);
        let Some(id) = self.recorded.cluster else { return };
        let copies = self.whole_copies(id);
        let outlives = |name| self.claims.get(name).is_some_and(|claim| !claim.deleting);
        let taken = match step {
            Step::DeletePod { name, .. } if !outlives(name) => name,
            // A quorum agrees on a removal, and then holds all writes: only the last voter could take them along.
            Step::RemoveMember { .. } if self.voter_names(id).len() > 1 => return,
            Step::RemoveMember { name, .. } | Step::DeleteClaim { name, .. } => name,
            _ => return,
        };
        let member = self.voter_names(id).contains(taken);
        let of_member = matches!(step, Step::DeleteClaim { .. }) && member;
        self.law(!of_member, || format!("{step:?} deletes the data of a member"));
        self.law(copies != [taken.clone()], || format!("{step:?} takes the last copy of the data"));
    }

    fn voter_names(&self, id: ClusterId) -> Vec<Name> {
        let voters = self.clusters.get(&id).into_iter().flat_map(super::Cluster::voters);
        voters.map(|voter| voter.name.clone()).collect()
    }

    /// Voters whose disk holds every acknowledged write.
    pub(super) fn whole_copies(&self, id: ClusterId) -> Vec<Name> {
        let Some(cluster) = self.clusters.get(&id) else { return Vec::new() };
        let whole = |name: &Name| {
            let claim = self.claims.get(name).and_then(|claim| claim.disk.as_ref());
            let disk = self.disk(name).or(claim);
            disk.is_some_and(|disk| disk.cluster == id && disk.index >= cluster.committed && !disk.corrupt)
        };
        cluster.voters().map(|voter| voter.name.clone()).filter(whole).collect()
    }

    /// Whether enough voters still have readable data to ever agree again.
    pub fn recoverable(&self) -> bool {
        let Some(id) = self.recorded.cluster else { return true };
        let Some(cluster) = self.clusters.get(&id) else { return false };
        let with_data = |name: &Name| {
            let claim =
                self.claims.get(name).filter(|claim| !claim.deleting).and_then(|claim| claim.disk.as_ref());
            let pod = self.pods.get(name).filter(|pod| pod.claim.is_none() && !pod.failed && !pod.deleting);
            let disk = pod.and_then(|pod| pod.disk.as_ref()).or(claim);
            disk.is_some_and(|disk| disk.cluster == id && !disk.corrupt)
        };
        let voters = cluster.voters().count();
        let unstarted_second =
            voters == 2 && cluster.voters().any(|voter| !voter.started && !cluster.voted.contains(&voter.id));
        let able = cluster.voters().filter(|voter| with_data(&voter.name)).count();
        able + usize::from(unstarted_second) >= quorum(voters)
    }
}
