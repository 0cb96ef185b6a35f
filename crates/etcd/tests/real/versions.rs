//! Everything the client does works on every version, or is said to be missing there.

use super::SOON;
use super::cluster::{Cluster, settled};
use domain::{AlarmKind, MemberId, Version};
use etcd::kv::{TxnRequest, last_changed_at, put_op, under};
use etcd::{Error, Freshness, Member, Status};
use lab::programs::EtcdVersion::{self, V3_1_10, V3_2_13, V3_3_12, V3_4_15, V3_5_16, V3_5_35, V3_6_16};
use rstest::rstest;
use tokio::time::timeout;

#[rstest]
#[tokio::test]
async fn one_member_of_every_version(
    #[values(V3_1_10, V3_2_13, V3_3_12, V3_4_15, V3_5_16, V3_5_35, V3_6_16)] version: EtcdVersion,
) {
    let cluster = Cluster::start(version, 1).await;
    let status = cluster.status(0).await;
    let member = cluster.member(0).expecting(status.identity.into());

    assert_eq!(status.version.to_string(), version.as_str());
    assert_eq!(status.leader, Some(status.identity.member));
    assert!(!status.learner && status.db_size > 0 && status.raft_term > 0 && status.raft_index > 0);
    let since_3_4 = version >= V3_4_15;
    assert_eq!((status.applied_index.is_some(), status.db_size_in_use.is_some()), (since_3_4, since_3_4));
    assert_eq!(status.quota.is_some(), version >= V3_6_16);

    keys(&member).await;
    leases_and_watches(&member).await;
    membership(&member, &status).await;
    maintenance(&member, status.version).await;
}

async fn keys(member: &Member) {
    let first = member.put("k/a", "1").await.unwrap();
    let swap = |seen| TxnRequest {
        compare: vec![last_changed_at("k/a", seen)],
        success: vec![put_op("k/a", "2")],
        failure: vec![],
    };
    assert!(member.txn(swap(first)).await.unwrap().succeeded);
    assert!(!member.txn(swap(first)).await.unwrap().succeeded);
    let found = member.get("k/a").await.unwrap().unwrap();
    assert_eq!((found.value.as_slice(), found.create_revision), (b"2".as_slice(), first));
    member.put("k/b", "3").await.unwrap();
    assert_eq!(member.range(under("k/")).await.unwrap().kvs.len(), 2);
    assert_eq!(member.delete("k/b").await.unwrap(), 1);
    assert_eq!(member.get("k/b").await.unwrap(), None);
    member.compact(found.mod_revision).await.unwrap();
    let mut past = under("k/");
    past.revision = first;
    assert_eq!(member.range(past).await, Err(Error::Compacted));
}

async fn leases_and_watches(member: &Member) {
    let mut watcher = member.watch("l/", 0).await.unwrap();
    let lease = member.grant_lease(60).await.unwrap();
    member.put_leased("l/a", "1", lease).await.unwrap();
    assert!(member.renew_lease(lease).await.unwrap().is_some());
    member.revoke_lease(lease).await.unwrap();
    assert_eq!(member.renew_lease(lease).await.unwrap(), None);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let events = timeout(SOON, watcher.next()).await.unwrap().unwrap();
        seen.extend(events.iter().map(|event| event.r#type().as_str_name()));
    }
    assert_eq!(seen, ["PUT", "DELETE"]);
}

async fn membership(member: &Member, status: &Status) {
    let (id, version) = (status.identity.member, status.version);
    let listed = member.members().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id, listed[0].name.as_str(), listed[0].learner), (id, "a", false));
    assert_eq!(member.hearsay().await.unwrap(), listed);

    let nobody = MemberId(1);
    assert_eq!(settled(async || member.remove_member(nobody).await).await, Err(Error::MemberNotFound));
    let same = || listed[0].peer_urls.clone();
    let add = async |learner| settled(async || member.add_member(same(), learner).await).await;
    let (learner, promoted) = if version.has_learners() {
        (Error::PeerUrlTaken, Error::NotALearner)
    } else {
        (Error::Unsupported, Error::Unsupported)
    };
    assert_eq!(add(false).await, Err(Error::PeerUrlTaken));
    assert_eq!(add(true).await, Err(learner));
    assert_eq!(settled(async || member.promote(id).await).await, Err(promoted));
    // 3.3 never answers a move to nobody.
    if version.has_learners() {
        assert_eq!(member.move_leader(nobody).await, Err(Error::NotAVoter));
    } else if !version.moves_leader() {
        assert_eq!(member.move_leader(nobody).await, Err(Error::Unsupported));
    }
    assert_eq!(member.members().await.unwrap(), listed);
}

async fn maintenance(member: &Member, version: Version) {
    member.health().await.unwrap();
    assert_eq!(member.alarms().await.unwrap(), []);
    member.defragment().await.unwrap();
    let revision = member.put("m", "1").await.unwrap();
    if version.has_hashes() {
        let hash = member.hash_kv(revision).await.unwrap();
        assert_eq!((hash.revision, hash), (revision, member.hash_kv(revision).await.unwrap()));
        assert_eq!(member.hash_kv(revision + 100).await, Err(Error::FutureRevision));
    } else {
        assert_eq!(member.hash_kv(revision).await, Err(Error::Unsupported));
    }
    let mut snapshot = member.snapshot(Freshness::Proven).await.unwrap();
    let mut size = 0;
    while let Some(piece) = snapshot.next().await.unwrap() {
        size += piece.len();
    }
    // Whole pages, and the SHA-256 of them.
    assert!(size > 4096 && size % 512 == 32, "{size}");
}

/// Its answers have no header before 3.5.
#[rstest]
#[tokio::test]
async fn a_full_database_raises_an_alarm(#[values(V3_1_10, V3_4_15, V3_6_16)] version: EtcdVersion) {
    let cluster = Cluster::start_with(version, 1, &["--quota-backend-bytes=1000000"]).await;
    let member = cluster.member(0);
    let value = vec![0; 100_000];
    let full = loop {
        if let Err(error) = member.put("big", value.clone()).await {
            break error;
        }
    };
    assert_eq!(full, Error::NoSpace);
    let alarms = member.alarms().await.unwrap();
    assert_eq!(alarms.len(), 1);
    let status = cluster.status(0).await;
    assert_eq!((alarms[0].member, alarms[0].kind), (status.identity.member, AlarmKind::NoSpace));
    assert_eq!(status.alarmed(), (version >= V3_4_15).then_some(true), "{:?}", status.errors);
    member.health().await.unwrap();

    let newest = member.get("big").await.unwrap().unwrap().mod_revision;
    member.compact(newest).await.unwrap();
    member.defragment().await.unwrap();
    member.disarm(alarms[0]).await.unwrap();
    assert_eq!(member.alarms().await.unwrap(), []);
    assert_ne!(cluster.status(0).await.alarmed(), Some(true));
    member.put("big", "small").await.unwrap();
}
