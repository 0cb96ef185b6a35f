//! The CEL rules of EtcdBackup and EtcdRestore, one by one: what passes, and what the refusal says.
#![allow(clippy::unwrap_used, clippy::expect_used)] // every line here is a test

use std::{fs, path::Path};

use api::crd::{etcd_backup_crd, etcd_restore_crd};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::cel::{ValidationErrors, Validator, compile_schema};
use rstest::rstest;
use serde_json::{Value, json};

fn schema(crd: CustomResourceDefinition) -> Value {
    let crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn backup(spec: &Value) -> Result<(), ValidationErrors> {
    let object = json!({"kind": "EtcdBackup", "metadata": {"name": "b"}, "spec": spec});
    Validator::new().validate(&schema(etcd_backup_crd()), &object, None)
}

fn restore(name: &str, spec: &Value) -> Result<(), ValidationErrors> {
    let object = json!({"kind": "EtcdRestore", "metadata": {"name": name}, "spec": spec});
    Validator::new().validate(&schema(etcd_restore_crd()), &object, None)
}

/// To S3, of a cluster by its name, with `field` (as `s3.path`) set to `value`; null takes it out.
fn with(field: &str, value: Value) -> Value {
    let mut spec =
        json!({"clusterRef": {"name": "c"}, "storageType": "S3", "s3": {"path": "b/k", "awsSecret": "aws"}});
    let mut at = &mut spec;
    let mut names = field.split('.').peekable();
    while let Some(name) = names.next() {
        let fields = at.as_object_mut().unwrap();
        if names.peek().is_none() {
            if value.is_null() {
                fields.remove(name);
            } else {
                fields.insert(name.to_owned(), value);
            }
            break;
        }
        at = fields.entry(name).or_insert_with(|| json!({}));
    }
    spec
}

#[track_caller]
fn assert_refused(result: Result<(), ValidationErrors>, message: &str) {
    let errors = result.expect_err("accepted").into_vec();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].message.contains(message), "{errors:?}");
}

#[rstest]
#[case(etcd_backup_crd())]
#[case(etcd_restore_crd())]
fn every_rule_compiles(#[case] crd: CustomResourceDefinition) {
    let compiled = compile_schema(&schema(crd));
    assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
}

fn example(path: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../example");
    let filled = fs::read_to_string(root.join(path))
        .unwrap()
        .replace("<full-s3-path>", "mybucket/etcd.backup")
        .replace("<aws-secret>", "aws")
        .replace("<etcd-cluster-endpoints>", "\"http://example-etcd-cluster-client:2379\"");
    serde_saphyr::from_str(&filled).unwrap()
}

#[rstest]
#[case("etcd-backup-operator/backup_cr.yaml", etcd_backup_crd())]
#[case("etcd-backup-operator/periodic_backup_cr.yaml", etcd_backup_crd())]
#[case("etcd-restore-operator/restore_cr.yaml", etcd_restore_crd())]
fn accepts_the_examples(#[case] path: &str, #[case] crd: CustomResourceDefinition) {
    Validator::new().validate(&schema(crd), &example(path), None).unwrap();
}

#[rstest]
#[case("suspend", json!(true))]
#[case("schedule", json!("0 3 * * *"))]
#[case("backupPolicy", json!({"backupIntervalInSecond": 60, "maxBackups": 3, "maxAgeSeconds": 60, "timeoutInSecond": 9}))]
#[case("s3.path", json!("b/a/deep/key"))]
#[case("s3.awsSecret", Value::Null)]
#[case("volume", json!({"claimName": "etcd-backups", "path": "a/..b/etcd.backup"}))]
fn accepts(#[case] field: &str, #[case] value: Value) {
    backup(&with(field, value)).unwrap();
}

#[rstest]
#[case("storageType", json!("FTP"), "must be S3, ABS, GCS or Volume")]
#[case("storageType", json!("ABS"), "must say where to")]
#[case("storageType", json!("GCS"), "must say where to")]
#[case("storageType", json!("Volume"), "must say where to")]
#[case("clusterRef", Value::Null, "either clusterRef")]
#[case("etcdEndpoints", json!(["http://a:2379"]), "not both")]
#[case("s3.path", json!("bucket"), "such as mybucket/etcd.backup")]
#[case("s3.path", json!("bucket/"), "such as mybucket/etcd.backup")]
#[case("s3.path", json!("/key"), "such as mybucket/etcd.backup")]
#[case("abs", json!({"path": "container"}), "such as mycontainer/etcd.backup")]
#[case("gcs", json!({"path": "bucket"}), "such as mybucket/etcd.backup")]
#[case("volume", json!({"claimName": "../etc", "path": "k"}), "such as etcd-backups")]
#[case("volume", json!({"claimName": "c", "path": "../k"}), "below the root")]
#[case("volume", json!({"claimName": "c", "path": "a/../../k"}), "below the root")]
#[case("volume", json!({"claimName": "c", "path": "a/"}), "below the root")]
#[case("volume", json!({"claimName": "c", "path": ""}), "below the root")]
#[case("timeZone", json!("Europe/Berlin"), "write a schedule, too")]
#[case("backupPolicy.maxBackups", json!(-1), "0 or more")]
#[case("backupPolicy.maxAgeSeconds", json!(-1), "0 or more")]
#[case("backupPolicy.timeoutInSecond", json!(-1), "0 or more")]
#[case("backupPolicy.backupIntervalInSecond", json!(-1), "0 or more")]
fn refuses(#[case] field: &str, #[case] value: Value, #[case] message: &str) {
    assert_refused(backup(&with(field, value)), message);
}

#[test]
fn refuses_endpoints_that_are_no_urls_and_two_schedules() {
    let mut spec = with("clusterRef", Value::Null);
    spec["etcdEndpoints"] = json!(["c-client:2379"]);
    assert_refused(backup(&spec), "must be a URL");
    spec["etcdEndpoints"] = json!(["http://c-client:2379/v3"]);
    assert_refused(backup(&spec), "must be a URL");
    spec["etcdEndpoints"] = json!(["http://c-client:2379", "http://c-client:2379/"]);
    assert!(backup(&spec).is_ok(), "with or without a slash");
    let mut spec = with("schedule", json!("0 3 * * *"));
    spec["backupPolicy"] = json!({"backupIntervalInSecond": 60});
    assert_refused(backup(&spec), "either schedule or");
}

#[rstest]
#[case("c", json!({}), None)]
#[case("other", json!({}), Some("must be the name of the EtcdCluster"))]
#[case("c", json!({"backupStorageType": "FTP"}), Some("must be S3, ABS, GCS or Volume"))]
#[case("c", json!({"backupStorageType": "ABS"}), Some("must say where the backup is"))]
#[case("c", json!({"s3": {"path": "bucket"}}), Some("such as mybucket/etcd.backup"))]
#[case("c", json!({"clusterTemplate": {"size": 0}}), Some("1 to 7"))]
#[case("c", json!({"clusterTemplate": {"size": 3}, "force": true}), None)]
fn restores(#[case] name: &str, #[case] over: Value, #[case] message: Option<&str>) {
    let mut spec = json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": {"path": "b/k", "awsSecret": "aws"}});
    for (field, value) in over.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let result = restore(name, &spec);
    match message {
        None => result.unwrap(),
        Some(message) => assert_refused(result, message),
    }
}
