//! What users do to clusters, told step by step; at each step the operator comes to rest, and what is there then is noted.

use std::path::{Path, PathBuf};

use api::v1beta2::EtcdRestoreStatus;
use api::{EtcdBackup, EtcdCluster, EtcdRestore};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use lab::kit::{gone, wait_for};
use serde_json::{Value, json};

use crate::world::{NAME, World};
use crate::{LIMIT, Outcome};

pub const VERSION: &str = "3.5.16";
const NEXT: &str = "3.5.35";

pub type Scenario = for<'a> fn(&'a World<'_>) -> LocalBoxFuture<'a, Outcome>;

/// Made, scaled up, healed after a loss of data, scaled down, deleted.
pub fn life<'a>(world: &'a World<'_>) -> LocalBoxFuture<'a, Outcome> {
    async move {
        world.create("EtcdCluster", NAME, json!({"size": 1, "version": VERSION})).await?;
        world.settled(1, VERSION).await?;
        world.member().await?.put("written", "by a client").await?;
        world.end_step(()).await?;

        world.edit(json!({"size": 3})).await?;
        world.settled(3, VERSION).await?;
        world.end_step(()).await?;

        // Without a volume its data is gone with it.
        let seed = world.api::<EtcdCluster>().get(NAME).await?.status.unwrap_or_default().seed;
        world.delete_pod(&seed).await?;
        gone(&world.api::<Pod>(), &seed, LIMIT).await?;
        world.replaced(&seed).await?;
        world.settled(3, VERSION).await?;
        world.end_step(()).await?;

        world.edit(json!({"size": 1})).await?;
        world.settled(1, VERSION).await?;
        world.end_step(()).await?;

        delete(world).await?;
        world.end_step(()).await
    }
    .boxed_local()
}

/// On volumes: made, upgraded, a pod lost and brought back to its data, deleted.
pub fn upgrade<'a>(world: &'a World<'_>) -> LocalBoxFuture<'a, Outcome> {
    async move {
        world.create("EtcdCluster", NAME, on_volumes(2)).await?;
        world.settled(2, VERSION).await?;
        world.member().await?.put("written", "by a client").await?;
        world.end_step(()).await?;

        world.edit(json!({"version": NEXT})).await?;
        world.settled(2, NEXT).await?;
        world.end_step(()).await?;

        let lost = world.pods().await?.pop().ok_or("no pod")?;
        world.delete_pod(&lost.name_any()).await?;
        wait_for(&world.api::<Pod>(), &lost.name_any(), LIMIT, "to be made anew", |pod| {
            pod.uid() != lost.uid()
        })
        .await?;
        world.settled(2, NEXT).await?;
        world.end_step(()).await?;

        delete(world).await?;
        world.end_step(()).await
    }
    .boxed_local()
}

/// Made, backed up, deleted, restored under the same name, deleted again.
pub fn backup<'a>(world: &'a World<'_>) -> LocalBoxFuture<'a, Outcome> {
    async move {
        back_up(world).await?;
        world.end_step(files(&backups(world))?).await?;

        delete(world).await?;
        world.end_step(()).await?;

        restore(world).await?;
        restored(world).await?;
        world.settled(1, VERSION).await?;
        world.end_step(files(&backups(world))?).await?;

        delete(world).await?;
        world.end_step(()).await
    }
    .boxed_local()
}

/// A cluster of one, in which something was written, and a backup of it.
pub async fn back_up(world: &World<'_>) -> Outcome {
    std::fs::create_dir(backups(world))?;
    world.create("EtcdCluster", NAME, json!({"size": 1, "version": VERSION})).await?;
    world.says(1, VERSION).await?;
    world.member().await?.put("written", "by a client").await?;

    let endpoint = format!("http://{}", world.address().await?);
    let spec = json!({"etcdEndpoints": [endpoint], "storageType": "Volume", "volume": volume()});
    world.create("EtcdBackup", NAME, spec).await?;
    wait_for(&world.api::<EtcdBackup>(), NAME, LIMIT, "to succeed", |backup| {
        backup.status.as_ref().is_some_and(|status| status.succeeded)
    })
    .await?;
    world.settled(1, VERSION).await
}

/// Asks for that backup in a cluster of the same name.
pub async fn restore(world: &World<'_>) -> Outcome {
    let template = json!({"size": 1, "version": VERSION});
    let spec = json!({
        "etcdCluster": {"name": NAME}, "backupStorageType": "Volume", "volume": volume(), "clusterTemplate": template,
    });
    world.create("EtcdRestore", NAME, spec).await
}

/// It has ended well.
pub async fn restored(world: &World<'_>) -> Outcome<EtcdRestoreStatus> {
    let restore = wait_for(&world.api::<EtcdRestore>(), NAME, LIMIT, "to end", |restore| {
        restore.status.as_ref().is_some_and(|status| status.finished.is_some())
    })
    .await?;
    let status = restore.status.unwrap_or_default();
    if status.succeeded { Ok(status) } else { Err(format!("the restore failed: {}", status.reason).into()) }
}

fn volume() -> Value {
    json!({"claimName": "backups", "path": "etcd.backup"})
}

fn backups(world: &World<'_>) -> PathBuf {
    world.folder.path().join("volumes").join("backups")
}

/// The spec of a cluster whose members have volumes.
pub fn on_volumes(size: usize) -> Value {
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    json!({"size": size, "version": VERSION, "pod": {"persistentVolumeClaimSpec": claim}})
}

fn files(folder: &Path) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for file in folder.read_dir()? {
        names.push(file?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

pub async fn delete(world: &World<'_>) -> Outcome {
    world.api::<EtcdCluster>().delete(NAME, &DeleteParams::background()).await?;
    world.nothing_left().await
}
