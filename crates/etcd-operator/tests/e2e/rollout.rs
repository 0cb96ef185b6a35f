//! Edits of a running cluster's pods, rolled out member by member, and edits that are refused.

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use lab::kit::{TestNamespace, shared_lab};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{Cluster, Operator, Outcome};

fn volume() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
}

fn etcd(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.containers.iter().find(|container| container.name == "etcd")
}

fn has_resources(pod: &Pod) -> bool {
    let requests = etcd(pod).and_then(|etcd| etcd.resources.as_ref()?.requests.as_ref());
    requests.and_then(|requests| requests.get("cpu")).is_some_and(|cpu| cpu.0 == "20m")
}

fn has_toleration(pod: &Pod) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.into_iter().any(|toleration| toleration.key.as_deref() == Some("spot"))
}

fn has_env(pod: &Pod) -> bool {
    let env = etcd(pod).and_then(|etcd| etcd.env.as_ref());
    env.is_some_and(|env| env.iter().any(|env| env.name == "ETCD_HEARTBEAT_INTERVAL"))
}

/// Resources, tolerations and environment of the etcd container, one after the other.
#[rstest]
#[case::on_empty_dirs(json!({"size": 3, "version": "3.6.16"}))]
#[case::on_volumes(json!({"size": 3, "version": "3.5.16", "pod": {"persistentVolumeClaimSpec": volume()}}))]
#[tokio::test]
async fn an_edit_of_pods_reaches_every_member(#[case] spec: Value) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "rollout").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let version = spec["version"].as_str().unwrap_or_default();
        let persistent = spec.get("pod").is_some();
        let cluster = Cluster::create(test, "c", spec.clone()).await?;
        cluster.settled(3, version).await?;
        let first = cluster.pod_names().await?;
        let load = cluster.traffic().await?;
        let edits: [(Value, fn(&Pod) -> bool); 3] = [
            (json!({"resources": {"requests": {"cpu": "20m", "memory": "32Mi"}}}), has_resources),
            (json!({"tolerations": [{"key": "spot", "operator": "Exists"}]}), has_toleration),
            (json!({"etcdEnv": [{"name": "ETCD_HEARTBEAT_INTERVAL", "value": "150"}]}), has_env),
        ];
        for (pod, arrived) in edits {
            cluster.edit(json!({"pod": pod})).await?;
            cluster.settled(3, version).await?;
            let pods = cluster.pods().await?;
            assert!(pods.iter().all(arrived), "{pod} is not on every member");
        }
        let last = cluster.pod_names().await?;
        if persistent {
            assert_eq!(last, first, "a member with a volume keeps its name");
        } else {
            assert!(last.is_disjoint(&first), "a member without a volume is replaced");
        }
        load.end_without_failure().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}

/// More members and other labels by one edit.
#[tokio::test]
async fn size_and_labels_at_once() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "labels").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.6.16"})).await?;
        cluster.settled(1, "3.6.16").await?;
        let load = cluster.traffic().await?;
        cluster.edit(json!({"size": 3, "pod": {"labels": {"team": "storage"}}})).await?;
        cluster.settled(3, "3.6.16").await?;
        let labelled = |pod: &Pod| pod.labels().get("team").is_some_and(|team| team == "storage");
        assert!(cluster.pods().await?.iter().all(labelled), "every member has the label");
        load.end_without_failure().await?;
        cluster.same_data().await
    })
    .await
    .unwrap();
}

/// Refused by the API server, with what to write instead; and the cluster is left as it was.
#[tokio::test]
async fn edits_that_cannot_be() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "cannot").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let spec = json!({"size": 1, "version": "3.5.16", "pod": {"persistentVolumeClaimSpec": volume()}});
        let cluster = Cluster::create(test, "c", spec).await?;
        cluster.settled(1, "3.5.16").await?;
        let before = cluster.footprints().await?;
        let larger = json!({"resources": {"requests": {"storage": "2Gi"}}});
        for (edit, says) in [
            (json!({"size": 0}), "size must be 1 to 7"),
            (json!({"size": 8}), "size must be 1 to 7"),
            (json!({"size": -1}), "size must be 1 to 7"),
            (json!({"pod": {"persistentVolumeClaimSpec": larger}}), "cannot be changed"),
            (json!({"pod": {"persistentVolumeClaimSpec": null}}), "can be neither added to nor taken from"),
            (json!({"pod": {"labels": {"app": "mine"}}}), "the operator's own"),
            (json!({"pod": {"labels": {"etcd_cluster": "other"}}}), "the operator's own"),
            (json!({"pod": {"annotations": {"etcd.version": "9"}}}), "the operator's own"),
            (
                json!({"pod": {"etcdEnv": [{"name": "ETCD_FORCE_NEW_CLUSTER", "value": "true"}]}}),
                "can lose data",
            ),
            (json!({"pod": {"etcdEnv": [{"name": "ETCD_NAME", "value": "x"}]}}), "the operator sets"),
        ] {
            let refusal = cluster.edit(edit.clone()).await.unwrap_err().to_string();
            assert!(refusal.contains(says), "{edit}: {refusal}");
        }
        let refusal = test.kubectl(&["scale", "etcdcluster/c", "--replicas=9"]).await.unwrap_err();
        assert!(refusal.to_string().contains("size must be 1 to 7"), "{refusal}");
        cluster.settled(1, "3.5.16").await?;
        assert_eq!(cluster.footprints().await?, before);
        Ok(())
    })
    .await
    .unwrap();
}
