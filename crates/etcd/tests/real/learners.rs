//! Members that do not vote yet.

use super::cluster::{Cluster, PROMPT, settled};
use super::{SOON, program};
use etcd::process::eventually;
use etcd::{Error, Freshness};
use lab::programs::EtcdVersion::{self, V3_3_12, V3_4_15, V3_5_16, V3_6_16};
use rstest::rstest;
use std::time::{Duration, Instant};

#[rstest]
#[tokio::test]
async fn a_learner_joins_serves_nothing_and_is_promoted(
    #[values(V3_4_15, V3_5_16, V3_6_16)] version: EtcdVersion,
) {
    let mut cluster = Cluster::start(version, 1).await;
    let added = cluster.add("b", true).await;
    let first = cluster.member(0);
    let another = async || first.add_member(vec!["http://127.0.0.1:1".into()], true).await;
    assert_eq!(settled(another).await, Err(Error::TooManyLearners));
    if version > V3_4_15 {
        // 3.4.15 promotes a learner that never started, and loses its quorum by it.
        let promoted = settled(async || first.promote(added.id).await).await;
        assert_eq!(promoted, Err(Error::LearnerNotReady));
    }

    cluster.start_last();
    let learner = cluster.member(1);
    let status = eventually("the learner answers", SOON, async || learner.status().await).await.unwrap();
    assert!(status.learner && status.identity.member == added.id);
    assert_eq!(learner.health().await, Err(Error::AskedLearner));
    assert_eq!(learner.members().await, Err(Error::AskedLearner));
    assert_eq!(learner.put("k", "v").await, Err(Error::AskedLearner));
    assert_eq!(learner.snapshot(Freshness::Proven).await.unwrap_err(), Error::AskedLearner);

    eventually("it is promoted", SOON, async || first.promote(added.id).await).await.unwrap();
    cluster.places[1].healthy(SOON).await.unwrap();
    assert!(cluster.member(1).members().await.unwrap().iter().all(|member| !member.learner));
}

/// From 3.6: three members with no pause of 5 s in between.
#[tokio::test]
async fn several_learners_join_at_once() {
    let flags = ["--max-learners=2"];
    let mut cluster = Cluster::start_with(V3_6_16, 1, &flags).await;
    let began = Instant::now();
    let added = [cluster.add("b", true).await, cluster.add("c", true).await];
    let join = cluster.join().with_flag(flags[0]);
    for place in &mut cluster.places[1..] {
        place.start(&cluster.etcd, &join).unwrap();
    }
    let first = cluster.member(0);
    for learner in &added {
        eventually("it is promoted", SOON, async || first.promote(learner.id).await).await.unwrap();
    }
    for place in &cluster.places {
        place.healthy(SOON).await.unwrap();
    }
    println!("three members after {:?}", began.elapsed());
    let voters = first.members().await.unwrap();
    assert!(voters.len() == 3 && voters.iter().all(|member| !member.learner), "{voters:?}");
}

/// Why learners wait until every member runs 3.4: asked for one, a 3.4 member cannot know what this does to
/// the others.
#[tokio::test]
async fn a_learner_kills_members_of_3_3() {
    let mut cluster = Cluster::start_with(V3_3_12, 3, &[PROMPT]).await;
    cluster.etcd = program(V3_4_15);
    let prompt = cluster.join().with_flag(PROMPT);
    cluster.places[0].start(&cluster.etcd, &prompt).unwrap();
    cluster.places[0].healthy(SOON).await.unwrap();

    let peer = vec!["http://127.0.0.1:1".to_owned()];
    assert_eq!(cluster.member(1).add_member(peer.clone(), true).await, Err(Error::Unsupported));
    let upgraded = cluster.member(0).with_deadline(Duration::from_secs(2));
    eventually("the 3.3 members are dead", SOON, async || {
        let asked = upgraded.add_member(peer.clone(), true).await;
        for place in &mut cluster.places[1..] {
            place.exit().unwrap().ok_or(format!("{} still runs, the answer was {asked:?}", place.name()))?;
        }
        Ok::<_, String>(())
    })
    .await
    .unwrap();
    eventually("quorum is gone", SOON, async || match upgraded.health().await {
        Err(Error::NoLeader | Error::TimedOut) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
}
