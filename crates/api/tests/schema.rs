//! The schema of the CRD: every field of coreos, structural, strict, and described.
#![allow(clippy::unwrap_used, clippy::expect_used)] // every line here is a test

use api::crd::{etcd_backup_crd, etcd_cluster_crd, etcd_restore_crd};
use api::{EtcdBackup, EtcdCluster, EtcdRestore};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rstest::rstest;
use serde_json::{Value, json};

fn schema() -> Value {
    schema_of(etcd_cluster_crd())
}

fn schema_of(crd: CustomResourceDefinition) -> Value {
    let crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn field<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(schema, |node, name| match name {
        "[]" => &node["items"],
        name => &node["properties"][name],
    })
}

/// Calls `check` for the schema itself and everything in it, with the path to it.
fn walk(path: &str, node: &Value, check: &mut impl FnMut(&str, &Value)) {
    check(path, node);
    for (name, child) in node["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), child, check);
    }
    for key in ["items", "additionalProperties"] {
        if node[key].is_object() {
            walk(&format!("{path}.{key}"), &node[key], check);
        }
    }
}

#[rstest]
#[case("spec.size", "integer")]
#[case("spec.version", "string")]
#[case("spec.repository", "string")]
#[case("spec.paused", "boolean")]
#[case("spec.memberUnresponsiveSeconds", "integer")]
#[case("spec.pod.labels", "object")]
#[case("spec.pod.annotations", "object")]
#[case("spec.pod.nodeSelector", "object")]
#[case("spec.pod.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution", "array")]
#[case("spec.pod.antiAffinity", "boolean")]
#[case("spec.pod.resources.limits", "object")]
#[case("spec.pod.tolerations.[].tolerationSeconds", "integer")]
#[case("spec.pod.etcdEnv.[].valueFrom.secretKeyRef.key", "string")]
#[case("spec.pod.persistentVolumeClaimSpec.storageClassName", "string")]
#[case("spec.pod.persistentVolumeClaimRetentionPolicy.whenDeleted", "string")]
#[case("spec.pod.persistentVolumeClaimRetentionPolicy.whenScaled", "string")]
#[case("spec.pod.busyboxImage", "string")]
#[case("spec.pod.securityContext.runAsUser", "integer")]
#[case("spec.pod.DNSTimeoutInSecond", "integer")]
#[case("spec.pod.ClusterDomain", "string")]
#[case("spec.TLS.static.member.peerSecret", "string")]
#[case("spec.TLS.static.member.serverSecret", "string")]
#[case("spec.TLS.static.operatorSecret", "string")]
#[case("status.phase", "string")]
#[case("status.reason", "string")]
#[case("status.controlPaused", "boolean")]
#[case("status.conditions.[].type", "string")]
#[case("status.conditions.[].status", "string")]
#[case("status.conditions.[].reason", "string")]
#[case("status.conditions.[].message", "string")]
#[case("status.conditions.[].lastTransitionTime", "string")]
#[case("status.conditions.[].lastUpdateTime", "string")]
#[case("status.conditions.[].observedGeneration", "integer")]
#[case("status.size", "integer")]
#[case("status.readyMembers", "integer")]
#[case("status.selector", "string")]
#[case("status.serviceName", "string")]
#[case("status.clientPort", "integer")]
#[case("status.members.ready", "array")]
#[case("status.members.unready", "array")]
#[case("status.currentVersion", "string")]
#[case("status.targetVersion", "string")]
#[case("status.clusterID", "string")]
#[case("status.leader", "string")]
#[case("status.dbSize", "string")]
#[case("status.observedGeneration", "integer")]
fn has_the_field(#[case] path: &str, #[case] type_: &str) {
    assert_eq!(field(&schema(), path)["type"], type_, "{path}");
}

#[rstest]
#[case("spec.etcdEndpoints", "array")]
#[case("spec.clusterRef.name", "string")]
#[case("spec.storageType", "string")]
#[case("spec.backupPolicy.timeoutInSecond", "integer")]
#[case("spec.backupPolicy.backupIntervalInSecond", "integer")]
#[case("spec.backupPolicy.maxBackups", "integer")]
#[case("spec.backupPolicy.maxAgeSeconds", "integer")]
#[case("spec.schedule", "string")]
#[case("spec.timeZone", "string")]
#[case("spec.suspend", "boolean")]
#[case("spec.clientTLSSecret", "string")]
#[case("spec.s3.path", "string")]
#[case("spec.s3.awsSecret", "string")]
#[case("spec.s3.endpoint", "string")]
#[case("spec.s3.forcePathStyle", "boolean")]
#[case("spec.abs.path", "string")]
#[case("spec.abs.absSecret", "string")]
#[case("spec.gcs.path", "string")]
#[case("spec.gcs.gcpSecret", "string")]
#[case("spec.volume.claimName", "string")]
#[case("spec.volume.path", "string")]
#[case("status.succeeded", "boolean")]
#[case("status.Reason", "string")]
#[case("status.etcdVersion", "string")]
#[case("status.etcdRevision", "integer")]
#[case("status.lastSuccessDate", "string")]
#[case("status.conditions.[].type", "string")]
fn backup_has_the_field(#[case] path: &str, #[case] type_: &str) {
    assert_eq!(field(&schema_of(etcd_backup_crd()), path)["type"], type_, "{path}");
}

#[rstest]
#[case("spec.etcdCluster.name", "string")]
#[case("spec.backupStorageType", "string")]
#[case("spec.s3.path", "string")]
#[case("spec.s3.awsSecret", "string")]
#[case("spec.abs.absSecret", "string")]
#[case("spec.gcs.gcpSecret", "string")]
#[case("spec.volume.claimName", "string")]
#[case("spec.force", "boolean")]
#[case("spec.clusterTemplate.size", "integer")]
#[case("status.succeeded", "boolean")]
#[case("status.reason", "string")]
#[case("status.conditions.[].type", "string")]
fn restore_has_the_field(#[case] path: &str, #[case] type_: &str) {
    assert_eq!(field(&schema_of(etcd_restore_crd()), path)["type"], type_, "{path}");
}

#[rstest]
#[case(etcd_cluster_crd())]
#[case(etcd_backup_crd())]
#[case(etcd_restore_crd())]
fn is_structural_strict_and_not_nullable(#[case] crd: CustomResourceDefinition) {
    walk("", &schema_of(crd), &mut |path, node| {
        let typed = node["type"].is_string() || node["x-kubernetes-int-or-string"] == json!(true);
        assert!(typed, "{path} has no type");
        for forbidden in
            ["x-kubernetes-preserve-unknown-fields", "nullable", "$ref", "anyOf", "oneOf", "allOf"]
        {
            assert!(node.get(forbidden).is_none(), "{path} has {forbidden}");
        }
        let anything_goes =
            node["additionalProperties"] == json!(true) || node["additionalProperties"] == json!({});
        assert!(!anything_goes, "{path} takes unknown fields");
        // Kubernetes warns about other formats each time that the CRD is created.
        if let Some(format) = node["format"].as_str() {
            assert!(["int32", "int64", "date-time"].contains(&format), "{path} has format {format}");
        }
    });
}

#[rstest]
#[case(etcd_cluster_crd(), &["", ".spec", ".spec.pod", ".spec.TLS", ".spec.TLS.static", ".status", ".status.members"])]
#[case(etcd_backup_crd(), &["", ".spec", ".spec.backupPolicy", ".spec.s3", ".spec.volume", ".status", ".status.progress"])]
#[case(etcd_restore_crd(), &["", ".spec", ".spec.etcdCluster", ".spec.s3", ".spec.volume", ".status"])]
fn describes_every_field_of_ours(#[case] crd: CustomResourceDefinition, #[case] ours: &[&str]) {
    walk("", &schema_of(crd), &mut |path, node| {
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        if ours.contains(&parent) {
            assert!(
                node["description"].as_str().is_some_and(|text| text.len() > 10),
                "{path} has no description"
            );
        }
    });
}

#[test]
fn defaults_are_the_ones_that_the_book_shows() {
    let spec = &schema()["properties"]["spec"];
    let defaults: Vec<_> = spec["properties"]
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(name, field)| Some((name.as_str(), field.get("default")?.clone())))
        .collect();
    assert_eq!(defaults, [("repository", json!("quay.io/coreos/etcd")), ("version", json!("3.2.13"))]);
    assert_eq!(spec["required"], json!(["size"]));
}

#[test]
fn reasons_of_conditions_may_have_spaces() {
    let schema = schema();
    assert!(field(&schema, "status.conditions.[].reason").get("pattern").is_none());
    let conditions = field(&schema, "status.conditions");
    assert_eq!(conditions["x-kubernetes-list-type"], "map");
    assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
}

#[test]
fn names_columns_and_subresources() {
    let crd = serde_json::to_value(etcd_cluster_crd()).unwrap();
    assert_eq!(crd["metadata"]["name"], "etcdclusters.etcd.database.coreos.com");
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    assert_eq!(
        crd["spec"]["names"],
        json!({"kind": "EtcdCluster", "listKind": "EtcdClusterList", "plural": "etcdclusters",
               "singular": "etcdcluster", "shortNames": ["etcdclus", "etcd"]})
    );
    let version = &crd["spec"]["versions"][0];
    assert_eq!(
        (&version["name"], &version["served"], &version["storage"]),
        (&json!("v1beta2"), &json!(true), &json!(true))
    );
    assert_eq!(
        version["subresources"],
        json!({"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size",
                                       "labelSelectorPath": ".status.selector"}})
    );
    let columns = |priority: i64| -> Vec<&str> {
        let all = version["additionalPrinterColumns"].as_array().unwrap().iter();
        all.filter(|column| column["priority"].as_i64().unwrap_or(0) == priority)
            .filter_map(|column| column["name"].as_str())
            .collect()
    };
    assert_eq!(columns(0), ["Size", "Ready", "Version", "Target", "Phase", "Age"]);
    assert_eq!(columns(1), ["Leader", "DB Size"]);
}

#[test]
fn types_keep_everything_that_coreos_wrote() {
    let written = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "example-etcd-cluster", "namespace": "default"},
        "spec": {
            "repository": "quay.io/coreos/etcd", "size": 3, "version": "3.2.13", "paused": true,
            "pod": {
                "labels": {"a": "b"}, "annotations": {"c": "d"}, "nodeSelector": {"disk": "ssd"},
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"etcd_cluster": "x"}}}]}},
                "antiAffinity": true,
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "etcdEnv": [{"name": "ETCD_QUOTA_BACKEND_BYTES", "value": "1"}],
                "persistentVolumeClaimSpec": {"accessModes": ["ReadWriteOnce"],
                                              "resources": {"requests": {"storage": "1Gi"}}},
                "busyboxImage": "busybox:1.36", "securityContext": {"runAsUser": 9000},
                "DNSTimeoutInSecond": 30, "ClusterDomain": ".cluster.local"
            },
            "TLS": {"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}
        },
        "status": {
            "clientPort": 2379, "controlPaused": true, "phase": "Running", "reason": "because",
            "conditions": [
                {"type": "Available", "status": "True", "reason": "Cluster available",
                 "lastTransitionTime": "2026-11-15T09:49:31Z", "lastUpdateTime": "2026-11-15T09:49:31Z"},
                {"type": "Upgrading", "status": "True", "reason": "Cluster upgrading", "message": "upgrading to 3.2.13",
                 "lastTransitionTime": "2026-11-15T09:51:21Z", "lastUpdateTime": "2026-11-15T09:51:21Z"}],
            "currentVersion": "3.1.10", "targetVersion": "3.2.13",
            "members": {"ready": ["a", "b"], "unready": ["c"]},
            "serviceName": "example-etcd-cluster-client", "size": 3, "readyMembers": 2
        }
    });
    let cluster: EtcdCluster = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(cluster).unwrap(), written);
}

#[test]
fn a_cluster_that_says_nothing_but_its_size_shows_only_the_defaults() {
    let cluster: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "c"},
        "spec": {"size": 3}
    }))
    .unwrap();
    let spec = serde_json::to_value(cluster.spec).unwrap();
    assert_eq!(spec, json!({"size": 3, "repository": "quay.io/coreos/etcd", "version": "3.2.13"}));
}

#[test]
fn types_keep_everything_that_coreos_wrote_of_backups_and_restores() {
    let store = json!({"path": "mybucket/etcd.backup", "awsSecret": "aws", "endpoint": "http://s3:9000", "forcePathStyle": true});
    let backup = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup", "metadata": {"name": "b"},
        "spec": {
            "etcdEndpoints": ["http://example-etcd-cluster-client:2379"], "storageType": "S3", "clientTLSSecret": "t",
            "backupPolicy": {"timeoutInSecond": 60, "backupIntervalInSecond": 30, "maxBackups": 5}, "s3": store,
            "abs": {"path": "c/k", "absSecret": "abs"}, "gcs": {"path": "b/k", "gcpSecret": "gcp"}
        },
        "status": {"succeeded": false, "Reason": "because", "etcdVersion": "3.2.13", "etcdRevision": 7,
                   "lastSuccessDate": "2026-11-15T09:49:31Z"}
    });
    let read: EtcdBackup = serde_json::from_value(backup.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), backup);
    let restore = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore", "metadata": {"name": "c"},
        "spec": {"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": store},
        "status": {"succeeded": true, "reason": "because"}
    });
    let read: EtcdRestore = serde_json::from_value(restore.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), restore);
}
