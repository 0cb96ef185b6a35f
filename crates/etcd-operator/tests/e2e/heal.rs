//! One member is lost, in each way there is: the cluster heals, nobody else is touched, clients notice nothing.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use lab::kit::{TestNamespace, shared_lab};
use lab::wait::until;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Cluster, LIMIT, Load, Operator, Outcome, Victim, Who, client_address};

/// The shortest that the schema allows.
const UNRESPONSIVE: u64 = 10;

fn three(version: &str) -> Value {
    json!({"size": 3, "version": version, "memberUnresponsiveSeconds": UNRESPONSIVE})
}

fn three_with_volumes(version: &str) -> Value {
    let mut spec = three(version);
    spec["pod"] = json!({"persistentVolumeClaimSpec": volume()});
    spec
}

pub fn volume() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
}

/// What strikes a member.
#[derive(Clone, Copy, Debug)]
enum Fault {
    DeletePod,
    Kill,
    /// Paused for a moment.
    Nap,
    /// Paused for longer than the spec bears.
    Coma,
    Wipe,
    CorruptWal,
}

/// What becomes of the member.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Same pod, and its process was started that many times more.
    Restarted(i32),
    SameNameAndVolume,
    Replaced,
}

/// Strikes, waits for full health, and looks at who was touched.
async fn heals(cluster: &Cluster<'_>, load: &Load<'_>, version: &str, case: (Fault, Who, Fate)) -> Outcome {
    let (fault, who, fate) = case;
    let in_case = |error: Box<dyn std::error::Error>| format!("{case:?}: {error}");
    let began = Instant::now();
    let victim = cluster.victim(who).await?;
    strike(cluster, &victim, fault).await.map_err(in_case)?;
    cluster.settled(3, version).await.map_err(in_case)?;
    match fate {
        Fate::Restarted(times) => victim.came_back(cluster, times).await,
        Fate::SameNameAndVolume => victim.came_back_on_its_volume(cluster).await,
        Fate::Replaced => victim.was_replaced(cluster).await,
    }
    .map_err(in_case)?;
    println!("{}: {case:?}: healthy after {:.1} s", cluster.name, began.elapsed().as_secs_f64());
    load.follow().await
}

/// Gives back once the fault has done what it can: nothing of it is left to come.
async fn strike(cluster: &Cluster<'_>, victim: &Victim, fault: Fault) -> Outcome {
    let name = victim.name.clone();
    match fault {
        Fault::DeletePod => {
            cluster.test.kubectl(&["delete", "pod", &name, "--wait=false"]).await?;
        }
        Fault::Kill => victim.signal(cluster, Signal::SIGKILL)?,
        Fault::Nap => {
            victim.signal(cluster, Signal::SIGSTOP)?;
            cluster.says("to miss the member", LIMIT, |s| s.members.unready.contains(&name)).await?;
            victim.signal(cluster, Signal::SIGCONT)?;
        }
        Fault::Coma => {
            victim.signal(cluster, Signal::SIGSTOP)?;
            let knocks = victim.knock()?;
            replaced(cluster, &name).await?;
            // It wakes up as a member no more.
            victim.signal(cluster, Signal::SIGCONT)?;
            knocks.none_taken().await?;
        }
        Fault::Wipe => {
            let knocks = victim.wipe(cluster)?;
            replaced(cluster, &name).await?;
            knocks.none_taken().await?;
        }
        Fault::CorruptWal => {
            victim.corrupt_wal(cluster)?;
            replaced(cluster, &name).await?;
        }
    }
    Ok(())
}

async fn replaced(cluster: &Cluster<'_>, name: &String) -> Outcome {
    cluster
        .says("to have three ready members without the lost one", LIMIT, |status| {
            status.members.ready.len() == 3 && !status.members.ready.contains(name)
        })
        .await?;
    let message = cluster.event("Replacing Dead Member", LIMIT).await?;
    if message.starts_with("The dead member ") { Ok(()) } else { Err(message.into()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_volume_is_lost_in_each_way() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "heal").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let version = "3.6.16";
        let cluster = Cluster::create(test, "c", three(version)).await?;
        cluster.settled(3, version).await?;
        let load = cluster.traffic().await?;
        for case in [
            (Fault::Wipe, Who::Seed, Fate::Replaced),
            (Fault::Kill, Who::Leader, Fate::Restarted(1)),
            (Fault::Nap, Who::Leader, Fate::Restarted(0)),
            (Fault::DeletePod, Who::Leader, Fate::Replaced),
            (Fault::CorruptWal, Who::Leader, Fate::Replaced),
            (Fault::Wipe, Who::Other, Fate::Replaced),
            (Fault::Coma, Who::Leader, Fate::Replaced),
        ] {
            heals(&cluster, &load, version, case).await?;
        }
        load.end_without_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_a_volume_is_lost_in_each_way_and_its_volume_ends_with_it() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "volume").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let version = "3.5.35";
        let mut keeper = three_with_volumes(version);
        keeper["size"] = json!(1);
        keeper["pod"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Retain"});
        let keeper = Cluster::create(test, "keeper", keeper).await?;
        let cluster = Cluster::create(test, "c", three_with_volumes(version)).await?;
        cluster.settled(3, version).await?;
        let load = cluster.traffic().await?;
        for case in [
            (Fault::Wipe, Who::Seed, Fate::Replaced),
            (Fault::DeletePod, Who::Leader, Fate::SameNameAndVolume),
            (Fault::Kill, Who::Other, Fate::Restarted(1)),
            (Fault::CorruptWal, Who::Other, Fate::Replaced),
        ] {
            heals(&cluster, &load, version, case).await?;
        }
        claims_are(&cluster, cluster.pod_names().await?.len()).await?;

        cluster.edit(json!({"size": 1})).await?;
        let left = Duration::from_mins(1);
        tokio::try_join!(claims_go_after_their_members(&cluster, 2, left), async {
            cluster.settled(1, version).await.map(drop)
        })?;
        claims_are(&cluster, 1).await?;
        load.end_without_failure().await?;

        keeper.settled(1, version).await?;
        test.kubectl(&["delete", "etcdcluster", "c", "keeper"]).await?;
        claims_are(&cluster, 0).await?;
        until("the pods to go", LIMIT, async || {
            let pods = keeper.pods().await.map_err(|error| lab::Error::other("pods", error))?.len();
            Ok(if pods == 0 { Ok(()) } else { Err(pods) })
        })
        .await?;
        claims_are(&keeper, 1).await
    })
    .await
    .unwrap();
}

async fn claims_are(cluster: &Cluster<'_>, number: usize) -> Outcome {
    let selector = ListParams::default().labels(&format!("etcd_cluster={}", cluster.name));
    let claims = cluster.test.api::<PersistentVolumeClaim>();
    until(&format!("{number} claims"), LIMIT, async || {
        let there = claims.list(&selector).await?.items.len();
        Ok(if there == number { Ok(()) } else { Err(there) })
    })
    .await?;
    Ok(())
}

/// As each claim goes, its member must be one no more.
async fn claims_go_after_their_members(cluster: &Cluster<'_>, number: usize, within: Duration) -> Outcome {
    let config = watcher::Config::default().labels(&format!("etcd_cluster={}", cluster.name));
    let claims = watcher(cluster.test.api::<PersistentVolumeClaim>(), config).default_backoff();
    let going = claims.try_filter_map(async |event| {
        Ok(match event {
            watcher::Event::Delete(claim) => Some(claim.name_any()),
            _ => None,
        })
    });
    let mut going = Box::pin(going.take(number));
    let all = async {
        while let Some(name) = going.try_next().await? {
            let mut members = Vec::new();
            for pod in cluster.pods().await?.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                let member = etcd::Member::connect(client_address(pod)?, etcd::Expect::default())?;
                members = member.members().await.unwrap_or(members);
            }
            if members.is_empty() || members.iter().any(|member| member.name == name) {
                return Err(format!("the claim of {name} went, and the members are {members:?}").into());
            }
        }
        Ok(())
    };
    tokio::time::timeout(within, all).await.map_err(|_| "the claims did not go in time")?
}
