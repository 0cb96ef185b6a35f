//! How a member is, and what can be done to it alone.

use crate::kv::{self, HEALTH_KEY};
use crate::member::{Ask, Identity};
use crate::proto::etcdserverpb::{
    self as pb, alarm_request::AlarmAction, maintenance_client::MaintenanceClient,
};
use crate::{Error, Member, Result};
use domain::{Alarm, AlarmKind, MemberId, Version};
use prost::bytes::Bytes;
use tokio::time::timeout;
use tonic::Streaming;

/// What a member says of itself. `None` where its version does not say, or knows none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub identity: Identity,
    pub version: Version,
    pub leader: Option<MemberId>,
    pub learner: bool,
    pub raft_term: u64,
    pub raft_index: u64,
    /// From 3.4.
    pub applied_index: Option<u64>,
    pub db_size: u64,
    /// From 3.4.
    pub db_size_in_use: Option<u64>,
    /// From 3.6.
    pub quota: Option<u64>,
    /// From 3.4: alarms and a missing leader, in etcd's words.
    pub errors: Vec<String>,
}

/// The hash of all live and historic keys up to one revision.
///
/// Two members' hashes compare only at the same revision with the same compact revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKv {
    pub hash: u32,
    pub revision: i64,
    pub compact_revision: i64,
}

/// Which state a snapshot must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Every write acknowledged before; needs quorum, and a voter.
    Proven,
    /// What this member has: all that can be saved when quorum is lost.
    AsIs,
}

impl Status {
    /// Whether any member of the cluster has raised an alarm; not said before 3.4.
    ///
    /// Unlike [`Member::alarms`] this costs nothing: that one is agreed on and logged by all members.
    pub fn alarmed(&self) -> Option<bool> {
        (self.version >= Version::new(3, 4, 0))
            .then(|| self.errors.iter().any(|error| error.contains("alarm:")))
    }
}

impl Member {
    /// Answered by the member alone, learners included, without quorum too as long as it serves at all.
    pub async fn status(&self) -> Result<Status> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let ask = Ask::Local(pb::StatusRequest {});
        let answer = self.call(ask, |request| client.status(request)).await?;
        let version = answer.version.parse().map_err(|_| Error::BadAnswer("its version cannot be read"))?;
        Ok(Status {
            identity: self.check(answer.header.as_ref())?,
            version,
            leader: said(answer.leader).map(MemberId),
            learner: answer.is_learner,
            raft_term: answer.raft_term,
            raft_index: answer.raft_index,
            applied_index: said(answer.raft_applied_index),
            db_size: size(answer.db_size)?,
            db_size_in_use: said(size(answer.db_size_in_use)?),
            quota: said(size(answer.db_size_quota)?),
            errors: answer.errors,
        })
    }

    /// Proves, by a linearizable read, that there is a quorum and that this member has all that it agreed on.
    pub async fn health(&self) -> Result<()> {
        match self.revision().await {
            // Rights are looked at after the read was agreed on, so a refusal proves as much.
            Ok(_) | Err(Error::Denied(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The revision that this member has reached, with all that the cluster agreed on before the call.
    pub async fn revision(&self) -> Result<i64> {
        let any = kv::RangeRequest { key: HEALTH_KEY.into(), count_only: true, ..Default::default() };
        kv::revision(self.range(any).await?.header)
    }

    /// Scans all keys: not on the leader, and rarely. From 3.3.
    pub async fn hash_kv(&self, revision: i64) -> Result<HashKv> {
        let mut client = MaintenanceClient::new(self.channel.clone());
        let ask = Ask::Local(pb::HashKvRequest { revision });
        let answer = self.call(ask, |request| client.hash_kv(request)).await?;
        Ok(HashKv {
            hash: answer.hash,
            revision: said(answer.hash_revision).unwrap_or(revision),
            compact_revision: answer.compact_revision,
        })
    }

    /// The alarms of all members. Goes through the log of the whole cluster, as a write does.
    pub async fn alarms(&self) -> Result<Vec<Alarm>> {
        let ask = pb::AlarmRequest { action: AlarmAction::Get.into(), ..Default::default() };
        let answer = self.alarm(ask).await?;
        Ok(answer.alarms.iter().filter_map(known_alarm).collect())
    }

    /// As etcd does when it finds a reason, which needs none here.
    pub async fn raise(&self, alarm: Alarm) -> Result<()> {
        self.set_alarm(AlarmAction::Activate, alarm).await
    }

    /// Takes an alarm back; etcd raises it again if its reason remains.
    pub async fn disarm(&self, alarm: Alarm) -> Result<()> {
        self.set_alarm(AlarmAction::Deactivate, alarm).await
    }

    async fn set_alarm(&self, action: AlarmAction, alarm: Alarm) -> Result<()> {
        let kind = match alarm.kind {
            AlarmKind::NoSpace => pb::AlarmType::Nospace,
            AlarmKind::Corrupt => pb::AlarmType::Corrupt,
        };
        self.alarm(pb::AlarmRequest { action: action.into(), member_id: alarm.member.0, alarm: kind.into() })
            .await?;
        Ok(())
    }

    /// Before 3.5 the answer has no header, so the member is asked before who it is.
    async fn alarm(&self, ask: pb::AlarmRequest) -> Result<pb::AlarmResponse> {
        self.status().await?;
        let mut client = MaintenanceClient::new(self.channel.clone());
        self.call_unsigned(Ask::Cluster(ask), |request| client.alarm(request)).await
    }

    /// Gives free pages back to the file system. The member answers nothing else meanwhile.
    pub async fn defragment(&self) -> Result<()> {
        self.status().await?;
        let mut client = MaintenanceClient::new(self.channel.clone());
        self.call_unsigned(Ask::Local(pb::DefragmentRequest {}), |request| client.defragment(request))
            .await?;
        Ok(())
    }

    /// The whole database, followed by the SHA-256 of it. The deadline holds for each piece.
    pub async fn snapshot(&self, freshness: Freshness) -> Result<Snapshot> {
        let wide = self.wide();
        match freshness {
            Freshness::Proven => wide.health().await?,
            // Pieces of a snapshot do not say who sent them.
            Freshness::AsIs => drop(wide.status().await?),
        }
        let mut client = MaintenanceClient::new(wide.channel);
        let request = Ask::Local(pb::SnapshotRequest {}).request();
        let pieces = timeout(self.deadline(), client.snapshot(request))
            .await
            .map_err(|_| Error::TimedOut)?
            .map_err(|status| Error::of(&status))?
            .into_inner();
        Ok(Snapshot { pieces, member: self.clone(), remaining: u64::MAX })
    }
}

/// A snapshot on its way.
#[derive(Debug)]
pub struct Snapshot {
    pieces: Streaming<pb::SnapshotResponse>,
    member: Member,
    remaining: u64,
}

impl Snapshot {
    /// The next piece, `None` after the last. A stream that ends early is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let piece = timeout(self.member.deadline(), self.pieces.message())
            .await
            .map_err(|_| Error::TimedOut)?
            .map_err(|status| Error::of(&status))?;
        match piece {
            Some(piece) => {
                self.remaining = piece.remaining_bytes;
                Ok(Some(piece.blob))
            }
            None if self.remaining == 0 => Ok(None),
            None => Err(Error::BadAnswer("the snapshot ended early")),
        }
    }
}

/// Zero is how the protocol leaves a field out.
fn said<T: PartialEq + Default>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

fn size(bytes: i64) -> Result<u64> {
    bytes.try_into().map_err(|_| Error::BadAnswer("a size is negative"))
}

fn known_alarm(alarm: &pb::AlarmMember) -> Option<Alarm> {
    let kind = match alarm.alarm() {
        pb::AlarmType::None => return None,
        pb::AlarmType::Nospace => AlarmKind::NoSpace,
        pb::AlarmType::Corrupt => AlarmKind::Corrupt,
    };
    Some(Alarm { member: MemberId(alarm.member_id), kind })
}
