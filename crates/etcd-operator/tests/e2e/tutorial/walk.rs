//! The chapter, step by step. Every step types what the book prints and looks at what the book looks at.

use api::conditions::ConditionStatus;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use serde_json::Value;

use super::reader::Reader;
use super::shown::{contains, describes, is_random, row, shows};
use crate::support::{Cluster, LIMIT, Outcome};

pub const CLUSTER: &str = "example-etcd-cluster";
const DESCRIBE: &str = "kubectl describe etcdcluster/example-etcd-cluster";
const ETCDCTL: &str =
    "kubectl run --rm -i --tty etcdctl --image quay.io/coreos/etcd --restart=Never -- /bin/sh";

const DURING: &str = include_str!("golden/describe-during-upgrade.txt");
const AFTER: &str = include_str!("golden/describe-after-upgrade.txt");
const OBJECT: &str = include_str!("golden/cr.json");
const EVENTS: &str = include_str!("golden/events.jsonl");

/// "You need a cluster that you administer."
pub async fn prerequisites(reader: &Reader<'_>) -> Outcome {
    let role = reader.reads("kubectl describe clusterrole cluster-admin").await?;
    shows(
        &role,
        &[
            "Name: cluster-admin",
            "Labels: kubernetes.io/bootstrapping=rbac-defaults",
            "PolicyRule:",
            "Resources Non-Resource URLs Resource Names Verbs",
            "*.* [] [] [*]",
            "[*] [] [*]",
        ],
    )?;
    let version = reader.reads("kubectl version").await?;
    row(&version, "Client Version: v1.")?;
    row(&version, "Server Version: v1.").map(drop)
}

pub async fn crd(reader: &Reader<'_>) -> Outcome {
    let created = reader.reads("kubectl create -f etcd-operator-crd.yaml").await?;
    shows(
        &created,
        &["customresourcedefinition.apiextensions.k8s.io/etcdclusters.etcd.database.coreos.com created"],
    )?;
    reader.served("etcdclusters.etcd.database.coreos.com").await?;
    crd_is_shown(reader).await
}

pub async fn crd_is_shown(reader: &Reader<'_>) -> Outcome {
    let crds = reader.reads("kubectl get crd").await?;
    row(&crds, "NAME CREATED AT")?;
    row(&crds, "etcdclusters.etcd.database.coreos.com 20")?;
    let ours = crds.lines().filter(|line| line.contains(".etcd.database.coreos.com")).count();
    assert_eq!(ours, 1, "only what is controlled here has a CRD: {crds}");
    let described = reader.reads("kubectl describe crd etcdclusters.etcd.database.coreos.com").await?;
    shows(
        &described,
        &[
            "Group: etcd.database.coreos.com",
            "Names:",
            "Kind: EtcdCluster",
            "List Kind: EtcdClusterList",
            "Plural: etcdclusters",
            "Short Names:",
            "etcdclus",
            "etcd",
            "Singular: etcdcluster",
            "Scope: Namespaced",
            "Name: v1beta2",
            "Served: true",
            "Storage: true",
        ],
    )
}

/// `role` is the file that has the rules.
pub async fn rights(reader: &Reader<'_>, role: &str) -> Outcome {
    reader.reads("kubectl create -f etcd-operator-sa.yaml").await?;
    row(&reader.reads("kubectl get serviceaccounts").await?, "etcd-operator-sa ")?;
    let created = reader.reads(&format!("kubectl create -f {role}")).await?;
    shows(&created, &["role.rbac.authorization.k8s.io/etcd-operator-role created"])?;
    let created = reader.reads("kubectl create -f etcd-operator-rolebinding.yaml").await?;
    shows(&created, &["rolebinding.rbac.authorization.k8s.io/etcd-operator-rolebinding created"])
}

/// Gives the name of the operator's pod.
pub async fn deployment(reader: &Reader<'_>) -> Outcome<String> {
    let created = reader.reads("kubectl create -f etcd-operator-deployment.yaml").await?;
    shows(&created, &["deployment.apps/etcd-operator created"])?;
    operator_runs(reader).await
}

pub async fn operator_runs(reader: &Reader<'_>) -> Outcome<String> {
    reader.sees("kubectl get deployments", |shown| row(shown, "etcd-operator 1/1 1 1 ").is_ok()).await?;
    let pods = reader.reads("kubectl get pods -l name=etcd-operator").await?;
    let pod: Vec<&str> = row(&pods, "etcd-operator-")?.split_whitespace().collect();
    assert_eq!(pod[1..4], ["1/1", "Running", "0"], "{pods}");
    Ok(pod[0].to_owned())
}

/// Three pods, one after the other: the seed, then members that were added.
pub async fn cluster(reader: &Reader<'_>, cluster: &Cluster<'_>) -> Outcome {
    let window = reader.watches_pods()?;
    let created = reader.reads("kubectl create -f etcd-cluster-cr.yaml").await?;
    shows(&created, &["etcdcluster.etcd.database.coreos.com/example-etcd-cluster created"])?;
    cluster.settled(3, "3.1.10").await?;
    let came = window.closed().await?;
    let names: Vec<&str> = came.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), 3, "{came:?}");
    for name in &names {
        assert!(name.strip_prefix("example-etcd-cluster-").is_some_and(is_random), "{name}");
    }
    for (nth, name) in names.iter().enumerate() {
        flags(reader, name, &names[..=nth]).await?;
    }
    Ok(())
}

/// What etcd was really started with, when those members were `known`.
async fn flags(reader: &Reader<'_>, name: &str, known: &[&str]) -> Outcome {
    let line = format!("kubectl exec {name} -c etcd -- cat /proc/1/cmdline | tr '\\0' '\\n'");
    let started = reader.reads(&line).await?;
    let flags: Vec<&str> = started.lines().collect();
    let host = |name: &str| format!("http://{name}.{CLUSTER}.{}.svc", reader.test.name);
    let state = if known.len() == 1 { "new" } else { "existing" };
    let expected = [
        "/usr/local/bin/etcd".to_owned(),
        "--data-dir=/var/etcd/data".to_owned(),
        format!("--name={name}"),
        format!("--initial-advertise-peer-urls={}:2380", host(name)),
        "--listen-peer-urls=http://0.0.0.0:2380".to_owned(),
        "--listen-client-urls=http://0.0.0.0:2379".to_owned(),
        format!("--advertise-client-urls={}:2379", host(name)),
    ];
    assert_eq!(flags[..7], expected);
    let peers = flags[7].strip_prefix("--initial-cluster=").ok_or("no --initial-cluster")?;
    let mut peers: Vec<&str> = peers.split(',').collect();
    let mut expected: Vec<String> = known.iter().map(|peer| format!("{peer}={}:2380", host(peer))).collect();
    peers.sort_unstable();
    expected.sort_unstable();
    assert_eq!(peers, expected);
    assert_eq!(flags[8], format!("--initial-cluster-state={state}"));
    let token = flags.get(9).and_then(|flag| flag.strip_prefix("--initial-cluster-token="));
    let is_uuid = |token: &str| token.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    assert_eq!(token.is_some_and(is_uuid), state == "new", "only the seed has a token: {flags:?}");
    assert_eq!(flags.len(), if state == "new" { 10 } else { 9 });
    Ok(())
}

pub async fn described(reader: &Reader<'_>, cluster: &Cluster<'_>) -> Outcome {
    let text = reader.reads(DESCRIBE).await?;
    let namespace = format!("Namespace: {}", reader.test.name);
    let status = cluster.get().await?.status.unwrap_or_default();
    let mut expected = vec!["Name: example-etcd-cluster", &namespace];
    expected.extend([
        "API Version: etcd.database.coreos.com/v1beta2",
        "Kind: EtcdCluster",
        "Spec:",
        "Repository: quay.io/coreos/etcd",
        "Size: 3",
        "Version: 3.1.10",
        "Status:",
        "Client Port: 2379",
        "Conditions:",
        "Reason: Cluster available",
        "Status: True",
        "Type: Available",
        "Current Version: 3.1.10",
        "Members:",
        "Ready:",
    ]);
    expected.extend(status.members.ready.iter().map(String::as_str));
    expected.extend(["Phase: Running", "Service Name: example-etcd-cluster-client", "Size: 3"]);
    shows(&text, &expected)?;
    for name in ["etcdclusters", "etcdcluster", "etcdclus", "etcd"] {
        let table = reader.reads(&format!("kubectl get {name}")).await?;
        row(&table, "NAME SIZE READY VERSION TARGET PHASE AGE")?;
        row(&table, "example-etcd-cluster 3 3 3.1.10 Running ")?;
    }
    let wide = reader.reads("kubectl get etcd -o wide").await?;
    row(&wide, "NAME SIZE READY VERSION TARGET PHASE LEADER DB SIZE AGE").map(drop)
}

pub async fn services(reader: &Reader<'_>) -> Outcome {
    let table = reader.reads("kubectl get services --selector etcd_cluster=example-etcd-cluster").await?;
    row(&table, "example-etcd-cluster ClusterIP None <none> 2379/TCP,2380/TCP ")?;
    let client = row(&table, "example-etcd-cluster-client ClusterIP 10.")?;
    assert!(client.contains(" 2379/TCP "), "{table}");
    Ok(())
}

/// In a pod of the untagged image, which is pulled from a registry.
pub async fn put_and_get(reader: &Reader<'_>) -> Outcome {
    let typed = [
        "export ETCDCTL_API=3",
        "export ETCDCSVC=http://example-etcd-cluster-client:2379",
        "etcdctl --endpoints $ETCDCSVC put foo bar",
        "etcdctl --endpoints $ETCDCSVC get foo",
        "exit",
    ];
    let screen = reader.at_prompt(ETCDCTL, &typed).await?;
    shows(&screen, &["OK", "foo", "bar"])?;
    row(&screen, "pod \"etcdctl\" deleted").map(drop)
}

pub async fn cluster_health(reader: &Reader<'_>, members: usize) -> Outcome {
    let typed = ["etcdctl --endpoints http://example-etcd-cluster-client:2379 cluster-health", "exit"];
    let screen = reader.at_prompt(ETCDCTL, &typed).await?;
    let healthy = screen.lines().filter(|line| {
        line.starts_with("member ") && line.contains(" is healthy: got healthy result from http://")
    });
    assert_eq!(healthy.count(), members, "{screen}");
    shows(&screen, &["cluster is healthy"])
}

/// To four by an edit of the file, and back in the editor.
pub async fn resize(reader: &Reader<'_>, cluster: &Cluster<'_>) -> Outcome {
    let window = reader.watches_pods()?;
    reader.edits("etcd-cluster-cr.yaml", "size: 3", "size: 4")?;
    let applied = reader.reads("kubectl apply -f etcd-cluster-cr.yaml").await?;
    row(&applied, "etcdcluster.etcd.database.coreos.com/example-etcd-cluster configured")?;
    cluster.settled(4, "3.1.10").await?;
    // The kubelet's probe sees it a moment after the operator does.
    let all_ready = |shown: &str| shown.matches(" 1/1 ").count() == 4;
    reader.sees("kubectl get pods -l app=etcd", all_ready).await?;
    let pods = window.closed().await?;
    let (_, states) = pods.get(3).ok_or("there is no fourth pod")?;
    assert!(states.iter().any(|state| state.starts_with("0/1 Init:")), "{states:?}");
    assert!(states.iter().any(|state| state == "1/1 Running"), "{states:?}");
    reader.edits("etcd-cluster-cr.yaml", "size: 4", "size: 3")?;
    let edited = "EDITOR='sed -i s/size:.4/size:\\ 3/' kubectl edit etcdcluster/example-etcd-cluster";
    row(&reader.reads(edited).await?, "etcdcluster.etcd.database.coreos.com/example-etcd-cluster edited")?;
    cluster.settled(3, "3.1.10").await?;
    Ok(())
}

/// A pod is deleted; another member takes its place, and the events say so in the operator's name.
pub async fn recovery(reader: &Reader<'_>, cluster: &Cluster<'_>, operator: &str) -> Outcome {
    let pods = reader.reads("kubectl get pods -l app=etcd").await?;
    let lost = row(&pods, "example-etcd-cluster-")?.split_whitespace().next().unwrap_or_default();
    let before = cluster.pod_names().await?;
    let deleted = reader.reads(&format!("kubectl delete pod {lost}")).await?;
    row(&deleted, &format!("pod \"{lost}\" deleted"))?;
    cluster.settled(3, "3.1.10").await?;
    let after = cluster.pod_names().await?;
    assert_eq!(before.intersection(&after).count(), 2, "nothing else was touched");
    let new = after.difference(&before).next().ok_or("there is no new member")?;
    let said = [
        format!("Replacing Dead Member|The dead member {lost} is being replaced"),
        format!("Member Removed|Existing member {lost} removed from the cluster"),
        format!("New Member Added|New member {new} added to cluster"),
    ];
    let described = reader.sees(DESCRIBE, |shown| shown.contains(&format!("New member {new} added"))).await?;
    for event in &said {
        let (reason, message) = event.split_once('|').unwrap_or_default();
        let is_it = |line: &&str| line.contains(reason) && line.ends_with(message);
        let line = described.lines().find(is_it).ok_or_else(|| format!("no {event} in:\n{described}"))?;
        assert!(line.trim().starts_with("Normal ") && line.contains(&format!(" {operator} ")), "{line}");
    }
    cluster_health(reader, 3).await
}

/// By an edit of the file, watched while it goes on.
pub async fn upgrade_by_file(reader: &Reader<'_>, cluster: &Cluster<'_>) -> Outcome {
    images(reader, cluster, "3.1.10").await?;
    reader.edits("etcd-cluster-cr.yaml", "version: 3.1.10", "version: 3.2.13")?;
    reader.reads("kubectl apply -f etcd-cluster-cr.yaml").await?;
    cluster.condition("Upgrading", ConditionStatus::True, LIMIT).await?;
    let during = cluster.get().await?;
    let golden: Value = serde_json::from_str(OBJECT)?;
    for part in ["apiVersion", "kind", "spec", "status"] {
        contains(&serde_json::to_value(&during)?[part], &golden[part], part)?;
    }
    // Events come as the members do; what the golden one shows of the object holds from the first moment.
    let shown = reader.reads(DESCRIBE).await?;
    let (golden, _) = DURING.split_once("\nEvents:").ok_or("the golden text has no events")?;
    describes(&shown, &format!("{golden}\nEvents:"))?;

    cluster.settled(3, "3.2.13").await?;
    let finished =
        reader.sees(DESCRIBE, |shown| shown.matches(" upgraded from 3.1.10 to 3.2.13").count() == 3);
    let shown = finished.await?;
    describes(&shown, AFTER)?;
    assert!(!shown.contains("Cluster upgrading"), "{shown}");
    images(reader, cluster, "3.2.13").await
}

/// By the book's patch; `value` is the version as it is written in it.
pub async fn upgrade_by_patch(reader: &Reader<'_>, cluster: &Cluster<'_>, value: &str) -> Outcome {
    let patch = format!(r#"[{{"op": "replace", "path": "/spec/version", "value":{value}}}]"#);
    let line = format!("kubectl patch etcdcluster example-etcd-cluster --type='json' -p '{patch}'");
    row(&reader.reads(&line).await?, "etcdcluster.etcd.database.coreos.com/example-etcd-cluster patched")?;
    cluster.settled(3, "3.3.12").await?;
    let shown =
        reader.sees(DESCRIBE, |shown| shown.matches(" upgraded from 3.2.13 to 3.3.12").count() == 3).await?;
    shows(&shown, &["Current Version: 3.3.12", "Target Version:"])?;
    images(reader, cluster, "3.3.12").await
}

async fn images(reader: &Reader<'_>, cluster: &Cluster<'_>, version: &str) -> Outcome {
    for name in cluster.pod_names().await? {
        let shown = reader.reads(&format!("kubectl get pod {name} -o yaml | grep \"image:\" | uniq")).await?;
        let etcd = format!("image: quay.io/coreos/etcd:v{version}");
        shows(&shown, &[&etcd, "image: busybox:1.28.0-glibc"])?;
    }
    Ok(())
}

/// Events are what coreos made of them: the same fields, words and source; and nothing was ever alarming.
pub async fn events(cluster: &Cluster<'_>, operator: &str) -> Outcome {
    let uid = cluster.get().await?.metadata.uid.unwrap_or_default();
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let events = cluster.test.api::<Event>().list(&about).await?;
    for golden in EVENTS.lines() {
        let mut golden: Value = serde_json::from_str(golden)?;
        golden["source"]["component"] = operator.into();
        let ours = events.items.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let found = ours.iter().any(|one| contains(one, &golden, "event").is_ok());
        assert!(found, "no event is like {golden} in {ours:#?}");
    }
    // The book upgrades without a backup, and is told so.
    let alarms = events.items.iter().filter(|event| event.type_.as_deref() != Some("Normal"));
    let (told, alarms): (Vec<_>, Vec<_>) = alarms
        .map(|event| (event.reason.as_deref(), &event.message))
        .partition(|(reason, _)| *reason == Some("No Backup"));
    assert!(!told.is_empty() && alarms.is_empty(), "{told:?}, {alarms:?}");
    Ok(())
}

/// In the book's order: rights first, the CRD before the cluster. Nothing hangs, and nothing is left.
pub async fn clean_up(reader: &Reader<'_>, before: &str) -> Outcome {
    for (file, what) in [
        ("sa", "serviceaccount \"etcd-operator-sa\" deleted"),
        ("role", "role.rbac.authorization.k8s.io \"etcd-operator-role\" deleted"),
        ("rolebinding", "rolebinding.rbac.authorization.k8s.io \"etcd-operator-rolebinding\" deleted"),
        (
            "crd",
            "customresourcedefinition.apiextensions.k8s.io \"etcdclusters.etcd.database.coreos.com\" deleted",
        ),
        ("deployment", "deployment.apps \"etcd-operator\" deleted"),
    ] {
        row(&reader.reads(&format!("kubectl delete -f etcd-operator-{file}.yaml")).await?, what)?;
    }
    let unknown = reader.reads_refused("kubectl delete -f etcd-cluster-cr.yaml").await?;
    // The second while kubectl still remembers the kind.
    let says_so = ["no matches for kind \"EtcdCluster\"", "could not find the requested resource"];
    assert!(says_so.iter().any(|words| unknown.contains(words)), "{unknown}");
    left_as_it_was(reader, before).await
}

/// All objects of the namespace, but for what passes by itself.
pub async fn inventory(reader: &Reader<'_>) -> Outcome<String> {
    reader
        .reads(
            "kubectl api-resources --verbs=list --namespaced -o name | grep -v -e ^events -e ^endpoints$ | paste -sd, \
             | xargs kubectl get -o name --ignore-not-found | sort",
        )
        .await
}

pub async fn left_as_it_was(reader: &Reader<'_>, before: &str) -> Outcome {
    let all_gone = lab::wait::until("the namespace as it was before", LIMIT, async || {
        let now = inventory(reader).await.unwrap_or_else(|error| error.to_string());
        Ok(if now == before { Ok(()) } else { Err(now) })
    });
    Ok(all_gone.await?)
}
