//! The operand's life: made, scaled, moved to other ports and images, broken and mended.

use api::nginx::Version::V1alpha1;
use api::nginx::conditions::{OPERAND_READY, reason};
use api::nginx::crd::Stage;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use lab::kit::{TestNamespace, shared_lab, wait_for};
use serde_json::json;

use crate::support::{Client, Instance, LIMIT, Outcome, apply_crd, install, scale_operator};

/// The lab's two versions: Debian's, which is also `nginx:latest`, and a newer one.
const OLD: &str = "1.22.1";
const NEW: &str = "1.28.3";

/// Waits until the operand is healthy, and asks every pod which nginx it runs.
async fn runs(test: &TestNamespace<'_>, web: &Instance<'_>, version: &str) -> Outcome {
    web.healthy().await?;
    for (pod, _) in web.pods().await? {
        let said = test.kubectl(&["exec", &pod, "--", "sh", "-c", "nginx -v 2>&1"]).await?;
        assert_eq!(said.trim(), format!("nginx version: nginx/{version}"));
    }
    Ok(())
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

        runs(test, &web, OLD).await?;
        let before = web.pods().await?;
        web.edit(json!({ "image": format!("nginx:{NEW}") })).await?;
        // The operator is lost in the middle, and comes back.
        wait_for(&test.api::<Deployment>(), "instance", LIMIT, "to roll out", |deployment| {
            deployment.status.as_ref().and_then(|status| status.updated_replicas) == Some(1)
        })
        .await?;
        test.kubectl(&["delete", "pod", "-l", "name=nginx-operator", "--grace-period=0", "--force"]).await?;
        runs(test, &web, NEW).await?;
        let after = web.pods().await?;
        assert!(after.iter().all(|pod| !before.contains(pod)), "{before:?} {after:?}");
        web.edit(json!({ "image": format!("nginx:{OLD}") })).await?;
        runs(test, &web, OLD).await?;
        web.edit(json!({ "forceRedeploy": "again" })).await?;
        web.healthy().await?;
        client.saw_no_failure().await?;

        // From here on, whoever asks on the old port may be too late.
        drop(client);
        web.edit(json!({ "port": 8080 })).await?;
        wait_for(&test.api::<Service>(), "instance", LIMIT, "to have the new port", |service| {
            let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            ports.map(|port| port.port).eq([8080])
        })
        .await?;
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
        // One that can be pulled, and has no nginx.
        one.edit(json!({ "image": "busybox:1.28.0-glibc" })).await?;
        let message = one.says(OPERAND_READY, "False", reason::CRASH_LOOP).await?;
        assert!(message.starts_with("1 of 1 replicas answer; pod one-"), "{message}");
        one.edit(json!({ "image": null })).await?;
        one.healthy().await?;

        // The operator is gone while somebody deletes the operand.
        scale_operator(test, 0).await?;
        test.api::<Deployment>().delete("one", &DeleteParams::background()).await?;
        one.edit(json!({ "replicas": 2 })).await?;
        scale_operator(test, 2).await?;
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
