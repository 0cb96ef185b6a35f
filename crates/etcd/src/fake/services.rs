//! Etcd's services, answered from the fake's beliefs.

use super::{Beliefs, Needs, Shared};
use crate::Listed;
use crate::proto::etcdserverpb::{
    self as pb,
    alarm_request::AlarmAction,
    cluster_server::{Cluster, ClusterServer},
    compare::TargetUnion,
    kv_server::{Kv, KvServer},
    maintenance_server::{Maintenance, MaintenanceServer},
    request_op::Request as TxnOp,
};
use crate::proto::mvccpb::KeyValue;
use domain::{AlarmKind, MemberId};
use futures::stream::{self, Iter};
use prost::bytes::Bytes;
use std::vec;
use tonic::transport::server::{Router, Server};
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

pub(super) fn router(shared: &Shared) -> Router {
    Server::builder()
        .add_service(KvServer::new(shared.clone()))
        .add_service(ClusterServer::new(shared.clone()))
        .add_service(MaintenanceServer::new(shared.clone()))
}

fn header(beliefs: &Beliefs) -> pb::ResponseHeader {
    pb::ResponseHeader {
        cluster_id: beliefs.identity.cluster.0,
        member_id: beliefs.identity.member.0,
        revision: beliefs.revision,
        raft_term: beliefs.raft_term,
    }
}

fn unknown_method() -> Status {
    Status::unimplemented("unknown method")
}

fn put(beliefs: &mut Beliefs, put: pb::PutRequest) {
    beliefs.revision += 1;
    beliefs.raft_index += 1;
    beliefs.keys.insert(put.key, (put.value, beliefs.revision));
}

fn range(beliefs: &Beliefs, range: &pb::RangeRequest) -> pb::RangeResponse {
    let wanted = |key: &[u8]| match range.range_end.as_slice() {
        [] => key == range.key,
        [0] => key >= range.key.as_slice(),
        end => key >= range.key.as_slice() && key < end,
    };
    let found = beliefs.keys.iter().filter(|(key, _)| wanted(key));
    let kvs: Vec<KeyValue> = found
        .map(|(key, (value, revision))| KeyValue {
            key: key.clone(),
            value: value.clone(),
            mod_revision: *revision,
            ..Default::default()
        })
        .collect();
    let count = i64::try_from(kvs.len()).unwrap_or(i64::MAX);
    let kvs = if range.count_only { Vec::new() } else { kvs };
    pb::RangeResponse { header: Some(header(beliefs)), kvs, more: false, count }
}

#[tonic::async_trait]
impl Kv for Shared {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Answer<pb::RangeResponse> {
        let needs = if request.get_ref().serializable { Needs::Nothing } else { Needs::Quorum };
        let answer = |beliefs: &mut Beliefs| Ok(range(beliefs, request.get_ref()));
        self.react("Range", needs, &request, answer).await.map(Response::new)
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Answer<pb::PutResponse> {
        let answer = |beliefs: &mut Beliefs| {
            put(beliefs, request.get_ref().clone());
            Ok(pb::PutResponse { header: Some(header(beliefs)) })
        };
        self.react("Put", Needs::Quorum, &request, answer).await.map(Response::new)
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Answer<pb::DeleteRangeResponse> {
        let answer = |beliefs: &mut Beliefs| {
            let deleted = beliefs.keys.remove(&request.get_ref().key).map_or(0, |_| 1);
            beliefs.revision += deleted;
            Ok(pb::DeleteRangeResponse { header: Some(header(beliefs)), deleted })
        };
        self.react("DeleteRange", Needs::Quorum, &request, answer).await.map(Response::new)
    }

    /// Puts that depend on revisions: all that our own clients send.
    async fn txn(&self, request: Request<pb::TxnRequest>) -> Answer<pb::TxnResponse> {
        let answer = |beliefs: &mut Beliefs| {
            let txn = request.get_ref().clone();
            let succeeded = txn.compare.iter().all(|compare| {
                let revision = beliefs.keys.get(&compare.key).map_or(0, |(_, revision)| *revision);
                compare.target_union == Some(TargetUnion::ModRevision(revision))
            });
            for op in if succeeded { txn.success } else { txn.failure } {
                match op.request {
                    Some(TxnOp::RequestPut(request)) => put(beliefs, request),
                    _ => return Err(Status::unimplemented("the fake's transactions only put")),
                }
            }
            Ok(pb::TxnResponse { header: Some(header(beliefs)), succeeded, responses: Vec::new() })
        };
        self.react("Txn", Needs::Quorum, &request, answer).await.map(Response::new)
    }

    async fn compact(&self, request: Request<pb::CompactionRequest>) -> Answer<pb::CompactionResponse> {
        let answer = |beliefs: &mut Beliefs| Ok(pb::CompactionResponse { header: Some(header(beliefs)) });
        self.react("Compact", Needs::Quorum, &request, answer).await.map(Response::new)
    }
}

fn find(beliefs: &mut Beliefs, id: u64) -> Result<&mut Listed, Status> {
    let member = beliefs.members.iter_mut().find(|member| member.id.0 == id);
    member.ok_or_else(|| Status::not_found("etcdserver: member not found"))
}

fn on_the_wire(member: &Listed) -> pb::Member {
    pb::Member {
        id: member.id.0,
        name: member.name.clone(),
        peer_ur_ls: member.peer_urls.clone(),
        client_ur_ls: member.client_urls.clone(),
        is_learner: member.learner,
    }
}

#[tonic::async_trait]
impl Cluster for Shared {
    async fn member_add(&self, request: Request<pb::MemberAddRequest>) -> Answer<pb::MemberAddResponse> {
        let answer = |beliefs: &mut Beliefs| {
            let ask = request.get_ref();
            if beliefs.members.iter().any(|member| member.peer_urls == ask.peer_ur_ls) {
                return Err(Status::failed_precondition("etcdserver: Peer URLs already exists"));
            }
            let newest = beliefs.members.iter().map(|member| member.id.0).max().unwrap_or(0);
            let added = Listed {
                id: MemberId(newest + 1),
                name: String::new(),
                peer_urls: ask.peer_ur_ls.clone(),
                client_urls: Vec::new(),
                // As the real ones: who does not know learners ignores the wish.
                learner: ask.is_learner && beliefs.version.has_learners(),
            };
            beliefs.raft_index += 1;
            beliefs.members.push(added.clone());
            let members = beliefs.members.iter().map(on_the_wire).collect();
            Ok(pb::MemberAddResponse {
                header: Some(header(beliefs)),
                member: Some(on_the_wire(&added)),
                members,
            })
        };
        self.react("MemberAdd", Needs::Quorum, &request, answer).await.map(Response::new)
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Answer<pb::MemberRemoveResponse> {
        let answer = |beliefs: &mut Beliefs| {
            let id = find(beliefs, request.get_ref().id)?.id;
            beliefs.members.retain(|member| member.id != id);
            Ok(pb::MemberRemoveResponse { header: Some(header(beliefs)) })
        };
        self.react("MemberRemove", Needs::Quorum, &request, answer).await.map(Response::new)
    }

    async fn member_list(&self, request: Request<pb::MemberListRequest>) -> Answer<pb::MemberListResponse> {
        let answer = |beliefs: &mut Beliefs| {
            let members = beliefs.members.iter().map(on_the_wire).collect();
            Ok(pb::MemberListResponse { header: Some(header(beliefs)), members })
        };
        self.react("MemberList", Needs::Voter, &request, answer).await.map(Response::new)
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Answer<pb::MemberPromoteResponse> {
        let answer = |beliefs: &mut Beliefs| {
            if !beliefs.version.has_learners() {
                return Err(unknown_method());
            }
            let member = find(beliefs, request.get_ref().id)?;
            if !member.learner {
                return Err(Status::failed_precondition("etcdserver: can only promote a learner member"));
            }
            member.learner = false;
            Ok(pb::MemberPromoteResponse { header: Some(header(beliefs)) })
        };
        self.react("MemberPromote", Needs::Quorum, &request, answer).await.map(Response::new)
    }
}

fn alarm_type(kind: AlarmKind) -> pb::AlarmType {
    match kind {
        AlarmKind::NoSpace => pb::AlarmType::Nospace,
        AlarmKind::Corrupt => pb::AlarmType::Corrupt,
    }
}

#[tonic::async_trait]
impl Maintenance for Shared {
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Answer<pb::AlarmResponse> {
        let answer = |beliefs: &mut Beliefs| {
            let ask = request.get_ref();
            if ask.action() == AlarmAction::Deactivate {
                beliefs
                    .alarms
                    .retain(|alarm| alarm.member.0 != ask.member_id || alarm_type(alarm.kind) != ask.alarm());
            }
            let alarms = beliefs.alarms.iter().map(|alarm| pb::AlarmMember {
                member_id: alarm.member.0,
                alarm: alarm_type(alarm.kind).into(),
            });
            Ok(pb::AlarmResponse { alarms: alarms.collect() })
        };
        self.react("Alarm", Needs::Quorum, &request, answer).await.map(Response::new)
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        let answer = |beliefs: &mut Beliefs| {
            let mut status = pb::StatusResponse {
                header: Some(header(beliefs)),
                version: beliefs.version.to_string(),
                db_size: beliefs.db_size,
                leader: beliefs.leader.map_or(0, |leader| leader.0),
                raft_index: beliefs.raft_index,
                raft_term: beliefs.raft_term,
                ..Default::default()
            };
            if beliefs.version.minor >= 4 {
                status.raft_applied_index = beliefs.raft_index;
                status.db_size_in_use = beliefs.db_size;
                status.is_learner = beliefs.learner;
                if beliefs.leader.is_none() {
                    status.errors.push("etcdserver: no leader".into());
                }
            }
            if beliefs.version.minor >= 6 {
                status.db_size_quota = beliefs.quota;
            }
            Ok(status)
        };
        self.react("Status", Needs::Nothing, &request, answer).await.map(Response::new)
    }

    async fn defragment(&self, request: Request<pb::DefragmentRequest>) -> Answer<pb::DefragmentResponse> {
        let answer = |_: &mut Beliefs| Ok(pb::DefragmentResponse {});
        self.react("Defragment", Needs::Voter, &request, answer).await.map(Response::new)
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Answer<pb::HashKvResponse> {
        let answer = |beliefs: &mut Beliefs| {
            if !beliefs.version.has_hashes() {
                return Err(unknown_method());
            }
            if request.get_ref().revision > beliefs.revision {
                return Err(Status::out_of_range("etcdserver: mvcc: required revision is a future revision"));
            }
            Ok(pb::HashKvResponse {
                header: Some(header(beliefs)),
                hash: beliefs.hash,
                compact_revision: -1,
                hash_revision: 0,
            })
        };
        self.react("HashKV", Needs::Voter, &request, answer).await.map(Response::new)
    }

    type SnapshotStream = Iter<vec::IntoIter<Result<pb::SnapshotResponse, Status>>>;

    async fn snapshot(&self, request: Request<pb::SnapshotRequest>) -> Answer<Self::SnapshotStream> {
        let answer = |beliefs: &mut Beliefs| Ok((beliefs.snapshot.clone(), beliefs.snapshot_cut));
        let (blobs, cut) = self.react("Snapshot", Needs::Voter, &request, answer).await?;
        let mut remaining = blobs.iter().map(Bytes::len).sum::<usize>() + cut;
        let pieces: Vec<_> = blobs
            .into_iter()
            .map(|blob| {
                remaining -= blob.len();
                Ok(pb::SnapshotResponse { remaining_bytes: remaining as u64, blob, header: None })
            })
            .collect();
        Ok(Response::new(stream::iter(pieces)))
    }

    async fn move_leader(&self, request: Request<pb::MoveLeaderRequest>) -> Answer<pb::MoveLeaderResponse> {
        let answer = |beliefs: &mut Beliefs| {
            if !beliefs.version.moves_leader() {
                return Err(unknown_method());
            }
            if beliefs.leader != Some(beliefs.identity.member) {
                return Err(Status::failed_precondition("etcdserver: not leader"));
            }
            let target = request.get_ref().target_id;
            if !beliefs.members.iter().any(|member| member.id.0 == target && !member.learner) {
                return Err(Status::failed_precondition("etcdserver: bad leader transferee"));
            }
            beliefs.leader = Some(MemberId(target));
            Ok(pb::MoveLeaderResponse {})
        };
        self.react("MoveLeader", Needs::Quorum, &request, answer).await.map(Response::new)
    }
}
