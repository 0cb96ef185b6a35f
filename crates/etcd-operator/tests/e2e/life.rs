//! A cluster's whole life on today's etcd, under traffic.

use lab::kit::{TestNamespace, shared_lab};
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
