//! A namespace that takes no more pods.

use std::collections::BTreeMap;

use api::EtcdCluster;
use api::conditions::{self, ConditionStatus};
use k8s_openapi::api::core::v1::{Event, ResourceQuota};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use lab::kit::{wait_for, wait_for_all};
use serde_json::json;

use crate::scenarios::{VERSION, on_volumes};
use crate::world::{NAME, World, lived};
use crate::{LIMIT, Outcome};

const QUOTA: &str = "full";
const REASON: &str = "KubernetesRefused";
/// So often that a loop would show.
const TRIES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_refused_costs_no_volume_and_is_told() {
    lived("refused", refused).await;
}

async fn refused(world: &World<'_>) -> Outcome {
    let quotas = world.api::<ResourceQuota>();
    let none = json!({"metadata": {"name": QUOTA}, "spec": {"hard": {"pods": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(none)?).await?;
    wait_for(&quotas, QUOTA, LIMIT, "to be in force", |quota| {
        quota.status.as_ref().is_some_and(|status| status.hard.is_some())
    })
    .await?;
    world.create("EtcdCluster", NAME, on_volumes(1)).await?;
    let clusters = world.api::<EtcdCluster>();
    wait_for(&clusters, NAME, LIMIT, "to say what Kubernetes refused", is_told).await?;
    lab::wait::until("pods to be refused", LIMIT, async || {
        let asks = |request: &&String| request.starts_with("POST ") && request.contains("/pods?");
        let tries = world.line().book(|book| book.requests().iter().filter(asks).count());
        Ok(if tries >= TRIES { Ok(()) } else { Err(format!("{tries} tries")) })
    })
    .await?;
    let made = |world: &World<'_>| world.line().book(|book| book.made().clone());
    assert_eq!(made(world), BTreeMap::from([("create services".to_owned(), 1)]));
    wait_for_all(&world.api::<Event>(), watcher::Config::default(), LIMIT, "one warning", |events| {
        let mut told = events.iter().filter(|event| event.reason.as_deref() == Some(REASON));
        let once = |event: &Event| event.type_.as_deref() == Some("Warning") && event.count == Some(1);
        told.next().is_some_and(once) && told.next().is_none()
    })
    .await?;

    quotas.delete(QUOTA, &DeleteParams::default()).await?;
    world.settled(1, VERSION).await?;
    assert_eq!(made(world).get("create persistentvolumeclaims"), Some(&1));
    let status = clusters.get(NAME).await?.status.unwrap_or_default();
    assert_eq!((conditions::find(&status.conditions, "Degraded"), status.reason.as_str()), (None, ""));
    Ok(())
}

/// In the words of Kubernetes.
fn is_told(cluster: &EtcdCluster) -> bool {
    let status = cluster.status.clone().unwrap_or_default();
    status.reason.contains("exceeded quota")
        && conditions::find(&status.conditions, "Degraded").is_some_and(|degraded| {
            degraded.status == ConditionStatus::True
                && degraded.reason == REASON
                && degraded.message.contains("exceeded quota: full")
        })
}
