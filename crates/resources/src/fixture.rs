//! Clusters for tests, as the API server would give them.

use api::EtcdCluster;
use serde_json::{Value, json};

/// The book's cluster: nothing said but size and version.
pub fn plain() -> EtcdCluster {
    with_pod(&Value::Null)
}

/// The same with `spec.pod`.
pub fn with_pod(pod: &Value) -> EtcdCluster {
    let cluster = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {
            "name": "example-etcd-cluster", "namespace": "default", "uid": "cb6b66c6-fe08-4f76-98e3-f4e3ead167b5"
        },
        "spec": {"size": 3, "version": "3.1.10", "pod": pod},
    });
    serde_json::from_value(cluster).unwrap()
}

/// As people read it.
pub fn yaml(object: &impl serde::Serialize) -> String {
    serde_saphyr::to_string(object).unwrap()
}
