//! What a member still says when a majority is gone.

use super::SOON;
use super::cluster::Cluster;
use etcd::process::eventually;
use etcd::{Error, Freshness};
use lab::programs::EtcdVersion::{self, V3_1_10, V3_4_15, V3_6_16};
use rstest::rstest;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A member that ran when quorum was lost says so, and can still be saved.
#[rstest]
#[tokio::test]
async fn a_survivor_knows_no_leader(#[values(V3_1_10, V3_4_15, V3_6_16)] version: EtcdVersion) {
    let mut cluster = Cluster::start(version, 3).await;
    let survivor = cluster.member(0);
    let listed = survivor.members().await.unwrap();
    cluster.places[1].kill().unwrap();
    cluster.places[2].kill().unwrap();

    eventually("it knows no leader", SOON, async || match survivor.health().await {
        Err(Error::NoLeader) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
    assert_eq!(survivor.members().await, Err(Error::NoLeader));
    assert_eq!(survivor.put("k", "v").await, Err(Error::NoLeader));
    assert_eq!(survivor.remove_member(listed[1].id).await, Err(Error::NoLeader));
    assert_eq!(survivor.status().await.unwrap().leader, None);
    assert_eq!(survivor.hearsay().await.unwrap().len(), 3);
    assert_eq!(survivor.snapshot(Freshness::Proven).await.unwrap_err(), Error::NoLeader);
    let mut snapshot = survivor.snapshot(Freshness::AsIs).await.unwrap();
    assert!(snapshot.next().await.unwrap().is_some());

    cluster.restart(1);
    cluster.places[0].healthy(SOON).await.unwrap();
    assert_eq!(survivor.members().await.unwrap(), listed);
}

/// A member that starts without quorum is silent to clients, and only its peer port tells that it lives.
#[rstest]
#[tokio::test]
async fn a_member_restarted_without_quorum_is_silent(#[values(V3_1_10, V3_6_16)] version: EtcdVersion) {
    let mut cluster = Cluster::start(version, 2).await;
    cluster.places[1].kill().unwrap();
    cluster.places[0].kill().unwrap();
    cluster.restart(0);
    let peer = cluster.places[0].peer();
    let answer = eventually("the peer port answers", SOON, async || version_of(peer).await).await.unwrap();
    assert!(answer.contains(version.as_str()), "{answer}");

    let member = cluster.member(0).with_deadline(Duration::from_secs(1));
    for error in [member.status().await.unwrap_err(), member.health().await.unwrap_err()] {
        assert!(matches!(error, Error::TimedOut | Error::Unreachable(_)), "{error:?}");
    }
    assert!(member.hearsay().await.is_err());

    cluster.restart(1);
    cluster.places[0].healthy(SOON).await.unwrap();
}

async fn version_of(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A process that hangs keeps its connections open: only the deadline ends a call.
#[tokio::test]
async fn a_paused_member_costs_a_deadline_and_is_back_at_once() {
    let cluster = Cluster::start(V3_6_16, 1).await;
    let member = cluster.member(0).with_deadline(Duration::from_millis(300));
    member.health().await.unwrap();
    cluster.places[0].pause().unwrap();
    assert_eq!(member.status().await, Err(Error::TimedOut));
    assert_eq!(member.health().await, Err(Error::TimedOut));
    cluster.places[0].resume().unwrap();
    member.with_deadline(SOON).health().await.unwrap();
}
