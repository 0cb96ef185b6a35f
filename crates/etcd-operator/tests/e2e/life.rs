//! A cluster's whole life on today's etcd, under traffic.

use api::conditions::ConditionStatus;
use lab::kit::{TestNamespace, shared_lab};
use rstest::rstest;
use serde_json::json;

use crate::support::{Cluster, Operator, Outcome};

#[tokio::test]
async fn create_scale_lose_a_pod_upgrade() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "life").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": "3.5.16"})).await?;
        cluster.settled(3, "3.5.16").await?;
        let load = cluster.traffic().await?;

        cluster.edit(json!({"size": 5})).await?;
        cluster.settled(5, "3.5.16").await?;
        load.follow().await?;

        let before = cluster.pod_names().await?;
        let lost = before.first().cloned().unwrap_or_default();
        test.kubectl(&["delete", "pod", &lost]).await?;
        cluster.settled(5, "3.5.16").await?;
        let after = cluster.pod_names().await?;
        assert!(!after.contains(&lost));
        assert_eq!(before.intersection(&after).count(), 4, "nothing else was touched");
        load.follow().await?;

        cluster.edit(json!({"version": "3.5.35"})).await?;
        cluster.settled(5, "3.5.35").await?;
        assert_eq!(cluster.pod_names().await?, after, "an upgrade keeps the pods");

        cluster.edit(json!({"size": 3})).await?;
        cluster.settled(3, "3.5.35").await?;
        load.end_without_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// Members come, go and are changed while the cluster answers: its `Available` is as old as the cluster. Three seconds
/// without a leader turn it, which a busy machine alone can bring about, but not each time.
#[rstest]
#[case::of_the_book("3.1.10", "3.2.13")]
#[case::of_today("3.5.16", "3.5.35")]
#[tokio::test]
async fn available_turns_once(#[case] from: &str, #[case] to: &str) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "available").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        for name in ["c", "again", "once-more"] {
            let cluster = Cluster::create(test, name, json!({"size": 3, "version": from})).await?;
            let turns = cluster.turns("Available");
            cluster.settled(3, from).await?;
            for (size, version) in [(5, from), (3, from), (3, to)] {
                cluster.edit(json!({"size": size, "version": version})).await?;
                cluster.settled(size, version).await?;
            }
            let lost = cluster.pod_names().await?.pop_first().unwrap_or_default();
            test.kubectl(&["delete", "pod", &lost]).await?;
            cluster.settled(3, to).await?;
            let turns = turns.end();
            if matches!(turns.as_slice(), [(ConditionStatus::True, Some(_))]) {
                return Ok(());
            }
            println!("{name}: {turns:?}");
            test.kubectl(&["delete", "etcdcluster", name]).await?;
        }
        Err("it turned each time".into())
    })
    .await
    .unwrap();
}
