//! Objects that went just before the operator acted: to the watch that a plan is made from they are there, and who asks for
//! them by name hears that they are not.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lab::kit::wait_for;
use serde_json::json;

use crate::scenarios::{VERSION, on_volumes};
use crate::world::{NAME, World, lived};
use crate::{LIMIT, Outcome};

/// So often that it is no chance that nothing was done.
const LOOKS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_member_is_added_whose_pod_is_gone() {
    lived("gone", pod_is_gone).await;
}

async fn pod_is_gone(world: &World<'_>) -> Outcome {
    world.create("EtcdCluster", NAME, json!({"size": 1, "version": VERSION})).await?;
    world.settled(1, VERSION).await?;
    let seed = world.member().await?;
    let by_name = hide(world, "pods");
    world.edit(json!({"size": 2})).await?;
    asked_for(world, &by_name).await?;
    let pods: Vec<_> = world.pods().await?.iter().map(ResourceExt::name_any).collect();
    let members = seed.members().await?;
    assert_eq!((pods.len(), members.len()), (2, 1), "{pods:?}, {members:?}");

    world.line().reveal();
    world.settled(2, VERSION).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_deleted_whose_claim_is_gone() {
    lived("gone", claim_is_gone).await;
}

async fn claim_is_gone(world: &World<'_>) -> Outcome {
    world.create("EtcdCluster", NAME, on_volumes(1)).await?;
    world.settled(1, VERSION).await?;
    let before = world.pods().await?.pop().ok_or("no pod")?;
    let by_name = hide(world, "persistentvolumeclaims");
    world.edit(json!({"pod": {"annotations": {"changed": "yes"}}})).await?;
    asked_for(world, &by_name).await?;
    let stays = world.pods().await?.pop().ok_or("no pod")?;
    assert_eq!((stays.uid(), stays.metadata.deletion_timestamp), (before.uid(), None));

    world.line().reveal();
    wait_for(&world.api::<Pod>(), &before.name_any(), LIMIT, "to be of the new template", |pod| {
        pod.uid() != before.uid() && pod.annotations().contains_key("changed")
    })
    .await?;
    world.settled(1, VERSION).await
}

/// Members' objects of this kind are there for who lists or watches them alone. Gives how a request by name begins.
fn hide(world: &World<'_>, kind: &str) -> String {
    let by_name = format!("GET /api/v1/namespaces/{}/{kind}/{NAME}-", world.test.name);
    world.line().hide(&by_name);
    by_name
}

async fn asked_for(world: &World<'_>, by_name: &str) -> Outcome {
    lab::wait::until("the object to be asked for", LIMIT, async || {
        let asks = |request: &&String| request.starts_with(by_name);
        let asked = world.line().book(|book| book.requests().iter().filter(asks).count());
        Ok(if asked >= LOOKS { Ok(()) } else { Err(format!("{asked} times so far")) })
    })
    .await?;
    Ok(())
}
