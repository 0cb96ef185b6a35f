//! Who a member is, and what becomes of it when its data is lost.

use super::cluster::Cluster;
use super::traffic::until_keys_grow;
use super::{SOON, program};
use etcd::process::{Bootstrap, Place, eventually};
use etcd::traffic::{Config, Traffic, Unverified};
use etcd::{Error, Expect, Member};
use lab::programs::EtcdVersion::{self, V3_1_10, V3_5_16, V3_6_16};
use rstest::rstest;

#[tokio::test]
async fn an_address_that_another_cluster_took_is_noticed() {
    let mut cluster = Cluster::start(V3_5_16, 1).await;
    let before = cluster.status(0).await.identity;
    let member = Member::connect(cluster.places[0].client(), before.into()).unwrap();
    member.health().await.unwrap();

    let place = &mut cluster.places[0];
    place.kill().unwrap();
    place.wipe().unwrap();
    let other = Bootstrap { token: "other".into(), ..Bootstrap::new_cluster([&*place]) };
    place.start(&cluster.etcd, &other).unwrap();
    let found = place.healthy(SOON).await.unwrap().identity;
    assert_ne!(found, before);
    let wrong = Error::WrongIdentity { expected: before.into(), found };
    assert_eq!(member.health().await, Err(wrong.clone()));
    assert_eq!(member.remove_member(found.member).await, Err(wrong));
    // Of the same cluster, but another member.
    let sibling = Expect { cluster: Some(found.cluster), member: Some(before.member) };
    assert!(matches!(member.expecting(sibling).status().await, Err(Error::WrongIdentity { .. })));
}

/// The reason why a seed's bootstrap arguments are disarmed: no check of identity can notice this.
#[rstest]
#[tokio::test]
async fn a_wiped_seed_comes_back_as_itself_and_loses_writes(
    #[values(V3_1_10, V3_5_16)] version: EtcdVersion,
) {
    let mut cluster = Cluster::start(version, 1).await;
    let seed = Bootstrap::new_cluster(&cluster.places);
    cluster.add("b", false).await;
    cluster.start_last();
    cluster.places[1].healthy(SOON).await.unwrap();
    let before = cluster.status(0).await.identity;
    let endpoints = vec![cluster.places[0].client().to_string()];
    let traffic = Traffic::start(endpoints.clone(), Config::default());
    until_keys_grow(&cluster, 1).await;

    cluster.places[0].kill().unwrap();
    cluster.places[0].wipe().unwrap();
    cluster.places[0].start(&cluster.etcd, &seed).unwrap();
    let after = cluster.places[0].healthy(SOON).await.unwrap().identity;
    assert_eq!(after, before);
    cluster.member(0).put("lonely", "yes").await.unwrap();

    let report = traffic.finish().await;
    assert!(!report.violations.is_empty(), "{report}");
    let lost = report.verify(&endpoints).await.unwrap_err();
    assert!(matches!(lost, Unverified::Lost(_)), "{lost}");
}

/// The remedy: a member with data ignores its bootstrap arguments, one without exits at once.
#[rstest]
#[tokio::test]
async fn a_disarmed_seed_restarts_with_data_and_never_without(
    #[values(V3_1_10, V3_6_16)] version: EtcdVersion,
) {
    let mut place = Place::new("a").unwrap();
    let etcd = program(version);
    place.start(&etcd, &Bootstrap::new_cluster([&place])).unwrap();
    let before = place.healthy(SOON).await.unwrap().identity;
    place.member().unwrap().put("k", "v").await.unwrap();

    let disarmed = Bootstrap {
        peers: format!("{}={},gone=http://disarmed.invalid:2380", place.name(), place.peer_url()),
        ..Bootstrap::join([&place])
    };
    place.start(&etcd, &disarmed).unwrap();
    assert_eq!(place.healthy(SOON).await.unwrap().identity, before);
    assert!(place.member().unwrap().get("k").await.unwrap().is_some());

    place.kill().unwrap();
    place.wipe().unwrap();
    place.start(&etcd, &disarmed).unwrap();
    let exit = eventually("etcd exits", SOON, async || {
        assert!(place.member().unwrap().put("k", "v").await.is_err());
        place.exit().unwrap().ok_or("it still runs")
    });
    assert!(!exit.await.unwrap().success());
}
