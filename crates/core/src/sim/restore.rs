//! Backups, what becomes of them, and the laws of a restore.

use std::collections::BTreeSet;

use super::etcd::{Cluster, Voice, member};
use super::observe::Glitch;
use super::world::{Disk, World};
use crate::ids::{ClusterId, MemberId, Name, Uid};
use crate::observation::{Read, Seed, Stage};
use crate::quorum::quorum;
use crate::spec::RestoreRequest;
use crate::step::Step;
use crate::version::Version;

/// A backup in a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backup {
    /// How many acknowledged writes it holds.
    pub index: u64,
    pub version: Version,
    /// The store, or the tool that reads it, fails every time.
    pub bad: bool,
}

impl World {
    /// The restore controller's part: no two at once.
    pub fn ask_for_restore(&mut self, backup: Backup) {
        let done = |uid: &Uid| {
            let begun = self.recorded.restore.as_ref().filter(|begun| begun.request == *uid);
            begun.is_some_and(|begun| matches!(begun.stage, Stage::Done | Stage::Failed(_)))
        };
        if self.spec.restore.as_ref().is_some_and(|under_way| !done(&under_way.uid)) {
            return;
        }
        let uid = self.next_uid();
        let version = Some(backup.version);
        self.spec.restore = Some(RestoreRequest { uid: uid.clone(), name: uid.to_string(), version });
        self.backups.insert(uid, backup);
    }

    /// The init containers did their work, or did not.
    pub(super) fn etcd_restores(&mut self, name: &Name, token: u64, request: &Uid, on: Version) -> Voice {
        let Some(backup) = self.backups.get(request).cloned() else { return Voice::Exits };
        if backup.bad {
            return Voice::Exits;
        }
        let own_minor = (on.major, on.minor) == (backup.version.major, backup.version.minor);
        self.law(own_minor, || format!("a backup of {} was restored on {on}", backup.version));
        let (id, seed) = (ClusterId(token), MemberId(token));
        let first = !self.clusters.contains_key(&id);
        self.law(first, || format!("{name} was restored a second time"));
        self.clusters.insert(id, Cluster::of_one(member(seed, name, false), backup.index));
        Voice::Runs(Disk { cluster: id, member: seed, index: backup.index, corrupt: false })
    }

    pub(super) fn seed_being_made(&self) -> Option<&Name> {
        let begun = self.recorded.restore.as_ref().filter(|begun| begun.stage == Stage::Seeding);
        begun.map(|begun| &begun.seed)
    }

    pub(super) fn ask_seed(&self, name: &Name, glitch: &Glitch) -> Option<Seed> {
        let Read::Known(status) = self.ask(name, glitch) else { return None };
        let members = self.clusters.get(&status.cluster)?.members.clone();
        Some(Seed { status, members })
    }

    pub(super) fn leads_alone(&self, name: &Name, id: ClusterId) -> bool {
        let answer = self.ask_seed(name, &Glitch::default());
        answer.is_some_and(|seed| seed.status.cluster == id && seed.status.leader.is_some())
    }

    pub(super) fn promise(&mut self, id: ClusterId) {
        if let Some(cluster) = self.clusters.get_mut(&id) {
            cluster.promised = true;
        }
    }

    /// A restore never destroys what it has not yet replaced.
    pub(super) fn judge_restore(&mut self, step: &Step) {
        match step {
            Step::SwapCluster { id, restore, .. } => {
                let seed = self.disk(&restore.seed).filter(|disk| disk.cluster == *id && !disk.corrupt);
                let whole = seed.is_some();
                self.law(whole, || format!("{step:?} for a seed that has no data"));
                let volumes =
                    self.claims.iter().filter_map(|(name, claim)| Some((name, claim.disk.as_ref()?)));
                let pods = self.pods.keys().filter_map(|name| Some((name, self.disk(name)?)));
                let promised = |disk: &Disk| self.clusters.get(&disk.cluster).is_some_and(|c| c.promised);
                let mut held = pods.chain(volumes).filter(|(_, disk)| promised(disk)).map(|(name, _)| name);
                let all_kept = held.all(|name| restore.replaced.contains(name));
                self.law(all_kept, || format!("{step:?} does not keep all that is there"));
            }
            Step::RecordRestore { restore } if restore.stage == Stage::Done => {
                // It was full when that was planned; a member that is lost since is made anew from the others.
                let (copies, voters) = self.restored_copies();
                let able = copies >= quorum(voters);
                self.law(able, || format!("{step:?} while the cluster has no quorum of its data"));
            }
            Step::DeletePod { name, .. } | Step::DeleteClaim { name, .. } => {
                let volume = self.claims.get(name);
                let outlives =
                    matches!(step, Step::DeletePod { .. }) && volume.is_some_and(|volume| !volume.deleting);
                let disk = self.disk(name).or(volume.and_then(|volume| volume.disk.as_ref()));
                let past = disk.filter(|disk| self.recorded.cluster != Some(disk.cluster));
                let promised = past
                    .and_then(|disk| self.clusters.get(&disk.cluster))
                    .is_some_and(|cluster| cluster.promised);
                let kept = self.recorded.restore.as_ref().is_some_and(|begun| begun.replaced.contains(name));
                let crowded = self.pods.values().any(|pod| pod.node.is_none());
                self.law(outlives || !promised || !kept || crowded, || {
                    format!("{step:?} destroys what was not yet replaced")
                });
            }
            _ => {}
        }
    }

    /// Whoever acts on what there is now ends a restore only when the cluster is full.
    pub(super) fn judge_fullness(&mut self, step: &Step) {
        let Step::RecordRestore { restore } = step else { return };
        let full = restore.stage != Stage::Done || self.restored_copies().0 >= self.spec.size as usize;
        self.law(full, || format!("{step:?} before the cluster is full"));
    }

    /// Clients never meet two clusters behind one name.
    pub(super) fn judge_service(&mut self, step: &Step) {
        let Step::MarkPod { name, serve: true, .. } = step else { return };
        let serving = self.pods.iter().filter(|(other, pod)| pod.serving && !pod.deleting || *other == name);
        let clusters: BTreeSet<_> =
            serving.filter_map(|(name, _)| self.disk(name)).map(|disk| disk.cluster).collect();
        self.law(clusters.len() <= 1, || format!("{step:?} lets clients in to {clusters:?}"));
    }

    /// Voters of the recorded cluster that have its data, and how many voters there are.
    fn restored_copies(&self) -> (usize, usize) {
        let Some((id, cluster)) = self.recorded.cluster.and_then(|id| Some((id, self.clusters.get(&id)?)))
        else {
            return (0, 0);
        };
        let holds = |name: &Name| self.disk(name).is_some_and(|disk| disk.cluster == id && !disk.corrupt);
        (cluster.voters().filter(|voter| holds(&voter.name)).count(), cluster.voters().count())
    }
}
