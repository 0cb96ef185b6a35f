//! The operand's life: made, scaled, moved to other ports and images, broken and mended.

use std::sync::OnceLock;

use api::nginx::Version::V1alpha1;
use api::nginx::conditions::{OPERAND_READY, reason};
use api::nginx::crd::Stage;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use lab::kit::{TestNamespace, shared_lab, wait_for};
use serde_json::json;

use crate::support::{Client, Instance, LIMIT, Outcome, apply_crd, install};

/// The tag of the lab's other nginx build, read from its registry's list.
fn next_image() -> &'static str {
    static IMAGE: OnceLock<String> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let printed = std::process::Command::new("/usr/sbin/nginx").arg("-v").output().unwrap().stderr;
        let version = String::from_utf8(printed).unwrap();
        format!("nginx:{}-next", version.trim().rsplit('/').next().unwrap())
    })
}

#[tokio::test]
async fn a_client_sees_no_error_through_scaling_upgrades_redeploys_and_a_change_of_port() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "nginx").await.unwrap();
    test.run(async |test| -> Outcome {
        apply_crd(test, Stage::First).await?;
        install(test, V1alpha1).await?;
        let web = Instance::create(test, V1alpha1, "instance", json!({ "port": 80, "replicas": 1 })).await?;
        web.healthy().await?;
        let client = Client::start(test, "instance", 80).await?;

        web.edit(json!({ "replicas": 3 })).await?;
        web.healthy().await?;
        assert_eq!(web.pods().await?.len(), 3);
        web.edit(json!({ "replicas": 2 })).await?;
        web.healthy().await?;

        let before = web.pods().await?;
        web.edit(json!({ "image": next_image() })).await?;
        web.healthy().await?;
        let after = web.pods().await?;
        assert!(after.iter().all(|pod| !before.contains(pod)), "{before:?} {after:?}");
        web.edit(json!({ "image": null })).await?;
        web.healthy().await?;
        web.edit(json!({ "forceRedeploy": "again" })).await?;
        web.healthy().await?;
        client.saw_no_failure().await?;

        web.edit(json!({ "port": 8080 })).await?;
        let moved = Client::start(test, "instance", 8080).await?;
        web.healthy().await?;
        moved.saw_no_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_breaks_is_named_and_mended() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "nginx-mend").await.unwrap();
    test.run(async |test| -> Outcome {
        apply_crd(test, Stage::First).await?;
        install(test, V1alpha1).await?;
        let one = Instance::create(test, V1alpha1, "one", json!({ "port": 80 })).await?;
        let two = Instance::create(test, V1alpha1, "two", json!({ "port": 8080 })).await?;
        one.healthy().await?;
        two.healthy().await?;
        let client = Client::start(test, "two", 8080).await?;

        // A bad image: the old pods go on, and the way back is open.
        one.edit(json!({ "image": "nginx:nope" })).await?;
        let message = one.says(OPERAND_READY, "False", reason::IMAGE_PULL_FAILED).await?;
        assert!(message.starts_with("1 of 1 replicas answer; pod one-"), "{message}");
        one.edit(json!({ "image": null })).await?;
        one.healthy().await?;

        // The operator is gone while somebody deletes the operand.
        test.kubectl(&["scale", "deployment/nginx-operator", "--replicas=0"]).await?;
        test.kubectl(&["wait", "--for=delete", "pod", "-l", "name=nginx-operator", "--timeout=60s"]).await?;
        test.api::<Deployment>().delete("one", &DeleteParams::background()).await?;
        one.edit(json!({ "replicas": 2 })).await?;
        test.kubectl(&["scale", "deployment/nginx-operator", "--replicas=2"]).await?;
        one.healthy().await?;
        wait_for(&test.api::<Deployment>(), "one", LIMIT, "to have 2 replicas", |deployment| {
            deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(2)
        })
        .await?;
        assert_eq!(one.pods().await?.len(), 2);
        client.saw_no_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}
