//! One member is lost, in each way there is: the cluster heals, nobody else is touched, clients notice nothing.

use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use lab::kit::{TestNamespace, shared_lab};
use nix::sys::signal::Signal;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{Cluster, LIMIT, Load, Operator, Outcome, Victim, Who, client_address};

/// The shortest that the schema allows, for members that have to be replaced.
const UNRESPONSIVE: u64 = 10;
/// For members that have to come back: a busy machine may need longer than that to start one again.
const PATIENT: u64 = 600;

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
    let patience = if matches!(fate, Fate::Replaced) { UNRESPONSIVE } else { PATIENT };
    cluster.edit(json!({"memberUnresponsiveSeconds": patience})).await?;
    cluster.settled(3, version).await.map_err(in_case)?;
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

const WITHOUT_VOLUME: [(Fault, Who, Fate); 7] = [
    (Fault::Wipe, Who::Seed, Fate::Replaced),
    (Fault::Kill, Who::Leader, Fate::Restarted(1)),
    (Fault::Nap, Who::Leader, Fate::Restarted(0)),
    (Fault::DeletePod, Who::Leader, Fate::Replaced),
    (Fault::CorruptWal, Who::Leader, Fate::Replaced),
    (Fault::Wipe, Who::Other, Fate::Replaced),
    (Fault::Coma, Who::Leader, Fate::Replaced),
];
const OF_THE_BOOK: [(Fault, Who, Fate); 3] = [
    (Fault::Wipe, Who::Seed, Fate::Replaced),
    (Fault::Kill, Who::Leader, Fate::Restarted(1)),
    (Fault::CorruptWal, Who::Other, Fate::Replaced),
];

#[rstest]
#[case::new("3.6.16", &WITHOUT_VOLUME)]
#[case::of_the_book("3.1.10", &OF_THE_BOOK)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_volume_is_lost_in_each_way(
    #[case] version: &str,
    #[case] cases: &[(Fault, Who, Fate)],
) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "heal").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", three(version)).await?;
        cluster.settled(3, version).await?;
        let load = cluster.traffic().await?;
        for case in cases {
            heals(&cluster, &load, version, *case).await?;
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
        let mut one = three_with_volumes(version);
        one["size"] = json!(1);
        let keeper = Cluster::create(test, "keeper", one.clone()).await?;
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
        tokio::try_join!(claims_go_after_their_members(&cluster, 2), async {
            cluster.settled(1, version).await.map(drop)
        })?;
        claims_are(&cluster, 1).await?;
        load.end_without_failure().await?;

        keeper.settled(1, version).await?;
        link(&keeper).await?.put("kept", "data").await?;
        let retain = json!({"pod": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}});
        keeper.edit(retain).await?;
        keeper.settled(1, version).await?;
        test.kubectl(&["delete", "etcdcluster", "c", "keeper"]).await?;
        claims_are(&cluster, 0).await?;
        keeper.pods_are("the pods to go", <[_]>::is_empty).await?;
        claims_are(&keeper, 1).await?;

        let again = Cluster::create(test, "keeper", one).await?;
        again.settled(1, version).await?;
        let kept = link(&again).await?.get("kept").await?.ok_or("the data is gone")?;
        assert_eq!(kept.value, b"data");
        // This one does not retain them.
        test.kubectl(&["delete", "etcdcluster", "keeper"]).await?;
        claims_are(&again, 0).await
    })
    .await
    .unwrap();
}

async fn link(cluster: &Cluster<'_>) -> Outcome<etcd::Member> {
    let pod = cluster.pods().await?.pop().ok_or("no pod")?;
    Ok(etcd::Member::connect(client_address(&pod)?, etcd::Expect::default())?)
}

async fn claims_are(cluster: &Cluster<'_>, number: usize) -> Outcome {
    cluster.claims_are(&format!("{number} claims"), |claims| claims.len() == number).await
}

/// As each claim goes, its member must be one no more.
async fn claims_go_after_their_members(cluster: &Cluster<'_>, number: usize) -> Outcome {
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
    tokio::time::timeout(LIMIT, all).await.map_err(|_| "the claims did not go in time")?
}
