//! The life of a cluster on the lab, with clients writing and reading all the time.

mod support;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lab::kit::{TestNamespace, gone, shared_lab};
use serde_json::json;
use support::{Clients, Cluster, Operator, Result};

const LIMIT: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn created_scaled_healed_and_upgraded_under_traffic() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "life").await.unwrap();
    test.run(async |test| life(test).await).await.unwrap();
}

async fn life(test: &TestNamespace<'_>) -> Result<()> {
    let _operator = Operator::start(test)?;
    let cluster = Cluster::create(test, "life", json!({"size": 3, "version": "3.5.16"})).await?;
    let began = Instant::now();
    let status = cluster.settled(LIMIT).await?.status.unwrap_or_default();
    eprintln!("three members after {:?}", began.elapsed());
    ensure!(status.service_name == "life-client", "{status:?}");
    let clients = Clients::start(&cluster).await?;

    cluster.edit(json!({"size": 5})).await?;
    cluster.settled(LIMIT).await?;
    ensure!(budget(test).await? == Some(IntOrString::Int(3)), "five members keep three");

    let lost = cluster.delete_a_pod().await?;
    let began = Instant::now();
    cluster.replaced(&lost, 5, LIMIT).await?;
    eprintln!("a lost member replaced after {:?}", began.elapsed());
    cluster.settled(LIMIT).await?;

    let before = cluster.member_names().await?;
    cluster.edit(json!({"version": "3.5.35"})).await?;
    cluster.settled(LIMIT).await?;
    ensure!(cluster.member_names().await? == before, "an upgrade keeps every member");
    for pod in cluster.member_pods().await? {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
        ensure!(image.as_deref() == Some("quay.io/coreos/etcd:v3.5.35"), "{image:?}");
    }

    cluster.edit(json!({"size": 1})).await?;
    cluster.settled(LIMIT).await?;
    clients.finish().await?;

    cluster.delete(LIMIT).await?;
    let services = test.api::<Service>();
    gone(&services, "life-client", LIMIT).await?;
    for pod in cluster.member_pods().await? {
        gone(&cluster.pods, pod.metadata.name.as_deref().unwrap_or_default(), LIMIT).await?;
    }
    Ok(())
}

async fn budget(test: &TestNamespace<'_>) -> Result<Option<IntOrString>> {
    Ok(test.api::<PodDisruptionBudget>().get("life").await?.spec.and_then(|spec| spec.min_available))
}
