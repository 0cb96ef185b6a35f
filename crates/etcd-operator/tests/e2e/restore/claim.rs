//! Backups on a claim: the operator runs in a pod that mounts it, and so does the seed.

use std::path::Path;

use kube::api::DeleteParams;
use lab::kit::{TestNamespace, gone, shared_lab};
use lab::wait::until;
use serde_json::json;

use super::writes::{self, Writes};
use super::{NAME, VERSION, ask, first_write, succeeds};
use crate::heal::volume;
use crate::support::{Cluster, LIMIT, Outcome};

const CLAIM: &str = "etcd-backups";

fn in_time() -> String {
    format!("--timeout={}s", LIMIT.as_secs())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_a_claim_and_back() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "claim").await.unwrap();
    let role = format!("{}-admin", test.name);
    test.run(async |test| -> Outcome {
        test.lab.publish(Path::new(env!("CARGO_BIN_EXE_etcd-operator")))?;
        deploy(test, &role).await?;
        let cluster = Cluster::create(test, NAME, json!({"size": 1, "version": VERSION})).await?;
        cluster.settled(1, VERSION).await?;
        let writes = Writes::start(&cluster);
        let promised = writes.some(100).await?;
        writes.stop().await?;
        let backup = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": "backup"},
            "spec": {"clusterRef": {"name": NAME}, "storageType": "Volume",
                "volume": {"claimName": CLAIM, "path": "prod/etcd.backup"}},
        });
        until("the EtcdBackup", LIMIT, async || {
            let applied = test.kubectl_with_input(&["apply", "-f", "-"], &backup.to_string()).await;
            Ok(applied.map_err(|error| error.to_string()))
        })
        .await?;
        let succeeded = "--for=jsonpath={.status.succeeded}=true";
        test.kubectl(&["wait", succeeded, &in_time(), "etcdbackup/backup"]).await?;

        cluster.api().delete(NAME, &DeleteParams::default()).await?;
        gone(&cluster.api(), NAME, LIMIT).await?;
        let from = json!({
            "backupStorageType": "Volume", "s3": null,
            "volume": {"claimName": CLAIM, "path": "prod/etcd.backup"},
        });
        ask(test, "", from).await?;
        succeeds(test).await?;
        cluster.settled(1, VERSION).await?;
        writes::all_there(&cluster, promised).await?;
        first_write(&cluster).await?;
        test.kubectl(&["delete", "clusterrolebinding", &role]).await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// All three controllers in one pod, with the claim where `--volumes` expects it.
async fn deploy(test: &TestNamespace<'_>, role: &str) -> Outcome {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let pod = json!({
        "containers": [{
            "name": "etcd-operator", "image": "quay.io/coreos/etcd-operator:latest",
            "command": ["etcd-operator", "--controllers=cluster,backup,restore"],
            "env": [field("MY_POD_NAME", "metadata.name"), field("MY_POD_NAMESPACE", "metadata.namespace")],
            "volumeMounts": [{"name": "backups", "mountPath": format!("/var/lib/etcd-backups/{CLAIM}")}],
        }],
        "volumes": [{"name": "backups", "persistentVolumeClaim": {"claimName": CLAIM}}],
    });
    let labels = json!({"name": "etcd-operator"});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": test.name}]},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": volume()},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "etcd-operator"},
            "spec": {"selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod}}},
    ]});
    test.kubectl_with_input(&["apply", "-f", "-"], &objects.to_string()).await?;
    test.kubectl(&["rollout", "status", &in_time(), "deployment/etcd-operator"]).await?;
    Ok(())
}
