//! The traffic client against clusters that lose members.

use super::SOON;
use super::cluster::Cluster;
use etcd::kv::under;
use etcd::process::eventually;
use etcd::traffic::{Config, Crowd, Traffic};
use lab::programs::EtcdVersion::{self, V3_1_10, V3_5_35, V3_6_16};
use rstest::rstest;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

pub async fn until_keys_grow(cluster: &Cluster, index: usize) {
    let member = cluster.member(index);
    let count = async || member.range(under("traffic/")).await.map(|found| found.count);
    let before = eventually("keys can be counted", SOON, count).await.unwrap();
    eventually("more keys are written", SOON, async || match count().await {
        Ok(now) if now > before + 10 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
}

/// Each member stops and comes back, as in an upgrade; whoever has all of them as endpoints loses nothing.
///
/// Stopped members hand their leadership over. When a leader dies without a word, members before 3.4 do not
/// answer linearizable reads for up to 7 s, which no client can hide.
#[rstest]
#[case::stopped(V3_1_10, false)]
#[case::stopped(V3_6_16, false)]
#[case::killed(V3_5_35, true)]
#[tokio::test]
async fn no_request_fails_while_members_restart(#[case] version: EtcdVersion, #[case] killed: bool) {
    let mut cluster = Cluster::start(version, 3).await;
    // Other suites run beside this one.
    let patience = Duration::from_secs(10);
    let traffic = Traffic::start(cluster.endpoints(), Config { patience, ..Config::default() });
    let crowd = Crowd::start(cluster.endpoints());
    for index in 0..3 {
        until_keys_grow(&cluster, index).await;
        let place = &mut cluster.places[index];
        if !killed {
            place.terminate().unwrap();
            let stopped = async || place.exit().unwrap().ok_or("it still runs");
            eventually("etcd stops", SOON, stopped).await.unwrap();
        }
        place.kill().unwrap();
        until_keys_grow(&cluster, (index + 1) % 3).await;
        cluster.restart(index);
        cluster.places[index].healthy(SOON).await.unwrap();
    }
    let seen = crowd.finish().await;
    println!("{version}: {seen:?}");
    assert_eq!(seen.violations, Vec::<String>::new());
    assert!(seen.answered > 50 && seen.watched > 20 && seen.leases_renewed > 0, "{seen:?}");
    let report = traffic.finish().await;
    println!("{version}: {report}");
    assert!(report.failures.is_empty() && report.violations.is_empty(), "{report}");
    assert!(report.writes > 50 && report.longest_pause < patience, "{report}");
    report.verify(&cluster.endpoints()).await.unwrap();
}

#[tokio::test]
async fn endpoints_can_change_under_way() {
    let cluster = Cluster::start(V3_6_16, 1).await;
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config { patience: Duration::from_millis(200), ..Config::default() };
    let patience = Instant::now() + config.patience * 2;
    let traffic = Traffic::start(vec![deaf.local_addr().unwrap().to_string()], config);
    // It hangs up on everybody, until somebody has tried for longer than they have patience.
    while Instant::now() < patience {
        drop(tokio::time::timeout(SOON, deaf.accept()).await.unwrap().unwrap());
    }
    assert_eq!(cluster.member(0).range(under("traffic/")).await.unwrap().count, 0);
    traffic.set_endpoints(cluster.endpoints());
    until_keys_grow(&cluster, 0).await;
    let report = traffic.finish().await;
    assert!(!report.failures.is_empty() && report.writes > 0, "{report}");
    report.verify(&cluster.endpoints()).await.unwrap();

    cluster.member(0).delete("traffic/0/swap").await.unwrap();
    assert!(report.verify(&cluster.endpoints()).await.is_err());
}
