//! A cluster of one: its one copy of the data is never given up.

use std::time::Duration;

use api::conditions::ConditionStatus;
use lab::kit::{TestNamespace, shared_lab};
use serde_json::json;

use crate::heal::volume;
use crate::support::{Cluster, LIMIT, Operator, Outcome, Who, stays};

const REPOSITORY: &str = "gcr.io/etcd-development/etcd";
/// Longer than a silent member is borne where others have its data.
const LONGER: Duration = Duration::from_secs(12);

/// From a repository of the user's own; upgraded, deleted, and at last corrupt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_is_changed_deleted_and_corrupt() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "one").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let pod = json!({"persistentVolumeClaimSpec": volume()});
        let spec = json!({
            "size": 1, "version": "3.5.16", "repository": REPOSITORY, "memberUnresponsiveSeconds": 10, "pod": pod,
        });
        let cluster = Cluster::create(test, "c", spec).await?;
        cluster.settled(1, "3.5.16").await?;
        let load = cluster.traffic().await?;

        let before = cluster.victim(Who::Seed).await?;
        cluster.edit(json!({"version": "3.5.35"})).await?;
        let said = cluster.condition("Upgrading", ConditionStatus::True, LIMIT).await?;
        assert!(said.message.contains("a cluster of 1 does not answer while"), "{}", said.message);
        cluster.settled(1, "3.5.35").await?;
        before.came_back(&cluster, 1).await?;
        let image = cluster.pods().await?.pop().and_then(|pod| pod.spec?.containers.pop()?.image);
        assert_eq!(image, Some(format!("{REPOSITORY}:v3.5.35")));

        let before = cluster.victim(Who::Seed).await?;
        test.kubectl(&["delete", "pod", &before.name]).await?;
        cluster.settled(1, "3.5.35").await?;
        before.came_back_on_its_volume(&cluster).await?;
        load.end().await?;

        let corrupt = cluster.victim(Who::Seed).await?;
        corrupt.corrupt_wal(&cluster)?;
        let said = cluster.condition("QuorumLost", ConditionStatus::True, LIMIT).await?;
        assert!(said.message.contains(&corrupt.name), "{}", said.message);
        let claims = cluster.footprints().await?.into_values().map(|(_, _, claim)| claim).collect::<Vec<_>>();
        stays("the one copy of the data", LONGER, async || {
            let now = cluster.footprints().await?;
            Ok(now.keys().eq([&corrupt.name]) && now.into_values().map(|(_, _, claim)| claim).eq(claims.clone()))
        })
        .await
    })
    .await
    .unwrap();
}
