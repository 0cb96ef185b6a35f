//! What comes between: somebody asks for another restore, etcd's tool dies, a disk is full.

use std::path::Path;
use std::process::Command;

use api::v1beta2::EtcdRestore;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lab::Lab;
use lab::control::processes;
use lab::kit::{TestNamespace, shared_lab, wait_for};
use serde_json::json;

use super::faults::Lives;
use super::stopped::{Stopped, TRIES, spin};
use super::{NAME, Scene, VERSION, ask, at, fails, operator, restores, says_lost, spec, succeeds, writes};
use crate::support::{LIMIT, Outcome};

/// It does not come back, and what was there stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_taken_back() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "taken-back").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = operator(test)?;
        let Scene { cluster, writes, object, .. } = Scene::set(test, spec(VERSION, false)).await?;
        writes.stop().await?;
        let before = cluster.get().await?.status.unwrap_or_default().cluster_id;
        ask(test, &object, json!({"force": true})).await?;
        let asked =
            |restore: &EtcdRestore| restore.status.as_ref().is_some_and(|status| status.requested.is_some());
        wait_for(&restores(test), NAME, LIMIT, "to have asked", asked).await?;
        let annotation = format!("{}-", api::annotations::RESTORE);
        test.kubectl(&["annotate", "etcdcluster", NAME, &annotation]).await?;
        fails(&cluster, "Withdrawn", "withdrawn").await?;
        cluster.settled(3, VERSION).await?;
        let now = cluster.get().await?;
        assert_eq!(now.status.clone().unwrap_or_default().cluster_id, before);
        assert_eq!(now.annotations().get(api::annotations::RESTORE), None);
        Ok(())
    })
    .await
    .unwrap();
}

/// The second is refused, and the first goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "two").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = operator(test)?;
        let Scene { cluster, writes, promised, object, .. } = Scene::set(test, spec(VERSION, false)).await?;
        writes.stop().await?;
        let before = cluster.get().await?.status.unwrap_or_default();
        ask(test, &object, json!({"force": true})).await?;
        at(test, "Seeding").await?;
        ask(test, &object, json!({"force": true})).await?;
        fails(&cluster, "RestoreUnderWay", "is being restored already").await?;
        let done = |status: &api::EtcdClusterStatus| {
            status.restore.as_ref().is_some_and(|restore| restore.stage == api::v1beta2::RestoreStage::Done)
        };
        let after = cluster.says("to be restored by the first", LIMIT, done).await?;
        assert_ne!(after.cluster_id, before.cluster_id);
        cluster.settled(3, VERSION).await?;
        writes::all_there(&cluster, promised).await?;
        ask(test, &object, json!({"force": true})).await?;
        succeeds(test).await?;
        cluster.settled(3, VERSION).await?;
        writes::all_there(&cluster, promised).await
    })
    .await
    .unwrap();
}

/// What etcd's tool left half-made is not taken for data: pod and volume of the seed are made anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tool_dies_half_way() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "half-made").await.unwrap();
    test.run(async |test| -> Outcome {
        let lives = Lives::begin(test, true).await?;
        let cluster = &lives.cluster;
        let (seed, uid, tool) = half_way(&lives).await?;
        let half = cluster.footprints().await?;
        tool.end()?;
        succeeds(test).await?;
        let whole = cluster.footprints().await?;
        let (half, whole) = (half.get(&seed).ok_or("no seed")?, whole.get(&seed).ok_or("no seed")?);
        assert!(half.0 == uid && half.0 != whole.0 && half.2 != whole.2, "{half:?} became {whole:?}");
        lives.holds_what_was_saved().await
    })
    .await
    .unwrap();
}

/// Name and UID of the seed's pod, and etcd's tool in it, stopped between its first file and its last.
async fn half_way(lives: &Lives<'_>) -> Outcome<(String, String, Stopped)> {
    let (cluster, test) = (&lives.cluster, lives.cluster.test);
    for _ in 0..TRIES {
        ask(test, &lives.object, json!({"force": true})).await?;
        let (seed, uid) = lives.seed().await?;
        let is_tool = |line: &[&str]| line.get(1..3) == Some(&["snapshot", "restore"]);
        if let Some(tool) = Stopped::at(test.lab, &uid, is_tool)? {
            let pod = cluster.pods_api().get(&seed).await?;
            let data = test.lab.volume_dir(&pod, "etcd-data")?.join("data/member");
            if let Some(tool) = tool.until(|| data.join("snap").exists())?
                && !data.join("wal").exists()
            {
                return Ok((seed, uid, tool));
            }
        }
        succeeds(test).await?;
        lives.holds_what_was_saved().await?;
    }
    Err("it came further than half-way each time".into())
}

/// It was the cluster already, and nobody else had its data yet: never Succeeded, and another restore may follow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_seed_is_lost_with_its_data() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "lost-again").await.unwrap();
    test.run(async |test| -> Outcome {
        let mut lives = Lives::begin(test, false).await?;
        lives.grow(2).await?;
        let cluster = &lives.cluster;
        ask(test, &lives.object, json!({"force": true})).await?;
        at(test, "Filling").await?;
        let (seed, _) = lives.seed().await?;
        test.kubectl(&["delete", "pod", "--wait=false", "--grace-period=1", &seed]).await?;
        says_lost(cluster).await?;
        let told = |restore: &EtcdRestore| {
            let mut conditions = restore.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|condition| condition.message.contains("another EtcdRestore"))
        };
        let told = wait_for(&restores(test), NAME, LIMIT, "to tell", told).await?.status.unwrap_or_default();
        assert!(!told.succeeded && told.phase == "Filling", "{told:?}");

        ask(test, &lives.object, json!({"force": true})).await?;
        succeeds(test).await?;
        lives.holds_what_was_saved().await
    })
    .await
    .unwrap();
}

/// Tried again for a while, then told; the cluster is as it was, and the next restore does not suffer from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_is_full() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "full-disk").await.unwrap();
    test.run(async |test| -> Outcome {
        let lives = Lives::begin(test, false).await?;
        let cluster = &lives.cluster;
        let before =
            (cluster.get().await?.status.unwrap_or_default().cluster_id, cluster.footprints().await?);
        ask(test, &lives.object, json!({"force": true})).await?;
        let (seed, _) = lives.seed().await?;
        let scheduled = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let pod = wait_for(&cluster.pods_api(), &seed, LIMIT, "to have a node", scheduled).await?;
        // It is there well before the first container, which then finds what is mounted on it.
        let folder = spin(|| test.lab.volume_dir(&pod, "restore").ok()).ok_or("it is never made")?;
        small_disk(test.lab, &pod, &folder)?;
        fails(cluster, "SeedFailed", "the disk is full: /var/restore/backup.db needs").await?;
        cluster
            .pods_are("the seed's pod to go", |pods| pods.iter().all(|pod| pod.name_any() != seed))
            .await?;
        let now = (cluster.get().await?.status.unwrap_or_default().cluster_id, cluster.footprints().await?);
        assert_eq!(before, now, "it was touched");

        ask(test, &lives.object, json!({"force": true})).await?;
        succeeds(test).await?;
        lives.holds_what_was_saved().await
    })
    .await
    .unwrap();
}

/// A file system of its own, as small as can be, where the pod's volume lies on its node.
fn small_disk(lab: &Lab, pod: &Pod, folder: &Path) -> Outcome {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).ok_or("it is on no node")?;
    let node = processes(&lab.layout).alive(&node).ok_or("its node is down")?;
    let mut mount = Command::new("nsenter");
    mount.args(["--target", &node.pid.to_string(), "--mount"]);
    mount.args(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "full"]).arg(folder);
    if mount.status()?.success() { Ok(()) } else { Err("no file system was mounted".into()) }
}
