//! A fresh backup before a new minor, where an EtcdBackup names the cluster.

use kube::ResourceExt;
use kube::api::ListParams;
use lab::kit::{TestNamespace, shared_lab};
use serde_json::json;

use super::BOTH;
use super::fixture::{Backup, manifests, put, secret};
use crate::support::{Cluster, LIMIT, Operator, Outcome};

/// Waited for while it fails, and said so; then made, of the old version. Suspended, it is done without, and that is said.
#[tokio::test]
async fn a_new_minor_waits_for_a_fresh_backup() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "before").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start_with(test, &[BOTH])?;
        let cluster = Cluster::create(test, "c", json!({"size": 1, "version": "3.4.15"})).await?;
        cluster.settled(1, "3.4.15").await?;
        put(&cluster, "k", "v").await?;
        let path = format!("mybucket/{}/etcd.backup", test.name);
        // The first names the cluster; this machine finds it by the second.
        let mut endpoints = vec!["http://c-client:2379".to_owned()];
        endpoints.extend(cluster.endpoints().await?.into_iter().map(|address| format!("http://{address}")));
        let nightly = json!({
            "schedule": "0 3 1 1 *", "etcdEndpoints": endpoints, "s3": {"path": path, "awsSecret": "late"},
        });
        let nightly = Backup::once(&cluster, "nightly", nightly).await?;

        cluster.edit(json!({"version": "3.5.16"})).await?;
        let waits = |status: &api::EtcdClusterStatus| {
            status.reason.contains("waits for EtcdBackup nightly-before-3.5.16")
                && status.reason.contains("there is no Secret")
                && status.reason.contains("suspend EtcdBackup nightly")
        };
        let status = cluster.says("to wait for its backup", LIMIT, waits).await?;
        assert_eq!(status.current_version, "3.4.15");
        secret(test, "late", json!({})).await?;
        cluster.settled(1, "3.5.16").await?;
        let copies = nightly.api().list(&ListParams::default()).await?.items;
        let copy = copies.iter().find(|one| one.name_any() != "nightly").ok_or("no copy was made")?;
        let made = copy.status.clone().unwrap_or_default();
        assert!(made.succeeded && made.etcd_version == "3.4.15" && made.keys == 1, "{made:?}");
        let kept = manifests(test, &path).await?;
        assert!(kept.iter().any(|one| one.object.contains("etcd.backup-before-3.5.16-g")), "{kept:?}");

        nightly.edit(json!({"suspend": true})).await?;
        cluster.edit(json!({"version": "3.6.16"})).await?;
        cluster.settled(1, "3.6.16").await?;
        let told = cluster.told("No Backup").await?;
        let [said] = told.as_slice() else { return Err(format!("{told:?}").into()) };
        assert!(said.contains("no EtcdBackup names this cluster") && said.contains("3.6.16"), "{said}");
        assert_eq!(manifests(test, &path).await?.len(), kept.len(), "no other was made");
        Ok(())
    })
    .await
    .unwrap();
}
