//! Upgrades: by one edit each or several minors at once, with a change of mind on the way, and what is refused.

use api::conditions::ConditionStatus;
use lab::kit::{TestNamespace, shared_lab};
use rstest::rstest;
use serde_json::json;

use crate::support::{Cluster, LIMIT, Operator, Outcome};

/// The book's version to today's, minor by minor; from the last one there is no way back.
#[tokio::test]
async fn from_the_books_version_to_todays() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "minors").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": "3.1.10"})).await?;
        cluster.settled(3, "3.1.10").await?;
        let pods = cluster.pod_names().await?;
        let load = cluster.traffic().await?;
        for version in ["3.2.13", "3.3.12", "3.4.15", "3.5.35", "3.6.16"] {
            cluster.edit(json!({"version": version})).await?;
            cluster.settled(3, version).await?;
            assert_eq!(cluster.pod_names().await?, pods, "images change in place");
            let told = cluster.told("Member Upgraded").await?;
            assert_eq!(told.iter().filter(|m| m.ends_with(&format!("to {version}"))).count(), 3, "{told:?}");
        }
        refused(&cluster, "3.5.35", "cannot go back from 3.6.16 to 3.5.35").await?;
        cluster.edit(json!({"version": "3.6.16"})).await?;
        cluster.settled(3, "3.6.16").await?;
        load.end_without_failure().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}

/// By one edit in total; etcd goes from minor to minor, and into 3.6 only from a 3.5 that can.
#[rstest]
#[case::over_a_minor("3.4.15")]
#[case::over_a_patch("3.5.16")]
#[tokio::test]
async fn through_3_5_35_to_3_6(#[case] from: &str) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "hops").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": from})).await?;
        cluster.settled(3, from).await?;
        let load = cluster.traffic().await?;
        cluster.edit(json!({"version": "3.6.16"})).await?;
        let upgrading = cluster.condition("Upgrading", ConditionStatus::True, LIMIT).await?;
        assert_eq!(upgrading.reason, "Cluster upgrading");
        assert_eq!(upgrading.message, "upgrading to 3.6.16, through 3.5.35 first");
        let said = cluster.says("to say where it goes", LIMIT, |s| s.target_version == "3.6.16").await?;
        assert_eq!(said.current_version, from, "the lowest that runs");
        cluster.settled(3, "3.6.16").await?;
        let mut told: Vec<String> = cluster.told("Member Upgraded").await?;
        for pod in cluster.pod_names().await? {
            let mut hop = |from: &str, to: &str| {
                let wanted = format!("Member {pod} upgraded from {from} to {to}");
                told.iter().position(|told| *told == wanted).map(|at| told.remove(at)).ok_or(wanted)
            };
            hop(from, "3.5.35")?;
            hop("3.5.35", "3.6.16")?;
        }
        assert!(told.is_empty(), "{told:?}");
        load.end_without_failure().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}

/// Size and version change together and across each other.
#[tokio::test]
async fn while_scaling() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "both").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": "3.5.16"})).await?;
        cluster.settled(3, "3.5.16").await?;
        let load = cluster.traffic().await?;
        cluster.edit(json!({"size": 5, "version": "3.5.35"})).await?;
        cluster.settled(5, "3.5.35").await?;
        cluster.edit(json!({"version": "3.6.16"})).await?;
        cluster.reaches(1, "3.6.16").await?;
        cluster.edit(json!({"size": 3})).await?;
        cluster.settled(3, "3.6.16").await?;
        load.end_without_failure().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}

/// Back and forth while etcd can; then another registry for the same version.
#[tokio::test]
async fn undone_in_the_middle() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "undone").await.unwrap();
    test.run(async |test| -> Outcome {
        // It dies after each image that it changed: none follows before the spec is changed back.
        let mut operator = Operator::start_dying(test, &["PatchImage"])?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": "3.4.15"})).await?;
        cluster.settled(3, "3.4.15").await?;
        let pods = cluster.pod_names().await?;
        let load = cluster.traffic().await?;
        for reached in [1, 2] {
            cluster.edit(json!({"version": "3.5.35"})).await?;
            operator.dies(reached).await?;
            cluster.reaches(reached, "3.5.35").await?;
            cluster.edit(json!({"version": "3.4.15"})).await?;
            operator.revived_during(cluster.settled(3, "3.4.15")).await?;
        }
        cluster.edit(json!({"version": "3.5.35", "repository": "gcr.io/etcd-development/etcd"})).await?;
        operator.revived_during(cluster.settled(3, "3.5.35")).await?;
        assert_eq!(cluster.pod_names().await?, pods);
        for pod in cluster.pods().await? {
            let images: Vec<_> =
                pod.spec.iter().flat_map(|s| &s.containers).map(|c| c.image.clone()).collect();
            assert_eq!(images, [Some("gcr.io/etcd-development/etcd:v3.5.35".to_owned())]);
        }
        load.end_without_failure().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}

/// What etcd cannot do or nobody can pull is said before any member is touched, and an edit back clears it.
#[tokio::test]
async fn impossible_versions_touch_nothing() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "refused").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": "3.5.35"})).await?;
        cluster.settled(3, "3.5.35").await?;
        let load = cluster.traffic().await?;
        let before = cluster.footprints().await?;

        cluster.edit(json!({"version": "3.5.99"})).await?;
        let missing =
            |c: &&api::conditions::Condition| c.type_ == "Degraded" && c.message.contains("v3.5.99");
        let said =
            cluster.says("to miss the image", LIMIT, |s| s.conditions.iter().any(|c| missing(&c))).await?;
        assert!(said.reason.contains("no member was touched"), "{}", said.reason);
        assert_eq!((said.current_version.as_str(), said.target_version.as_str()), ("3.5.35", "3.5.99"));
        assert_eq!(cluster.footprints().await?, before);
        cluster.edit(json!({"version": "3.5.35"})).await?;
        let said = cluster.settled(3, "3.5.35").await?.status.unwrap_or_default();
        assert!(said.conditions.iter().all(|c| c.type_ != "Degraded" && c.type_ != "Upgrading"), "{said:?}");

        refused(&cluster, "3.4.15", "cannot go back from 3.5.35 to 3.4.15").await?;
        refused(&cluster, "3.9.0", "not known to this operator").await?;
        refused(&cluster, "4.0.0", "not known to this operator").await?;
        refused(&cluster, "3.5.1", "can corrupt data").await?;
        assert_eq!(cluster.footprints().await?, before);
        for unparsable in ["3.5", "latest", "3.5.x", "3.5.16-rc.1"] {
            let refusal = cluster.edit(json!({"version": unparsable})).await.unwrap_err().to_string();
            assert!(refusal.contains("such as 3.5.16 or v3.5.16"), "{unparsable}: {refusal}");
        }
        cluster.edit(json!({"version": "v3.5.35"})).await?;
        cluster.settled(3, "3.5.35").await?;
        assert_eq!(cluster.footprints().await?, before, "nobody was touched in all this");
        load.end_without_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// The edit is taken, and status says why it is not acted on.
async fn refused(cluster: &Cluster<'_>, version: &str, why: &str) -> Outcome {
    let before = cluster.footprints().await?;
    cluster.edit(json!({"version": version})).await?;
    let generation = cluster.get().await?.metadata.generation;
    let says = |c: &api::conditions::Condition| c.type_ == "SpecInvalid" && c.message.contains(why);
    let said = cluster
        .says(&format!("to refuse {version}"), LIMIT, |s| {
            s.observed_generation == generation && s.conditions.iter().any(says)
        })
        .await?;
    assert!(said.reason.contains(why), "{}", said.reason);
    assert_eq!(said.target_version, "");
    assert_eq!(cluster.footprints().await?, before, "nobody is touched by {version}");
    Ok(())
}
