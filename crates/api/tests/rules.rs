//! The CEL rules of the CRD, one by one: what passes, and what the refusal says.
#![allow(clippy::unwrap_used, clippy::expect_used)] // every line here is a test

use std::{fs, path::Path};

use api::{EtcdCluster, crd::etcd_cluster_crd};
use kube::core::cel::{ValidationErrors, Validator};
use rstest::rstest;
use serde_json::{Value, json};

fn schema() -> Value {
    let crd = serde_json::to_value(etcd_cluster_crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn cluster(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": name}, "spec": spec
    })
}

/// A cluster of three with `field` (as `pod.labels`) set to `value`.
fn with(field: &str, value: Value) -> Value {
    let nested = field.rsplit('.').fold(value, |value, name| json!({name: value}));
    let mut spec = json!({"size": 3, "repository": "quay.io/coreos/etcd", "version": "3.5.16"});
    json_merge(&mut spec, nested);
    spec
}

fn json_merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn create(name: &str, spec: &Value) -> Result<(), ValidationErrors> {
    Validator::new().validate(&schema(), &cluster(name, spec), None)
}

fn update(old: &Value, new: &Value) -> Result<(), ValidationErrors> {
    Validator::new().validate(&schema(), &cluster("c", new), Some(&cluster("c", old)))
}

#[track_caller]
fn assert_refused(result: Result<(), ValidationErrors>, message: &str) {
    let errors = result.expect_err("accepted").into_vec();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].message.contains(message), "{errors:?}");
}

fn env(name: &str) -> Value {
    json!([{"name": "ETCD_QUOTA_BACKEND_BYTES", "value": "1"}, {"name": name, "value": "x"}])
}

fn volume(storage: &str) -> Value {
    with("pod.persistentVolumeClaimSpec", json!({"resources": {"requests": {"storage": storage}}}))
}

#[test]
fn every_rule_compiles() {
    let compiled = kube::core::cel::compile_schema(&schema());
    assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
}

#[rstest]
#[case("example/example-etcd-cluster.yaml")]
#[case("example/ch03/etcd-cluster-cr.yaml")]
fn accepts_the_examples(#[case] path: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example: EtcdCluster = serde_saphyr::from_str(&fs::read_to_string(root.join(path)).unwrap()).unwrap();
    let example = serde_json::to_value(example).unwrap();
    Validator::new().validate(&schema(), &example, None).unwrap();
}

#[rstest]
#[case("size", json!(1))]
#[case("size", json!(7))]
#[case("version", json!("3.1.10"))]
#[case("version", json!("v3.6.0"))]
#[case("version", json!(""))]
#[case("repository", json!("localhost:5000/etcd"))]
#[case("memberUnresponsiveSeconds", json!(10))]
#[case("pod.labels", json!({"application": "x", "etcd": "y"}))]
#[case("pod.annotations", json!({"etcd.io/version": "x"}))]
#[case("pod.etcdEnv", env("ETCD_AUTO_COMPACTION_RETENTION"))]
#[case("pod.etcdEnv", env("ETCD_NAMED"))]
#[case("pod.DNSTimeoutInSecond", json!(0))]
#[case("TLS.static", json!({"member": {"peerSecret": "p"}}))]
#[case("TLS.static", json!({"member": {"serverSecret": "s"}, "operatorSecret": "o"}))]
#[case("TLS.static", json!({"member": {"serverSecret": ""}, "operatorSecret": ""}))]
fn accepts(#[case] field: &str, #[case] value: Value) {
    create("c", &with(field, value)).unwrap();
}

#[rstest]
#[case("size", json!(0), "3 or 5")]
#[case("size", json!(-1), "3 or 5")]
#[case("size", json!(8), "1 to 7")]
#[case("version", json!("3.5"), "such as 3.5.16")]
#[case("version", json!("latest"), "such as 3.5.16")]
#[case("version", json!("3.5.16-rc.1"), "such as 3.5.16")]
#[case("version", json!("vv3.5.16"), "such as 3.5.16")]
#[case("version", json!("3.05.1"), "such as 3.5.16")]
#[case("repository", json!("quay.io/coreos/etcd:v3.5.16"), "such as quay.io/coreos/etcd")]
#[case("repository", json!("quay.io/coreos/etcd@sha256:00"), "such as quay.io/coreos/etcd")]
#[case("memberUnresponsiveSeconds", json!(9), "10 to 86400")]
#[case("memberUnresponsiveSeconds", json!(86401), "10 to 86400")]
#[case("pod.labels", json!({"app": "x"}), "choose other names")]
#[case("pod.labels", json!({"etcd_cluster": "x"}), "choose other names")]
#[case("pod.labels", json!({"etcd.database.coreos.com/serving": "true"}), "choose other names")]
#[case("pod.annotations", json!({"etcd.version": "x"}), "choose other names")]
#[case("pod.annotations", json!({"etcd.database.coreos.com/initial-cluster": "x"}), "choose other names")]
#[case("pod.etcdEnv", env("ETCD_NAME"), "take out")]
#[case("pod.etcdEnv", env("ETCD_DATA_DIR"), "take out")]
#[case("pod.etcdEnv", env("ETCD_WAL_DIR"), "take out")]
#[case("pod.etcdEnv", env("ETCD_INITIAL_CLUSTER"), "take out")]
#[case("pod.etcdEnv", env("ETCD_INITIAL_CLUSTER_TOKEN"), "take out")]
#[case("pod.etcdEnv", env("ETCD_LISTEN_CLIENT_URLS"), "take out")]
#[case("pod.etcdEnv", env("ETCD_ADVERTISE_CLIENT_URLS"), "take out")]
#[case("pod.etcdEnv", env("ETCD_DISCOVERY_SRV"), "take out")]
#[case("pod.etcdEnv", env("ETCD_CONFIG_FILE"), "take out")]
#[case("pod.etcdEnv", env("ETCD_PROXY"), "take out")]
#[case("pod.etcdEnv", env("ETCD_MAX_LEARNERS"), "take out")]
#[case("pod.etcdEnv", env("INITIAL_CLUSTER"), "take out")]
#[case("pod.etcdEnv", env("INITIAL_CLUSTER_STATE"), "take out")]
#[case("pod.etcdEnv", env("ETCD_FORCE_NEW_CLUSTER"), "EtcdRestore")]
#[case("pod.etcdEnv", env("ETCD_STRICT_RECONFIG_CHECK"), "EtcdRestore")]
#[case("pod.etcdEnv", env("ETCD_UNSAFE_NO_FSYNC"), "EtcdRestore")]
#[case("pod.DNSTimeoutInSecond", json!(-1), "0 to 3600")]
#[case("TLS.static", json!({"operatorSecret": "o"}), "write both")]
#[case("TLS.static", json!({"member": {"peerSecret": "p"}, "operatorSecret": "o"}), "write both")]
#[case("TLS.static", json!({"member": {"serverSecret": "s"}}), "write both")]
fn refuses(#[case] field: &str, #[case] value: Value, #[case] message: &str) {
    assert_refused(create("c", &with(field, value)), message);
}

#[rstest]
#[case("example-etcd-cluster", None)]
#[case(&"c".repeat(52), None)]
#[case(&"c".repeat(53), Some("at most 52"))]
#[case("my.etcd", Some("such as my-etcd"))]
#[case("1etcd", Some("such as my-etcd"))]
fn names(#[case] name: &str, #[case] message: Option<&str>) {
    let result = create(name, &with("size", json!(3)));
    match message {
        None => result.unwrap(),
        Some(message) => assert_refused(result, message),
    }
}

#[rstest]
#[case(with("size", json!(3)), with("size", json!(5)), None)]
#[case(volume("1Gi"), volume("1Gi"), None)]
#[case(volume("1Gi"), volume("2Gi"), Some("cannot be changed"))]
#[case(with("size", json!(3)), volume("1Gi"), Some("neither added"))]
#[case(volume("1Gi"), with("pod.labels", json!({"a": "b"})), Some("neither added"))]
#[case(volume("1Gi"), with("size", json!(3)), Some("neither added"))]
#[case(with("pod.labels", json!({"a": "b"})), with("pod.ClusterDomain", json!("x")), Some("every member's address"))]
#[case(with("pod.ClusterDomain", json!("x")), with("size", json!(3)), Some("every member's address"))]
#[case(with("pod.ClusterDomain", json!("x")), with("pod.ClusterDomain", json!("x")), None)]
fn edits(#[case] old: Value, #[case] new: Value, #[case] message: Option<&str>) {
    let result = update(&old, &new);
    match message {
        None => result.unwrap(),
        Some(message) => assert_refused(result, message),
    }
}
