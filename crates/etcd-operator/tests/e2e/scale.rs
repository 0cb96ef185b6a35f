//! Scale by any step and any jump, with the operator dying in the middle of it.

use lab::kit::{TestNamespace, shared_lab};
use rstest::rstest;
use serde_json::json;

use crate::support::{Cluster, Operator, Outcome};

/// With `kubectl scale`, as a user would; up and down, down to one and back.
#[tokio::test]
async fn three_four_five_seven_three_one_three() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "scale").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": "3.5.16"})).await?;
        cluster.settled(3, "3.5.16").await?;
        let load = cluster.traffic().await?;
        for size in [4, 5, 7, 3, 1, 3] {
            let before = cluster.pod_names().await?;
            test.kubectl(&["scale", "etcdcluster/c", &format!("--replicas={size}")]).await?;
            cluster.settled(size, "3.5.16").await?;
            let after = cluster.pod_names().await?;
            let stayed = before.intersection(&after).count();
            assert_eq!(stayed, before.len().min(size), "only what had to come or go did");
        }
        load.end_without_failure().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}

/// Created in one size, and one edit each way. Where etcd has no learners, one member has to wait for the second: clients notice that.
#[rstest]
#[case::without_learners("3.3.12", &[1, 3, 1])]
#[case::with_one_learner("3.4.15", &[1, 3, 1])]
#[case::churn("3.5.16", &[1, 3, 7, 3, 1])]
#[case::with_several_learners("3.6.16", &[7, 1, 3])]
#[tokio::test]
async fn one_edit(#[case] version: &str, #[case] sizes: &[usize]) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "jump").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": sizes[0], "version": version})).await?;
        cluster.settled(sizes[0], version).await?;
        let load = cluster.traffic().await?;
        for size in &sizes[1..] {
            cluster.edit(json!({"size": size})).await?;
            cluster.settled(*size, version).await?;
            cluster.same_data().await?;
        }
        if version.starts_with("3.3") {
            load.end().await?;
        } else {
            load.end_without_failure().await?;
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Dead right after each of these steps, before it could tell anyone: the next one goes on from what it finds. The seed's
/// record, and the mark of its pod that goes before the cluster's, are written each time anew: one who always died of them
/// would get nowhere.
#[rstest]
#[case::every_add_and_every_remove(&["AddMember", "RemoveMember"])]
#[case::every_write(&[
    "RecordCluster", "EnsureHeadlessService", "EnsureClientService", "SetBudget", "CreateSeed", "CreateMember",
    "StopServing", "PatchImage", "DeletePod", "AddMember", "Promote", "RemoveMember", "MoveLeader", "CheckImage",
    "DropImageCheck",
])]
#[tokio::test]
async fn the_operator_dies_right_after(#[case] steps: &[&str]) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "dies").await.unwrap();
    test.run(async |test| -> Outcome {
        let mut operator = Operator::start_dying(test, steps)?;
        let mut deaths = Vec::new();
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.5.16"})).await?;
        operator.revived_during(cluster.settled(1, "3.5.16")).await?;
        let load = cluster.traffic().await?;
        for (size, version) in [(3, "3.5.16"), (3, "3.5.35"), (1, "3.5.35")] {
            cluster.edit(json!({"size": size, "version": version})).await?;
            deaths.push(operator.revived_during(cluster.settled(size, version)).await?);
            cluster.same_data().await?;
        }
        println!("died {deaths:?} times");
        if steps.len() == 2 {
            // Once for each member that came or went; who hears no answer from etcd does not know that the step is done.
            assert!(matches!(deaths[..], [1..=2, 0, 1..=2]), "{deaths:?}");
        }
        load.end().await?;
        cluster.pod_names().await.map(|names| assert_eq!(names.len(), 1))
    })
    .await
    .unwrap();
}
