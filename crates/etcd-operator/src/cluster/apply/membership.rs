//! Steps that etcd takes.
//!
//! Each change reads the member list linearizably first, through the member that is then asked for the change, and goes
//! on only if the list is the one that the plan was made on.

use std::time::Duration;

use domain::{Check, ClusterId, HashCheck, MemberId, Name, Read, Version};
use etcd::Expect;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;

use super::super::members::named;
use super::{ApplyError, Hands, Outcome};

/// Long enough for an election on the way.
pub(super) const CHANGE: Duration = Duration::from_secs(5);
/// A scan of all keys; a database too big for it is not compared, and that blocks nothing.
const SCAN: Duration = Duration::from_secs(10);

impl Hands<'_> {
    pub(super) async fn add_member(&mut self, name: &Name, learner: bool) -> Result<Outcome, ApplyError> {
        let voter = match self.voter().await {
            Ok(voter) => voter,
            Err(why) => return Ok(why),
        };
        if !self.still_waits(name).await? {
            return Ok(Outcome::Stale(format!("the pod of {name} waits no more")));
        }
        let url = self.seen.zone.peer_url(name.as_str());
        match voter.add_member(vec![url], learner).await {
            Ok(added) => {
                self.members.extend(named(vec![added], &self.seen.zone));
                Ok(Outcome::Done)
            }
            Err(error) => sorted("AddMember", error),
        }
    }

    /// Asked just before it is added: a member that was added and removed again since the plan was made would be the second
    /// of its name, and could not start on what the first one left.
    async fn still_waits(&self, name: &Name) -> Result<bool, ApplyError> {
        let seen = self.seen.observation.pods.iter().find(|pod| pod.name == *name).map(|pod| &pod.uid);
        let failed = |source| ApplyError::Kubernetes { step: "AddMember", source };
        let now = self.api::<Pod>().get_metadata_opt(name.as_str()).await.map_err(failed)?;
        let waits = |pod: &PartialObjectMeta<Pod>| pod.metadata.deletion_timestamp.is_none();
        let uid = now.filter(waits).and_then(|pod| pod.metadata.uid);
        Ok(uid.is_some_and(|uid| seen.is_some_and(|seen| seen.as_str() == uid)))
    }

    pub(super) async fn promote(&mut self, id: MemberId) -> Result<Outcome, ApplyError> {
        let voter = match self.voter().await {
            Ok(voter) => voter,
            Err(why) => return Ok(why),
        };
        let outcome = ended("Promote", voter.promote(id).await)?;
        for member in self.members.iter_mut().filter(|member| outcome == Outcome::Done && member.id == id) {
            member.learner = false;
        }
        Ok(outcome)
    }

    pub(super) async fn remove_member(&mut self, id: MemberId) -> Result<Outcome, ApplyError> {
        let voter = match self.voter_but(Some(id)).await {
            Ok(voter) => voter,
            Err(why) => return Ok(why),
        };
        let outcome = ended("RemoveMember", voter.remove_member(id).await)?;
        self.members.retain(|member| outcome != Outcome::Done || member.id != id);
        Ok(outcome)
    }

    pub(super) async fn move_leader(&mut self, from: MemberId, to: MemberId) -> Result<Outcome, ApplyError> {
        let leader = self.members.iter().find(|member| member.id == from);
        let Some(link) = leader.and_then(|leader| self.seen.links.get(&leader.name)) else {
            return Ok(Outcome::Stale("the leader cannot be reached".into()));
        };
        let leader = link.expecting(self.expect(Some(from))).with_deadline(CHANGE);
        ended("MoveLeader", leader.move_leader(to).await)
    }

    pub(super) async fn compare_hash(
        &mut self,
        member: &Name,
        with: &Name,
        version: Version,
    ) -> Result<Outcome, ApplyError> {
        let outcome = match (self.seen.links.get(member), self.seen.links.get(with)) {
            (Some(one), Some(other)) => compare(&one.with_deadline(SCAN), &other.with_deadline(SCAN)).await,
            _ => Check::Unknown("a member cannot be reached".into()),
        };
        self.memory.hash_checks.retain(|check| check.member != *member);
        self.memory.hash_checks.push(HashCheck { member: member.clone(), version, outcome });
        Ok(Outcome::Done)
    }

    /// Asked just before its empty pod is created: a member that ever ran must not start on nothing, whoever planned it
    /// and however long ago. Without a leader too, since the second of two voters is needed to make one.
    pub(super) async fn never_started(&self, name: &Name) -> bool {
        let asked = self.seen.links.values().map(etcd::Member::hearsay);
        let lists: Vec<_> = join_all(asked).await.into_iter().filter_map(Result::ok).collect();
        let known = lists.iter().flat_map(|list| named(list.clone(), &self.seen.zone));
        !lists.is_empty() && known.into_iter().all(|member| member.name != *name || !member.started)
    }

    pub(super) async fn voter(&self) -> Result<etcd::Member, Outcome> {
        self.voter_but(None).await
    }

    /// A voter that sees the member list as the plan did: the leader where that may be, anyone else otherwise.
    async fn voter_but(&self, avoided: Option<MemberId>) -> Result<etcd::Member, Outcome> {
        let mut voters: Vec<_> = self.members.iter().filter(|member| !member.learner).collect();
        let leader =
            self.seen.observation.statuses.values().filter_map(Read::known).find_map(|status| status.leader);
        voters.sort_by_key(|voter| (Some(voter.id) == avoided, Some(voter.id) != leader));
        let planned = fingerprint(&self.members);
        let mut why = "no voter can be asked".to_owned();
        for voter in voters {
            let Some(link) = self.seen.links.get(&voter.name) else { continue };
            let link = link.expecting(self.expect(Some(voter.id))).with_deadline(CHANGE);
            match link.members().await {
                Ok(list) => {
                    let same = fingerprint(&named(list, &self.seen.zone)) == planned;
                    return if same {
                        Ok(link)
                    } else {
                        Err(Outcome::Stale("the member list has changed".into()))
                    };
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(Outcome::Stale(why))
    }

    fn expect(&self, member: Option<MemberId>) -> Expect {
        let cluster = u64::from_str_radix(&self.status.cluster_id, 16).ok().map(ClusterId);
        Expect { cluster, member }
    }
}

/// Who is in a list, and as what.
fn fingerprint(members: &[domain::Member]) -> Vec<(MemberId, bool)> {
    let mut members: Vec<_> = members.iter().map(|member| (member.id, member.learner)).collect();
    members.sort_unstable();
    members
}

fn ended(step: &'static str, result: etcd::Result<()>) -> Result<Outcome, ApplyError> {
    result.map_or_else(|error| sorted(step, error), |()| Ok(Outcome::Done))
}

/// Tells an answer to wait on, and one that only says that somebody was faster, from a failure.
fn sorted(step: &'static str, source: etcd::Error) -> Result<Outcome, ApplyError> {
    use etcd::Error as E;
    match source {
        E::TooManyLearners => Ok(Outcome::Wait(source.to_string())),
        _ if source.is_wait() => Ok(Outcome::Wait(source.to_string())),
        E::NotALearner | E::MemberNotFound | E::PeerUrlTaken | E::NotLeader | E::WrongIdentity { .. } => {
            Ok(Outcome::Stale(source.to_string()))
        }
        // It may have been done all the same.
        _ if source.outcome_unknown() => Ok(Outcome::Stale(source.to_string())),
        _ => Err(ApplyError::Etcd { step, source }),
    }
}

/// Both are brought up to one revision by a linearizable read each, then scanned at that revision.
async fn compare(one: &etcd::Member, other: &etcd::Member) -> Check {
    match hashes(one, other).await {
        Err(error) => Check::Unknown(error.to_string()),
        Ok((a, b)) if a.compact_revision != b.compact_revision => {
            Check::Unknown("the members have compacted to different revisions".into())
        }
        Ok((a, b)) if a.hash == b.hash => Check::Passed,
        Ok((a, b)) => Check::Failed(format!(
            "hashes at revision {} differ: {:08x} and {:08x}",
            a.revision, a.hash, b.hash
        )),
    }
}

async fn hashes(one: &etcd::Member, other: &etcd::Member) -> etcd::Result<(etcd::HashKv, etcd::HashKv)> {
    let read = one.range(etcd::kv::RangeRequest { key: b"health".into(), ..Default::default() }).await?;
    let revision =
        read.header.map(|header| header.revision).ok_or(etcd::Error::BadAnswer("it has no header"))?;
    other.health().await?;
    tokio::try_join!(one.hash_kv(revision), other.hash_kv(revision))
}
