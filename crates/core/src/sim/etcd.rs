//! etcd as the planner meets it: membership, quorum, committed writes, and what a process does when it starts.

use std::collections::BTreeSet;

use super::world::{Disk, Process, World};
use crate::ids::{ClusterId, MemberId, Name};
use crate::observation::Member;
use crate::quorum::quorum;
use crate::version::Version;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    pub members: Vec<Member>,
    /// Voters that ran at least once: they may have voted, so they must never start empty again.
    pub voted: BTreeSet<MemberId>,
    /// How many writes clients got an answer for.
    pub committed: u64,
    pub leader: Option<MemberId>,
    pub term: u64,
    /// The minor that the cluster agreed on: older binaries refuse to start.
    pub agreed: u64,
    /// The highest minor that can read its log: what is older was rolled out of it.
    pub readable: u64,
    /// It is or was the recorded one: clients may have been promised something on it.
    pub promised: bool,
}

impl Cluster {
    /// A cluster of one member, on what it holds already.
    pub(super) fn of_one(seed: Member, committed: u64) -> Self {
        Self {
            members: vec![seed],
            voted: BTreeSet::new(),
            committed,
            leader: None,
            term: 1,
            agreed: 0,
            readable: 0,
            promised: false,
        }
    }
}

/// What a starting process does.
pub enum Voice {
    Exits,
    Runs(Disk),
}

/// etcd's answer to a call that it does not carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused(pub &'static str);

impl Cluster {
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.learner)
    }

    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }
}

/// Older ones add a member only while all voters are connected; these while a quorum of one voter more is.
fn adds_on_a_quorum(version: Version) -> bool {
    let since = if version.minor == 5 { Version::new(3, 5, 31) } else { Version::new(3, 6, 11) };
    version >= since
}

pub(super) fn member(id: MemberId, name: &Name, learner: bool) -> Member {
    Member { id, name: name.clone(), peer_urls: vec![format!("http://{name}:2380")], learner, started: false }
}

impl World {
    pub(super) fn etcd_resumes(&mut self, disk: &Disk, version: Version) -> Voice {
        let Some(cluster) = self.clusters.get(&disk.cluster) else { return Voice::Exits };
        let runs = !disk.corrupt && cluster.member(disk.member).is_some() && version.minor >= cluster.agreed;
        if runs { Voice::Runs(disk.clone()) } else { Voice::Exits }
    }

    pub(super) fn etcd_bootstraps(&mut self, name: &Name, token: u64) -> Voice {
        let (id, member_id) = (ClusterId(token), MemberId(token));
        let first = !self.clusters.contains_key(&id) || !self.client_service;
        self.law(first, || format!("{name} bootstrapped a second time"));
        // The seed of before a restore, which a rival makes too late, never serves and is cleared away.
        let ours = self.recorded.seed.as_ref() == Some(name);
        let foreign = ours && self.recorded.cluster.is_some_and(|recorded| recorded != id);
        self.law(!foreign, || format!("{name} bootstrapped a second cluster"));
        self.clusters.insert(id, Cluster::of_one(member(member_id, name, false), 0));
        Voice::Runs(Disk { cluster: id, member: member_id, index: 0, corrupt: false })
    }

    /// It learns the member list from a peer, and exits unless that is the list it was given and it is in it.
    pub(super) fn etcd_joins(&mut self, name: &Name, peers: &BTreeSet<Name>, version: Version) -> Voice {
        let heard = self.clusters.iter().find(|(id, cluster)| {
            let known = |member: &&Member| member.name != *name && peers.contains(&member.name);
            cluster.members.iter().filter(known).any(|member| self.member_up(**id, member).is_some())
        });
        let Some((&id, cluster)) = heard else { return Voice::Exits };
        let listed: BTreeSet<_> = cluster.members.iter().map(|member| member.name.clone()).collect();
        let Some(own) = cluster.members.iter().find(|member| member.name == *name) else {
            return Voice::Exits;
        };
        if listed != *peers || version.minor < cluster.agreed {
            return Voice::Exits;
        }
        let own = own.id;
        let second_of_two = cluster.voters().count() == 2 && cluster.member(own).is_some_and(|m| !m.started);
        let fresh = !cluster.voted.contains(&own);
        self.law(fresh || second_of_two, || format!("{name} restarted on lost data under its old identity"));
        Voice::Runs(Disk { cluster: id, member: own, index: 0, corrupt: false })
    }

    /// The member's process is up, on the disk that belongs to it.
    pub(super) fn member_up(&self, id: ClusterId, member: &Member) -> Option<Version> {
        let disk = self.disk(&member.name)?;
        (disk.cluster == id && disk.member == member.id).then(|| self.up(&member.name)).flatten()
    }

    pub(super) fn up_voters(&self, id: ClusterId) -> usize {
        let Some(cluster) = self.clusters.get(&id) else { return 0 };
        cluster.voters().filter(|voter| self.member_up(id, voter).is_some()).count()
    }

    pub(super) fn has_quorum(&self, id: ClusterId) -> bool {
        let voters = self.clusters.get(&id).map_or(0, |cluster| cluster.voters().count());
        voters > 0 && self.up_voters(id) >= quorum(voters)
    }

    pub(super) fn run_etcd(&mut self) {
        let ids: Vec<_> = self.clusters.keys().copied().collect();
        for id in ids {
            self.run_cluster(id);
        }
    }

    fn run_cluster(&mut self, id: ClusterId) {
        let quorate = self.has_quorum(id);
        let Some(mut cluster) = self.clusters.get(&id).cloned() else { return };
        let up: Vec<_> =
            cluster.members.iter().filter(|m| self.member_up(id, m).is_some()).cloned().collect();
        for member in up.iter().filter(|member| !member.learner) {
            cluster.voted.insert(member.id);
        }
        if quorate {
            self.run_quorate(id, &mut cluster, &up);
        } else {
            cluster.leader = None;
        }
        self.clusters.insert(id, cluster);
    }

    fn run_quorate(&mut self, id: ClusterId, cluster: &mut Cluster, up: &[Member]) {
        let voters: Vec<_> = up.iter().filter(|member| !member.learner).collect();
        if !voters.iter().any(|voter| Some(voter.id) == cluster.leader) {
            let most = |voter: &&&Member| {
                (self.disk(&voter.name).map(|disk| disk.index), std::cmp::Reverse(voter.id))
            };
            cluster.leader = voters.iter().max_by_key(most).map(|voter| voter.id);
            cluster.term += 1;
        }
        let newest = voters
            .iter()
            .filter_map(|voter| self.disk(&voter.name))
            .map(|disk| disk.index)
            .max()
            .unwrap_or(0);
        let whole = newest >= cluster.committed;
        self.law(whole || self.recorded.cluster != Some(id), || "acknowledged writes were lost".to_owned());
        for member in up {
            self.store(&member.name, cluster.committed);
            if let Some(Process::Up { speaks, .. }) =
                self.pods.get_mut(&member.name).map(|pod| &mut pod.process)
            {
                *speaks = true;
            }
            if let Some(listed) = cluster.members.iter_mut().find(|listed| listed.id == member.id) {
                listed.started = true;
            }
        }
        let served =
            self.client_service && up.iter().any(|m| self.pods.get(&m.name).is_some_and(|pod| pod.serving));
        if served {
            self.write(cluster, &voters);
        }
        let versions: Option<Vec<_>> =
            cluster.members.iter().map(|member| self.member_up(id, member)).collect();
        if let Some(lowest) = versions.and_then(|versions| versions.into_iter().min()) {
            cluster.agreed = cluster.agreed.max(lowest.minor);
        }
    }

    /// A client's write reaches the leader and just as many others as it needs.
    fn write(&mut self, cluster: &mut Cluster, voters: &[&Member]) {
        cluster.committed += 1;
        let needed = quorum(cluster.voters().count());
        let mut order: Vec<_> = voters.iter().collect();
        order.sort_by_key(|voter| (Some(voter.id) != cluster.leader, voter.id));
        for voter in order.into_iter().take(needed) {
            self.store(&voter.name, cluster.committed);
        }
    }

    /// A change of membership is an entry like any other: a quorum of the voters so far takes it, with all before it.
    fn agree(&mut self, id: ClusterId, cluster: &mut Cluster) {
        let before = self.clusters.get(&id).into_iter().flat_map(Cluster::voters);
        let voters: Vec<_> = before.filter(|voter| self.member_up(id, voter).is_some()).cloned().collect();
        self.write(cluster, &voters.iter().collect::<Vec<_>>());
    }

    fn store(&mut self, name: &Name, index: u64) {
        if let Some(Some(disk)) = self.disk_mut(name) {
            disk.index = disk.index.max(index);
        }
    }

    pub fn add_member(&mut self, name: &Name, learner: bool) -> Result<MemberId, Refused> {
        let (id, mut cluster) = self.quorate_cluster()?;
        if cluster.members.iter().any(|member| member.name == *name) {
            return Err(Refused("peer URL already exists"));
        }
        let voters = cluster.voters().count();
        let asked = cluster.leader.and_then(|leader| self.member_up(id, cluster.member(leader)?));
        let needed = if asked.is_some_and(adds_on_a_quorum) { quorum(voters + 1) } else { voters };
        if self.up_voters(id) < needed && voters > 1 {
            return Err(Refused("unhealthy cluster"));
        }
        let versions: Vec<_> =
            cluster.members.iter().filter_map(|member| self.member_up(id, member)).collect();
        let joining = cluster.members.iter().filter(|member| member.learner).count();
        if learner {
            let all_know = versions.iter().all(|version| version.has_learners());
            self.law(all_know, || "a learner was added beside a member that panics on it".to_owned());
            if joining > 0 && !versions.iter().all(|version| version.has_several_learners()) {
                return Err(Refused("too many learners"));
            }
        } else {
            let pending = cluster.members.iter().any(|member| !member.started);
            self.law(!pending, || "a voter was added while another had not started".to_owned());
        }
        let new = MemberId(self.next_number());
        self.agree(id, &mut cluster);
        cluster.members.push(member(new, name, learner));
        self.clusters.insert(id, cluster);
        Ok(new)
    }

    pub fn promote(&mut self, member: MemberId) -> Result<(), Refused> {
        let (id, mut cluster) = self.quorate_cluster()?;
        let Some(listed) = cluster.members.iter_mut().find(|listed| listed.id == member) else {
            return Err(Refused("member not found"));
        };
        if !listed.learner {
            return Err(Refused("not a learner"));
        }
        // etcd goes by what it once sent: one that is down now gets its vote all the same.
        if !listed.started {
            return Err(Refused("learner not ready"));
        }
        listed.learner = false;
        let (armed, name) = (
            self.pods.get(&listed.name).is_some_and(|pod| pod.arms != super::Arms::Disarmed),
            listed.name.clone(),
        );
        self.law(!armed, || format!("{name} got a vote while it could still start empty"));
        self.agree(id, &mut cluster);
        self.clusters.insert(id, cluster);
        Ok(())
    }

    pub fn remove_member(&mut self, member: MemberId) -> Result<(), Refused> {
        let (id, mut cluster) = self.quorate_cluster()?;
        let Some(listed) = cluster.member(member) else { return Err(Refused("member not found")) };
        let (voters, up) = (cluster.voters().count(), self.up_voters(id));
        // One that is down takes nothing from those that agree; one that is up may be needed.
        let runs = self.member_up(id, listed).is_some();
        if !listed.learner && (voters == 1 || runs && up - 1 < quorum(voters - 1)) {
            return Err(Refused("unhealthy cluster"));
        }
        self.agree(id, &mut cluster);
        cluster.members.retain(|listed| listed.id != member);
        if cluster.leader == Some(member) {
            cluster.leader = None;
        }
        self.clusters.insert(id, cluster);
        Ok(())
    }

    pub fn move_leader(&mut self, from: MemberId, to: MemberId) -> Result<(), Refused> {
        let (id, mut cluster) = self.quorate_cluster()?;
        let heir = cluster.member(to).filter(|heir| !heir.learner && self.member_up(id, heir).is_some());
        let Some(heir) = heir.filter(|_| cluster.leader == Some(from)) else {
            return Err(Refused("not leader"));
        };
        // The old leader waits until its heir has everything.
        self.store(&heir.name.clone(), cluster.committed);
        cluster.leader = Some(to);
        cluster.term += 1;
        self.clusters.insert(id, cluster);
        Ok(())
    }

    pub fn roll_log(&mut self, version: Version) -> Result<(), Refused> {
        let (id, mut cluster) = self.quorate_cluster()?;
        cluster.readable = cluster.readable.max(version.minor);
        self.clusters.insert(id, cluster);
        Ok(())
    }

    fn quorate_cluster(&self) -> Result<(ClusterId, Cluster), Refused> {
        let id = self.recorded.cluster.ok_or(Refused("no cluster"))?;
        let cluster =
            self.clusters.get(&id).filter(|cluster| cluster.leader.is_some() && self.has_quorum(id));
        cluster.cloned().map(|cluster| (id, cluster)).ok_or(Refused("no leader"))
    }
}
