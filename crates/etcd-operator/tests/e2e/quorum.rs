//! A majority is down: the operator says so at once, touches nothing, and what can come back comes back by itself.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api::conditions::ConditionStatus;
use k8s_openapi::api::core::v1::Pod;
use lab::kit::{TestNamespace, shared_lab, wait_for};
use lab::wait::until;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::heal::volume;
use crate::support::{Cluster, LIMIT, Operator, Outcome, Victim, Who, stays};

const VERSION: &str = "3.5.16";
/// What is promised.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Longer than a silent member is borne while there is a quorum.
const LONGER: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_quorum_is_told_at_once_and_comes_back_by_itself() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "quorum").await.unwrap();
    test.run(async |test| -> Outcome {
        let operator = Operator::start(test)?;
        let spec = json!({"size": 3, "version": VERSION, "memberUnresponsiveSeconds": 10});
        let cluster = Cluster::create(test, "c", spec).await?;
        cluster.settled(3, VERSION).await?;
        let load = cluster.traffic().await?;
        let (one, other) = (cluster.victim(Who::Leader).await?, cluster.victim(Who::Other).await?);

        signal(&cluster, &[&one, &other], Signal::SIGSTOP)?;
        is_told(&cluster, &operator, &[&one, &other]).await?;
        signal(&cluster, &[&one, &other], Signal::SIGCONT)?;
        cluster.settled(3, VERSION).await?;
        one.came_back(&cluster, 0).await?;
        let metric = quorum_lost(&cluster, &operator).await?;
        assert_eq!(metric, Some(0.0));

        nobody_answers(&cluster).await?;
        one.came_back(&cluster, 0).await?;

        // The second time, the kubelet waits before it starts them again.
        for restarts in 0..2 {
            for victim in [&one, &other] {
                let pod = running(&cluster, victim, restarts).await?;
                lab.signal_container(&pod, "etcd", Signal::SIGKILL)?;
            }
        }
        is_told(&cluster, &operator, &[&one, &other]).await?;
        cluster.settled(3, VERSION).await?;
        load.end().await?;

        gone_for_good(&cluster).await
    })
    .await
    .unwrap();
}

fn signal(cluster: &Cluster<'_>, victims: &[&Victim], signal: Signal) -> Outcome {
    victims.iter().try_for_each(|victim| victim.signal(cluster, signal))
}

/// Condition, event and metric, with the members' names and what a person can do.
async fn is_told(cluster: &Cluster<'_>, operator: &Operator, down: &[&Victim]) -> Outcome {
    let began = Instant::now();
    let told = cluster.condition("QuorumLost", ConditionStatus::True, AT_ONCE).await?;
    println!("{}: told after {:.1} s: {}", cluster.name, began.elapsed().as_secs_f64(), told.message);
    let down: BTreeSet<String> = down.iter().map(|victim| victim.name.clone()).collect();
    for name in cluster.pod_names().await? {
        assert_eq!(down.contains(&name), told.message.contains(&name), "{name}: {}", told.message);
    }
    assert!(told.message.contains("look at"), "{}", told.message);
    cluster.condition("Available", ConditionStatus::False, AT_ONCE).await?;
    cluster.event("QuorumLost", AT_ONCE).await?;
    assert_eq!(quorum_lost(cluster, operator).await?, Some(1.0));
    Ok(())
}

async fn quorum_lost(cluster: &Cluster<'_>, operator: &Operator) -> Outcome<Option<f64>> {
    let of = format!("{{namespace=\"{}\",cluster=\"{}\"}}", cluster.test.name, cluster.name);
    operator.metric(&format!("etcd_operator_cluster_quorum_lost{of}")).await
}

/// What nobody can tell is unknown, never lost, and nobody is replaced for it.
async fn nobody_answers(cluster: &Cluster<'_>) -> Outcome {
    let mut all = Vec::new();
    for name in cluster.pod_names().await? {
        all.push(cluster.victim_named(&name).await?);
    }
    let all: Vec<&Victim> = all.iter().collect();
    signal(cluster, &all, Signal::SIGSTOP)?;
    cluster.condition("QuorumLost", ConditionStatus::Unknown, AT_ONCE).await?;
    cluster.condition("Available", ConditionStatus::Unknown, AT_ONCE).await?;
    let names = cluster.pod_names().await?;
    stays("the members", LONGER, async || {
        Ok(cluster.pod_names().await? == names
            && cluster.pods().await?.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()))
    })
    .await?;
    signal(cluster, &all, Signal::SIGCONT)?;
    cluster.settled(3, VERSION).await.map(drop)
}

/// The pod, as soon as its process runs after that many restarts.
async fn running(cluster: &Cluster<'_>, victim: &Victim, restarts: i32) -> Outcome<Pod> {
    let pod = wait_for(&cluster.pods_api(), &victim.name, LIMIT, "to run", |pod: &Pod| {
        let mut containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        containers.any(|etcd| {
            let runs = etcd.state.as_ref().is_some_and(|state| state.running.is_some());
            etcd.restart_count == restarts && runs
        })
    })
    .await?;
    Ok(pod)
}

/// Two of three lose pod and data: only a backup helps, and nothing is made up meanwhile.
async fn gone_for_good(cluster: &Cluster<'_>) -> Outcome {
    // Those of now: one that was slow to come back was replaced.
    let mut names = cluster.pod_names().await?;
    let survivor: BTreeSet<String> = names.pop_last().into_iter().collect();
    let mut delete = vec!["delete", "pod", "--wait=false"];
    delete.extend(names.iter().map(String::as_str));
    cluster.test.kubectl(&delete).await?;
    cluster
        .says("to name the way out", LIMIT, |status| {
            let lost = status.conditions.iter().find(|c| c.type_ == "QuorumLost");
            lost.is_some_and(|c| c.status == ConditionStatus::True && c.message.contains("EtcdRestore"))
        })
        .await?;
    until("only the survivor to be there", LIMIT, async || {
        let left = cluster.pod_names().await.map_err(|error| lab::Error::other("pods", error))?;
        Ok(if left == survivor { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await?;
    stays("the survivor alone", LONGER, async || Ok(cluster.pod_names().await? == survivor)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_with_volumes_come_back_even_if_all_pods_go() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "pods").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let spec = json!({"size": 3, "version": VERSION, "pod": {"persistentVolumeClaimSpec": volume()}});
        let cluster = Cluster::create(test, "c", spec).await?;
        cluster.settled(3, VERSION).await?;
        let load = cluster.traffic().await?;
        for number in [2, 3] {
            let names = cluster.pod_names().await?;
            let one = cluster.victim_named(names.first().ok_or("no pod")?).await?;
            let mut delete = vec!["delete", "pod", "--wait=false"];
            delete.extend(names.iter().take(number).map(String::as_str));
            test.kubectl(&delete).await?;
            cluster.settled(3, VERSION).await?;
            assert_eq!(cluster.pod_names().await?, names, "each came back under its name");
            let again = cluster.victim_named(&one.name).await?;
            assert_eq!(again.id, one.id, "and as the member that it was");
            load.follow().await?;
        }
        load.end().await?;
        Ok(())
    })
    .await
    .unwrap();
}
