//! The moment in which a restored seed becomes the cluster.

use std::time::Duration;

use api::EtcdCluster;
use faults::Book;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use lab::kit::{gone, wait_for};
use tokio::net::TcpStream;

use crate::scenarios::{VERSION, back_up, delete, restore, restored};
use crate::world::{NAME, World, lived, lived_on};
use crate::{LIMIT, Outcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_was_lost_since_does_not_become_the_cluster() {
    lived("lost", lost_since).await;
}

async fn lost_since(world: &World<'_>) -> Outcome {
    back_up(world).await?;
    delete(world).await?;
    let mut stopped = world.line().stop_at(asks_once_more);
    restore(world).await?;
    stopped.reached(LIMIT).await?;
    let lost = world.pods().await?.pop().ok_or("no seed")?;
    let (address, its_own) = (world.address().await?, world.member().await?.status().await?.identity.cluster);
    world.api::<Pod>().delete(&lost.name_any(), &DeleteParams::default().grace_period(0)).await?;
    gone(&world.api::<Pod>(), &lost.name_any(), LIMIT).await?;
    lab::wait::until("the seed's process to end", LIMIT, async || {
        let answers = TcpStream::connect(&address).await.is_ok();
        Ok(if answers { Err("it answers") } else { Ok(()) })
    })
    .await?;
    drop(stopped);

    restored(world).await?;
    world.settled(1, VERSION).await?;
    let status = world.api::<EtcdCluster>().get(NAME).await?.status.unwrap_or_default();
    assert_ne!(status.cluster_id, its_own.to_string());
    assert!(world.member().await?.get("written").await?.is_some());
    Ok(())
}

/// Who plans asks a seed for its status first; who makes it the cluster asks for its list alone, which begins with a read.
fn asks_once_more(book: &Book, request: &str) -> bool {
    let before = book.requests().iter().rfind(|request| request.starts_with("etcd "));
    request == "etcd Range" && before.is_some_and(|before| before == "etcd MemberList")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_found_in_a_backup_is_told_though_the_seed_answers_before_its_kubelet_tells_of_it() {
    lived_on("late", Duration::from_secs(5), told_late).await;
}

async fn told_late(world: &World<'_>) -> Outcome {
    back_up(world).await?;
    delete(world).await?;
    restore(world).await?;
    let swapped = |cluster: &EtcdCluster| !cluster.status.clone().unwrap_or_default().cluster_id.is_empty();
    wait_for(&world.api::<EtcdCluster>(), NAME, LIMIT, "to be the restored one", swapped).await?;
    let seed = world.pods().await?.pop().ok_or("no seed")?.status.unwrap_or_default();
    assert!(seed.init_container_statuses.is_none(), "it was told too early for this test: {seed:?}");

    let found = restored(world).await?.restored.ok_or("nothing is told of what was found")?;
    assert!(found.keys > 0 && !found.digest.is_empty(), "{found:?}");
    Ok(())
}
