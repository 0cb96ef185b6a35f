//! Every way to install the operator, as its users do it, on a lab that has nothing of it: these tests come and go with the
//! CRDs, so each has the lab for itself.

mod audit;
mod desk;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use lab::kit::{TestNamespace, gone, lab_alone, wait_for_all};
use serde_json::json;

use crate::heal::volume;
use crate::restore::bucket::{Bucket, SECRET};
use crate::support::{Cluster, LIMIT, Outcome, predecessor};
use audit::Audit;
use desk::Desk;

const OLD: &str = "3.5.16";
const NEW: &str = "3.5.35";
const NEXT_MINOR: &str = "3.6.16";

async fn pod_uids(cluster: &Cluster<'_>) -> Outcome<BTreeSet<Option<String>>> {
    Ok(cluster.pods().await?.iter().map(ResourceExt::uid).collect())
}

async fn definitions(test: &TestNamespace<'_>) -> Outcome<Vec<String>> {
    let api: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    let all = api.list(&ListParams::default()).await?.items;
    Ok(all.iter().filter(|crd| crd.spec.group == api::GROUP).map(ResourceExt::name_any).collect())
}

/// One file, then an overlay in its place: the second finds the cluster of the first and leaves it as it is.
#[tokio::test]
async fn by_one_file_and_by_kustomize() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "install").await.unwrap();
    test.run(async |test| -> Outcome {
        let desk = Desk::new(test).await?;
        let mine =
            "sed 's/namespace: default/namespace: mine/' deploy/etcd-operator.yaml | kubectl apply -f -";
        desk.reads(mine, "").await?;
        desk.runs(&test.name).await?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": OLD})).await?;
        cluster.settled(1, OLD).await?;
        let before = pod_uids(&cluster).await?;
        desk.users_may().await?;

        desk.follows("From one namespace").await?;
        desk.left_nothing().await?;
        let here = format!("s/namespace: default/namespace: {}/", test.name);
        desk.types(&format!("sed -i '{here}' deploy/kustomize/overlays/namespaced/*.yaml")).await?;
        desk.reads("kubectl apply -k deploy/kustomize/overlays/namespaced", "").await?;
        desk.runs(&test.name).await?;
        cluster.edit(json!({"version": NEW})).await?;
        cluster.settled(1, NEW).await?;
        assert_eq!(
            pod_uids(&cluster).await?,
            before,
            "an upgrade keeps the pods, and so does another operator"
        );

        desk.types("kubectl delete -k deploy/kustomize/overlays/namespaced").await?;
        assert!(definitions(test).await?.is_empty());
        desk.left_nothing().await
    })
    .await
    .unwrap();
}

/// With Helm: CRDs come up to date with an upgrade, an uninstall leaves them and the clusters, which serve on, and the next
/// install takes them over as they are.
#[tokio::test]
async fn by_helm() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "helm").await.unwrap();
    test.run(async |test| -> Outcome {
        let desk = Desk::new(test).await?;
        let release = format!("etcd-operator --namespace {} --wait", test.name);
        desk.types("cp -r charts/etcd-operator older").await?;
        desk.types("sed -i '/    - etcdclus$/d' older/files/crds/etcdclusters.yaml").await?;
        desk.types(&format!("helm install {release} older")).await?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": OLD})).await?;
        cluster.settled(3, OLD).await?;
        desk.refused(&format!("kubectl -n {} get etcdclus", test.name)).await?;
        let (before, load) = (pod_uids(&cluster).await?, cluster.traffic().await?);

        desk.types(&format!("helm upgrade {release} charts/etcd-operator --set replicas=2")).await?;
        desk.types(&format!("kubectl -n {} get etcdclus", test.name)).await?;
        desk.follows("With Helm").await?;
        desk.left_nothing().await?;
        assert_eq!(definitions(test).await?.len(), 3, "CRDs are kept");

        let options = format!("--namespace {} --wait", test.name);
        desk.reads("helm install etcd-operator charts/etcd-operator", &options).await?;
        cluster.settled(3, OLD).await?;
        assert_eq!(pod_uids(&cluster).await?, before, "nothing was touched on the way");
        load.end_without_failure().await?;

        desk.types(&format!("helm upgrade {release} charts/etcd-operator --set crds.keep=false")).await?;
        desk.follows("With Helm").await?;
        assert!(definitions(test).await?.is_empty(), "the user asked for it");
        for pod in cluster.pods().await? {
            gone(&cluster.pods_api(), &pod.name_any(), LIMIT).await?;
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// For all namespaces, operator and members in ones that are restricted: a cluster's whole life, backups and restores with
/// the rights that are shipped, none refused and none in vain.
#[tokio::test]
async fn for_all_namespaces_with_no_right_too_few_or_too_many() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "wide").await.unwrap();
    test.run(async |test| -> Outcome {
        let desk = Desk::new(test).await?;
        let audit = Audit::from_now(test)?;
        desk.reads("kubectl apply -f deploy/etcd-operator-cluster-wide.yaml", "").await?;
        desk.runs("etcd-operator").await?;
        let granted = audit::granted(&desk).await?;
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        desk.types(&format!("kubectl label namespace {} {restricted}", test.name)).await?;

        let _bucket = Bucket::open(test).await?;
        let spec = json!({"size": 3, "version": OLD, "pod": {"persistentVolumeClaimSpec": volume()}});
        let cluster = Cluster::create(test, "c", spec).await?;
        cluster.settled(3, OLD).await?;
        cluster.edit(json!({"size": 2})).await?;
        cluster.settled(2, OLD).await?;
        for kept in ["Retain", "Delete"] {
            let policy = json!({"whenDeleted": kept});
            cluster.edit(json!({"pod": {"persistentVolumeClaimRetentionPolicy": policy}})).await?;
            cluster.settled(2, OLD).await?;
        }
        let lost = cluster.pod_names().await?.first().cloned().unwrap_or_default();
        desk.types(&format!("kubectl -n {} delete pod {lost}", test.name)).await?;
        cluster.settled(2, OLD).await?;

        let store = json!({"path": format!("mybucket/{}/etcd.backup", test.name), "awsSecret": SECRET});
        let backup = json!({"clusterRef": {"name": "c"}, "storageType": "S3", "s3": store});
        desk.creates("EtcdBackup", "b", backup).await?;
        desk.waits("condition=Ready", "etcdbackup/b").await?;
        let restore = |name: &str| json!({"etcdCluster": {"name": name}, "backupStorageType": "S3", "s3": store, "force": true});
        for name in ["c", "d"] {
            desk.creates("EtcdRestore", name, restore(name)).await?;
            desk.waits("jsonpath={.status.succeeded}=true", &format!("etcdrestore/{name}")).await?;
        }
        cluster.settled(2, OLD).await?;
        cluster.edit(json!({"version": NEXT_MINOR})).await?;
        cluster.settled(2, NEXT_MINOR).await?;
        // What fails again and again is one event, which is counted.
        let nowhere = json!({"path": "mybucket/nowhere", "awsSecret": "nobody-made-it"});
        let failing = json!({"clusterRef": {"name": "c"}, "storageType": "S3", "s3": nowhere});
        desk.creates("EtcdBackup", "failing", failing).await?;
        let its = watcher::Config::default().fields("involvedObject.name=failing");
        wait_for_all(&test.api::<Event>(), its, LIMIT, "an event to be counted", |events| {
            events.iter().any(|event| event.count.is_some_and(|times| times > 1))
        })
        .await?;

        desk.follows_the_runbooks("c", "b").await?;
        // A cluster of the operator before is taken over, once that one does not run.
        let of_old = TestNamespace::new(lab, "wide-old").await?;
        of_old
            .run(async |of_old| -> Outcome {
                let spec = json!({"size": 3, "version": predecessor::VERSION, "paused": true});
                let inherited = Cluster::create(of_old, "c", spec).await?;
                predecessor::members(&inherited).await?;
                inherited.edit(json!({"paused": false})).await?;
                inherited.settled(3, predecessor::VERSION).await?;
                Ok(())
            })
            .await?;

        let asked = audit.asked("system:serviceaccount:etcd-operator:etcd-operator")?;
        assert!(asked.refused.is_empty(), "refused: {:#?}", asked.refused);
        let in_vain: Vec<_> = granted.difference(&asked.allowed).collect();
        assert!(in_vain.is_empty(), "granted, never used: {in_vain:#?}");

        let before = pod_uids(&cluster).await?;
        desk.follows("From all namespaces").await?;
        desk.left_nothing().await?;
        assert_eq!(pod_uids(&cluster).await?, before, "clusters do not go with the operator");
        desk.follows("With all clusters").await?;
        assert!(definitions(test).await?.is_empty());
        Ok(())
    })
    .await
    .unwrap();
}
