//! Nodes are cut off, lose their power, are drained. Alone on the lab.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use lab::kit::{TestNamespace, lab_alone};
use serde_json::{Value, json};

use crate::heal::volume;
use crate::support::{Cluster, LIMIT, Operator, Outcome, Victim};

const VERSION: &str = "3.5.35";

/// One cluster on emptyDir and one with volumes, spread over the nodes.
async fn both<'a>(test: &'a TestNamespace<'a>) -> Outcome<[Cluster<'a>; 2]> {
    let spec =
        |pod: Value| json!({"size": 3, "version": VERSION, "memberUnresponsiveSeconds": 10, "pod": pod});
    let empty = Cluster::create(test, "e", spec(json!({}))).await?;
    let volumes = Cluster::create(test, "v", spec(json!({"persistentVolumeClaimSpec": volume()}))).await?;
    tokio::try_join!(empty.settled(3, VERSION), volumes.settled(3, VERSION))?;
    Ok([empty, volumes])
}

async fn names_on(cluster: &Cluster<'_>, node: &str) -> Outcome<Vec<String>> {
    let pods = cluster.pods().await?;
    let there =
        pods.iter().filter(|pod| pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node));
    Ok(there.map(ResourceExt::name_any).collect())
}

/// The one member of the cluster on that node.
async fn member_on(cluster: &Cluster<'_>, node: &str) -> Outcome<Victim> {
    match names_on(cluster, node).await?.as_slice() {
        [name] => cluster.victim_named(name).await,
        names => Err(format!("on {node} are {names:?}").into()),
    }
}

/// Three members are ready again, without that one, whose pod and claim nobody took away by force.
async fn replaced(cluster: &Cluster<'_>, victim: &Victim) -> Outcome {
    cluster
        .says("to have replaced the member on the lost node", LIMIT, |status| {
            status.members.ready.len() == 3 && !status.members.ready.contains(&victim.name)
        })
        .await?;
    let left = cluster.pods_api().get(&victim.name).await?;
    assert_eq!(left.uid(), victim.pod.uid(), "never by force from a node that does not answer");
    Ok(())
}

/// As many claims as members that have one.
async fn claims_fit(cluster: &Cluster<'_>, number: usize) -> Outcome {
    let members = cluster.pod_names().await?;
    let fit = |claims: &[PersistentVolumeClaim]| {
        claims.len() == number && claims.iter().all(|claim| members.contains(&claim.name_any()))
    };
    cluster.claims_are("only the members' claims", fit).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_node_takes_a_member_and_the_operator_with_it() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "cut").await.unwrap();
    test.run(async |test| -> Outcome {
        let cut_off = Operator::start_as(test, "first", Some("node3"))?;
        let clusters = both(test).await?;
        let standby = Operator::start_as(test, "second", None)?;
        let [empty, volumes] = &clusters;
        let loads = [empty.traffic().await?, volumes.traffic().await?];
        let victims = [member_on(empty, "node3").await?, member_on(volumes, "node3").await?];
        assert!(holder(test).await?.starts_with("first"), "the one on node3 leads");

        let began = Instant::now();
        lab.cut_node("node3")?;
        tokio::try_join!(replaced(empty, &victims[0]), replaced(volumes, &victims[1]))?;
        println!("replaced {:.1} s after the cut", began.elapsed().as_secs_f64());
        assert!(holder(test).await?.starts_with("second"), "the standby took over");
        let stopped = logged(&cut_off, "stopped leading")?.ok_or("the one that was cut off still leads")?;
        let took_over = logged(&standby, "became leader")?.ok_or("the standby does not lead")?;
        assert!(stopped < took_over, "stopped at {stopped}, and the other began at {took_over}");

        lab.heal_node("node3")?;
        for (cluster, victim) in clusters.iter().zip(&victims) {
            cluster.settled(3, VERSION).await?;
            victim.was_replaced(cluster).await?;
        }
        claims_fit(volumes, 3).await?;
        let acted = acts_since(&cut_off, stopped)?;
        assert!(acted.is_empty(), "it acted after it had lost the lease: {acted:?}");

        // What is no fault of etcd's touches nobody.
        let standing = [
            empty.victim_named(&leader(empty).await?).await?,
            volumes.victim_named(&leader(volumes).await?).await?,
        ];
        lab.restart_api_server()?;
        lab.restart_kubelet("node1")?;
        lab.node_ready("node1", LIMIT).await?;
        for (cluster, leader) in clusters.iter().zip(&standing) {
            cluster.settled(3, VERSION).await?;
            leader.came_back(cluster, 0).await?;
        }
        for load in loads {
            load.end_without_failure().await?;
        }
        Ok(())
    })
    .await
    .unwrap();
}

async fn leader(cluster: &Cluster<'_>) -> Outcome<String> {
    Ok(cluster.get().await?.status.unwrap_or_default().leader)
}

async fn holder(test: &TestNamespace<'_>) -> Outcome<String> {
    let lease = test.api::<Lease>().get("etcd-operator").await?;
    Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

/// When the operator last logged this.
fn logged(operator: &Operator, what: &str) -> Outcome<Option<Timestamp>> {
    let log = operator.log()?;
    let line = log.lines().rev().find(|line| line.contains(what));
    Ok(line.map(time_of).transpose()?)
}

fn time_of(line: &str) -> Result<Timestamp, jiff::Error> {
    line.split_whitespace().next().unwrap_or_default().parse()
}

/// Steps that it took after that time.
fn acts_since(operator: &Operator, since: Timestamp) -> Outcome<Vec<String>> {
    let log = operator.log()?;
    let steps = log.lines().filter(|line| line.contains("step="));
    let later = steps.filter(|line| time_of(line).is_ok_and(|time| time > since));
    Ok(later.map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_power_and_drains_of_each_in_turn() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "nodes").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let clusters = both(test).await?;
        let [empty, volumes] = &clusters;
        let loads = [empty.traffic().await?, volumes.traffic().await?];
        let victims = [member_on(empty, "node2").await?, member_on(volumes, "node2").await?];
        let began = Instant::now();
        lab.kill_node("node2")?;
        let both = tokio::try_join!(replaced(empty, &victims[0]), replaced(volumes, &victims[1]));
        lab.start_node("node2").await?;
        both?;
        println!("replaced {:.1} s after the node lost its power", began.elapsed().as_secs_f64());
        lab.nodes_usable(LIMIT).await?;
        for (cluster, victim) in clusters.iter().zip(&victims) {
            cluster.settled(3, VERSION).await?;
            victim.was_replaced(cluster).await?;
        }
        claims_fit(volumes, 3).await?;

        // A member whose volume cannot leave its node is replaced after a time, which once is enough to see.
        for (node, clusters) in
            [("node1", &clusters[..]), ("node2", &clusters[..1]), ("node3", &clusters[..1])]
        {
            let began = Instant::now();
            let drained = drained(clusters, node).await;
            test.kubectl(&["uncordon", node]).await?;
            drained.map_err(|error| format!("{node}: {error}"))?;
            println!("{node} drained, all healthy elsewhere after {:.1} s", began.elapsed().as_secs_f64());
        }
        claims_fit(volumes, 3).await?;
        for load in loads {
            load.end_without_failure().await?;
        }
        small_ones_block(test).await
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_volume_was_to_be_on_a_lost_node_is_made_elsewhere() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "nodes").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let spec = json!({"size": 1, "version": VERSION, "pod": {"persistentVolumeClaimSpec": volume()}});
        let cluster = Cluster::create(test, "v", spec).await?;
        cluster.settled(1, VERSION).await?;
        for _ in 0..TRIES {
            let sent = grows_while_a_node_is_lost(&cluster).await?;
            claims_fit(&cluster, 3).await?;
            if sent {
                return Ok(());
            }
            cluster.edit(json!({"size": 1})).await?;
            cluster.settled(1, VERSION).await?;
            claims_fit(&cluster, 1).await?;
        }
        Err("Kubernetes missed the node each time before a member was sent there".into())
    })
    .await
    .unwrap();
}

/// A busy machine may be too late for what has to be done before Kubernetes misses a node.
const TRIES: usize = 3;

/// From one to three, with one node less: whether a member was to be on the lost one meanwhile.
async fn grows_while_a_node_is_lost(cluster: &Cluster<'_>) -> Outcome<bool> {
    let (test, lab) = (cluster.test, cluster.test.lab);
    // Whoever makes volumes has to live on, too.
    let nodes = "jsonpath={.items[*].spec.nodeName}";
    let maker = test.kubectl(&["get", "pods", "-A", "-l", "app=local-path", "-o", nodes]).await?;
    let member = test.kubectl(&["get", "pods", "-l", "app=etcd", "-o", nodes]).await?;
    let needed = [maker, member].concat();
    let lost = ["node1", "node2", "node3"].into_iter().find(|node| !needed.contains(node));
    let lost = lost.ok_or_else(|| format!("every node is needed: {needed}"))?;
    // Kubernetes needs a while to miss it: until then one of the two is sent there.
    lab.kill_node(lost)?;
    cluster.edit(json!({"size": 3})).await?;
    let there = |claim: &PersistentVolumeClaim| {
        claim.annotations().get("volume.kubernetes.io/selected-node").is_some_and(|node| node == lost)
    };
    let one_there = |all: &[PersistentVolumeClaim]| all.iter().any(there);
    let sent = tokio::select! {
        sent = cluster.claims_are("one to be sent to the lost node", one_there) => sent.map(|()| true),
        settled = cluster.settled(3, VERSION) => settled.map(|_| false),
    };
    let settled = cluster.settled(3, VERSION).await;
    lab.start_node(lost).await?;
    let (sent, _) = (sent?, settled?);
    lab.nodes_usable(LIMIT).await?;
    Ok(sent)
}

const DRAIN: [&str; 3] = ["drain", "--ignore-daemonsets", "--delete-emptydir-data"];

/// The node is empty of members, and everyone is well on the others.
async fn drained(clusters: &[Cluster<'_>], node: &str) -> Outcome {
    for cluster in clusters {
        let of_it = format!("--pod-selector=etcd_cluster={}", cluster.name);
        cluster.test.kubectl(&[&DRAIN[..], &[node, &of_it, "--timeout=300s"]].concat()).await?;
    }
    for cluster in clusters {
        cluster.settled(3, VERSION).await?;
        assert_eq!(names_on(cluster, node).await?, Vec::<String>::new());
    }
    Ok(())
}

/// A cluster of one or two can spare nobody: a drain is refused, and the cluster says why.
async fn small_ones_block(test: &TestNamespace<'_>) -> Outcome {
    for size in [1, 2] {
        let name = format!("s{size}");
        let cluster = Cluster::create(test, &name, json!({"size": size, "version": VERSION})).await?;
        let settled = cluster.settled(size, VERSION).await?.status.unwrap_or_default();
        let ready = settled.conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.message.clone());
        assert!(ready.as_ref().is_some_and(|message| message.contains("drains")), "{ready:?}");
        let pod = cluster.pods().await?.pop().ok_or("there is no pod")?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let of_it = format!("--pod-selector=etcd_cluster={name}");
        let refused = test.kubectl(&[&DRAIN[..], &[&node, &of_it, "--timeout=15s"]].concat()).await;
        test.kubectl(&["uncordon", &node]).await?;
        let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("disruption budget"), "{refused}");
        assert_eq!(cluster.pods_api().get(&pod.name_any()).await?.uid(), pod.uid());
    }
    Ok(())
}
