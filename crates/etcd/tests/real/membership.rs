//! Changes of membership, and lists that can be trusted.

use super::SOON;
use super::cluster::{Cluster, PROMPT};
use etcd::process::eventually;
use etcd::{Error, Freshness};
use lab::programs::EtcdVersion::{self, V3_1_10, V3_3_12, V3_4_15, V3_5_35, V3_6_16};
use rstest::rstest;
use std::time::{Duration, Instant};

/// Growing 1 → 2 is free; then etcd wants every voter connected for 5 s.
#[rstest]
#[tokio::test]
async fn an_add_waits_until_all_voters_are_connected(#[values(V3_1_10, V3_6_16)] version: EtcdVersion) {
    let mut cluster = Cluster::start(version, 1).await;
    let began = Instant::now();
    let added = cluster.add("b", false).await;
    let [a, b] = &cluster.member(0).hearsay().await.unwrap()[..] else { panic!("not two members") };
    let unstarted = if a.id == added.id { a } else { b };
    assert!(unstarted.name.is_empty() && unstarted.client_urls.is_empty(), "{unstarted:?}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());

    cluster.start_last();
    cluster.places[1].healthy(SOON).await.unwrap();
    let started = Instant::now();
    let refused = cluster.member(0).add_member(vec!["http://127.0.0.1:1".into()], false).await.unwrap_err();
    assert!(matches!(refused, Error::UnhealthyCluster | Error::NotEnoughStarted), "{refused:?}");
    assert!(refused.is_wait());
    cluster.add("c", false).await;
    assert!(started.elapsed() > Duration::from_secs(2), "{:?}", started.elapsed());
    cluster.start_last();
    cluster.places[2].healthy(SOON).await.unwrap();
    assert_eq!(cluster.member(2).members().await.unwrap().len(), 3);
}

/// A member that slept through a change knows it before it gives a list away.
#[rstest]
#[tokio::test]
async fn a_list_is_never_stale(#[values(V3_1_10, V3_4_15, V3_6_16)] version: EtcdVersion) {
    let cluster = Cluster::start_with(version, 3, &[PROMPT]).await;
    let leader = cluster.leader().await;
    let sleeper = (leader + 1) % 3;

    cluster.places[sleeper].pause().unwrap();
    let added = cluster.member(leader).add_member(vec!["http://127.0.0.1:1".into()], false).await.unwrap();
    let impatient = cluster.member(sleeper).with_deadline(Duration::from_millis(300));
    assert_eq!(impatient.members().await, Err(Error::TimedOut));
    cluster.places[sleeper].resume().unwrap();
    let listed = eventually("the list is given", SOON, async || cluster.member(sleeper).members().await);
    let listed = listed.await.unwrap();
    assert!(listed.len() == 4 && listed.iter().any(|member| member.id == added.id), "{listed:?}");
}

/// Nor is a snapshot, where that is asked for.
#[rstest]
#[tokio::test]
async fn a_proven_snapshot_has_what_its_member_slept_through(
    #[values(V3_1_10, V3_6_16)] version: EtcdVersion,
) {
    let cluster = Cluster::start(version, 3).await;
    let leader = cluster.leader().await;
    let sleeper = (leader + 1) % 3;

    cluster.places[sleeper].pause().unwrap();
    cluster.member(leader).put("k", "needle").await.unwrap();
    cluster.places[sleeper].resume().unwrap();
    let started = async || cluster.member(sleeper).snapshot(Freshness::Proven).await;
    let mut snapshot = eventually("a snapshot is given", SOON, started).await.unwrap();
    let mut pages = Vec::new();
    while let Some(piece) = snapshot.next().await.unwrap() {
        pages.extend_from_slice(&piece);
    }
    assert!(pages.windows(6).any(|bytes| bytes == b"needle"));
}

/// A joiner whose list of peers is older than the add never starts.
#[tokio::test]
async fn a_joiner_with_a_stale_list_exits() {
    let mut cluster = Cluster::start(V3_5_35, 1).await;
    let mut stale = cluster.join();
    cluster.add("b", true).await;
    let place = cluster.places.last_mut().unwrap();
    stale.peers = format!("b={}", place.peer_url());
    place.start(&cluster.etcd, &stale).unwrap();
    let exit = eventually("etcd exits", SOON, async || place.exit().unwrap().ok_or("it still runs"));
    assert!(!exit.await.unwrap().success());
    cluster.start_last();
    let learner = cluster.places[1].member().unwrap();
    eventually("the learner starts", SOON, async || learner.status().await).await.unwrap();
}

#[rstest]
#[tokio::test]
async fn leadership_moves_and_hashes_agree(#[values(V3_3_12, V3_6_16)] version: EtcdVersion) {
    let cluster = Cluster::start(version, 3).await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let target = cluster.status(follower).await.identity.member;
    assert_eq!(cluster.member(follower).move_leader(target).await, Err(Error::NotLeader));
    cluster.member(leader).move_leader(target).await.unwrap();
    let moved = eventually("the leader is another", SOON, async || {
        let status = cluster.member(leader).status().await?;
        if status.leader == Some(target) { Ok(()) } else { Err(Error::NoLeader) }
    });
    moved.await.unwrap();

    let revision = cluster.member(leader).put("k", "v").await.unwrap();
    let mut hashes = Vec::new();
    for index in 0..3 {
        cluster.member(index).health().await.unwrap();
        hashes.push(cluster.member(index).hash_kv(revision).await.unwrap());
    }
    assert!(hashes[0] == hashes[1] && hashes[1] == hashes[2], "{hashes:?}");
}
