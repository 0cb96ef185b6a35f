//! A cluster as the coreos operator made it, from a pod and a Service that it really made; and its lock.

use std::collections::BTreeMap;

use api::EtcdCluster;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Endpoints, PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, PostParams};
use lab::wait::until;
use serde_json::{Value, json};

use super::{Cluster, LIMIT, Outcome};

const POD: &str = include_str!("golden/pod.yaml");
const SERVICES: &str = include_str!("golden/services.yaml");
/// What the golden files show: the cluster, the member, its version and where they were.
const SHOWN: [&str; 4] =
    ["example-etcd-cluster", "example-etcd-cluster-hszgh6rfmb", "3.2.13", ".default.svc"];

pub const VERSION: &str = "3.3.12";
pub const MEMBERS: [&str; 3] = ["c-hszgh6rfmb", "c-s7dxz6lnmt", "c-zkvsr4rt8j"];
pub const CLIENT_SERVICE: &str = "c-client";
/// Its election.
pub const LOCK: &str = "etcd-operator";

/// Members, claims if the spec asks for volumes, and the Services of a cluster `c`, which must be paused. The first member
/// begins the cluster, and each other one joins it.
pub async fn members(cluster: &Cluster<'_>) -> Outcome {
    let (test, params) = (cluster.test, PostParams::default());
    let owner = cluster.get().await?;
    for service in services(&owner)? {
        test.api::<Service>().create(&params, &service).await?;
    }
    let volumes = owner.spec.pod().persistent_volume_claim_spec.as_ref();
    for (nth, name) in MEMBERS.into_iter().enumerate() {
        if nth > 0 {
            joins(cluster, &url(&test.name, name, 2380)).await?;
        }
        let mut pod = member(&owner, &test.name, &MEMBERS[..=nth])?;
        if let Some(spec) = volumes {
            let metadata = json!({
                "name": name, "labels": {"app": "etcd", "etcd_cluster": "c"},
                "ownerReferences": pod["metadata"]["ownerReferences"],
            });
            let claim: PersistentVolumeClaim =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?;
            test.api::<PersistentVolumeClaim>().create(&params, &claim).await?;
            pod["spec"]["volumes"] =
                json!([{"name": "etcd-data", "persistentVolumeClaim": {"claimName": name}}]);
        }
        test.api::<Pod>().create(&params, &serde_json::from_value(pod)?).await?;
        answer(cluster, nth + 1).await?;
    }
    Ok(())
}

fn url(namespace: &str, member: &str, port: u16) -> String {
    format!("http://{member}.c.{namespace}.svc:{port}")
}

/// etcd wants to have heard of all others for some seconds first.
async fn joins(cluster: &Cluster<'_>, url: &str) -> Outcome {
    let seed = cluster.endpoints().await?.pop().ok_or("the seed has no address")?;
    let seed = etcd::Member::connect(&seed, etcd::Expect::default())?;
    until("the next member to be let in", LIMIT, async || {
        let added = seed.add_member(vec![url.to_owned()], false).await;
        Ok(added.map(drop).map_err(|error| error.to_string()))
    })
    .await?;
    Ok(())
}

async fn answer(cluster: &Cluster<'_>, count: usize) -> Outcome {
    until("the members of old to answer", LIMIT, async || {
        let endpoints = cluster.endpoints().await.map_err(|error| lab::Error::other("pods", error))?;
        let asked = endpoints
            .iter()
            .map(async |endpoint| etcd::Member::connect(endpoint, etcd::Expect::default())?.health().await);
        let healthy = try_join_all(asked).await.map_err(|error| error.to_string());
        Ok(healthy
            .and_then(|all| if all.len() == count { Ok(()) } else { Err(format!("{} answer", all.len())) }))
    })
    .await?;
    Ok(())
}

/// A golden file in the names of this test, without what only an API server writes.
fn made(golden: &str, owner: &EtcdCluster, namespace: &str, member: &str) -> Outcome<Value> {
    let [cluster, first, version, place] = SHOWN;
    let text = golden.replace(first, member).replace(cluster, "c").replace(version, VERSION);
    let mut object: Value = serde_saphyr::from_str(&text.replace(place, &format!(".{namespace}.svc")))?;
    // A list of one, or the object itself.
    if let Some(one) = object.get_mut("items").map(|items| items[0].take()) {
        object = one;
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| {
            ["annotations", "labels", "name", "ownerReferences"].contains(&field.as_str())
        });
    }
    object["metadata"]["ownerReferences"][0]["uid"] = json!(owner.uid());
    Ok(object)
}

/// The client Service, and the headless one, which is not in the file: today's Kubernetes demands more of it than was made.
fn services(owner: &EtcdCluster) -> Outcome<[Service; 2]> {
    let mut client = made(SERVICES, owner, "", "")?;
    let mut headless = client.clone();
    for field in ["clusterIP", "clusterIPs"] {
        client["spec"].as_object_mut().ok_or("no spec")?.remove(field);
    }
    headless["metadata"]["name"] = json!("c");
    headless["metadata"]["annotations"] =
        json!({"service.alpha.kubernetes.io/tolerate-unready-endpoints": "true"});
    headless["spec"] = json!({
        "clusterIP": "None", "publishNotReadyAddresses": true, "selector": client["spec"]["selector"],
        "ports": [{"name": "client", "port": 2379}, {"name": "peer", "port": 2380}],
    });
    Ok([serde_json::from_value(client)?, serde_json::from_value(headless)?])
}

/// The last one of `members`, which joins the others; the first one begins the cluster.
fn member(owner: &EtcdCluster, namespace: &str, members: &[&str]) -> Outcome<Value> {
    let name = members.last().ok_or("no member")?;
    let mut pod = made(POD, owner, namespace, name)?;
    let peers: Vec<String> =
        members.iter().map(|name| format!("{name}={}", url(namespace, name, 2380))).collect();
    let state = if members.len() == 1 { "new" } else { "existing" };
    let spec = pod["spec"].as_object_mut().ok_or("no spec")?;
    spec.remove("nodeName");
    let command = spec["containers"][0]["command"].as_array_mut().ok_or("no command")?;
    command.retain(|argument| !argument.as_str().is_some_and(|text| text.starts_with("--initial-cluster")));
    command.push(json!(format!("--initial-cluster={}", peers.join(","))));
    command.push(json!(format!("--initial-cluster-state={state}")));
    // The file only tells of it.
    let wait = format!("while ( ! nslookup {name}.c.{namespace}.svc ); do sleep 1; done");
    spec["initContainers"][0]["command"] = json!(["/bin/sh", "-c", wait]);
    Ok(pod)
}

/// The lock of a coreos operator that renewed it just now.
pub async fn runs(cluster: &Cluster<'_>) -> Outcome {
    let now = jiff::Timestamp::now();
    let leader = json!({
        "holderIdentity": "etcd-operator-of-old", "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now,
        "leaderTransitions": 0,
    });
    let key = "control-plane.alpha.kubernetes.io/leader".to_owned();
    let annotations = Some(BTreeMap::from([(key, leader.to_string())]));
    let metadata = ObjectMeta { name: Some(LOCK.to_owned()), annotations, ..ObjectMeta::default() };
    let lock = Endpoints { metadata, subsets: None };
    cluster.test.api::<Endpoints>().create(&PostParams::default(), &lock).await?;
    Ok(())
}
