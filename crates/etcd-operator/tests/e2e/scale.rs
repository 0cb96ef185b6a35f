//! Scale by any step and any jump, with the operator dying in the middle of it.

use lab::kit::{TestNamespace, shared_lab};
use lab::wait::until;
use rstest::rstest;
use serde_json::json;

use crate::support::{Cluster, LIMIT, Operator, Outcome};

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

/// One edit each way. Where etcd has no learners, one member has to wait for the second: clients notice that.
#[rstest]
#[case::without_learners("3.3.12", &[3, 1])]
#[case::with_one_learner("3.4.15", &[3, 1])]
#[case::with_several_learners("3.6.16", &[3, 7, 1])]
#[tokio::test]
async fn one_edit(#[case] version: &str, #[case] sizes: &[usize]) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "jump").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": version})).await?;
        cluster.settled(1, version).await?;
        let load = cluster.traffic().await?;
        for size in sizes {
            cluster.edit(json!({"size": size})).await?;
            cluster.settled(*size, version).await?;
            cluster.same_data().await?;
        }
        load.end().await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// Killed as soon as etcd lists another set of members, at every membership change on the way out and back in.
#[tokio::test]
async fn the_operator_dies_after_every_add_and_every_remove() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "dies").await.unwrap();
    test.run(async |test| -> Outcome {
        let mut operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.5.16"})).await?;
        cluster.settled(1, "3.5.16").await?;
        let load = cluster.traffic().await?;
        for size in [3, 1] {
            let mut before = cluster.listed().await?;
            cluster.edit(json!({"size": size})).await?;
            // One that is quicker than this test looks may have made both changes.
            while before.len() != size {
                before = until("the next change of membership", LIMIT, async || {
                    let listed = cluster.listed().await.map_err(|e| e.to_string());
                    Ok(listed.and_then(|now| if now == before { Err("none yet".into()) } else { Ok(now) }))
                })
                .await?;
                operator.restart()?;
            }
            cluster.settled(size, "3.5.16").await?;
        }
        let (added, removed) =
            (cluster.told("New Member Added").await?, cluster.told("Member Removed").await?);
        // One that died before it could tell may have changed the membership untold; nobody came or went twice.
        assert!(added.len() <= 3 && removed.len() <= 2, "{added:?}, {removed:?}");
        load.end().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}
