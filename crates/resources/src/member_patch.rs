//! What changes on a member's pod after it was made: its image, and what its metadata says of it. Each patch names the
//! pod's UID, so that it never reaches another pod of that name.

use api::{annotations, labels};
use serde_json::{Map, Value, json};

use crate::{CONTAINER, Cluster};

/// Strategic merge patch that moves a pod to another version in place: the kubelet restarts the container on its data. It
/// names the resource version that was seen, so that it is refused if the pod changed since.
pub fn image_patch(cluster: &Cluster<'_>, uid: &str, seen: Option<&str>, version: &str) -> Value {
    json!({
        "metadata": {"uid": uid, "resourceVersion": seen, "annotations": {annotations::VERSION: version}},
        "spec": {"containers": [{"name": CONTAINER, "image": cluster.image(version)}]},
    })
}

/// Merge patch for a member that has started. `disarm`: should its data be lost, the member exits instead of starting
/// anew. `serve`: clients reach it, and the budget counts it.
pub fn mark_patch(uid: &str, disarm: bool, serve: bool) -> Value {
    let mut metadata = Map::from_iter([("uid".to_owned(), json!(uid))]);
    if disarm {
        let disarmed = json!({
            annotations::INITIAL_CLUSTER_STATE: annotations::STATE_EXISTING,
            annotations::INITIAL_CLUSTER: annotations::DISARMED,
            annotations::STARTED: "true",
        });
        metadata.insert("annotations".to_owned(), disarmed);
    }
    if serve {
        metadata.insert("labels".to_owned(), json!({labels::SERVING: labels::SERVING_TRUE}));
    }
    json!({"metadata": metadata})
}

/// Merge patch for a pod that an operator before ours made: it counts as made of the template of now.
pub fn adopt_patch(cluster: &Cluster<'_>, uid: &str, claim: Option<&str>) -> Value {
    let annotations = json!({
        annotations::TEMPLATE_HASH: cluster.template_hash,
        annotations::VOLUME_UID: claim,
    });
    json!({"metadata": {"uid": uid, "annotations": annotations}})
}

/// Merge patch for a member that no client is to reach any more.
pub fn stop_serving_patch(uid: &str) -> Value {
    json!({"metadata": {"uid": uid, "labels": {labels::SERVING: null}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn an_upgrade_changes_image_and_version_of_this_pod_alone() {
        let cluster = fixture::plain();
        assert_eq!(
            image_patch(&Cluster::of(&cluster).unwrap(), "u-1", Some("7"), "3.2.13"),
            json!({
                "metadata": {"uid": "u-1", "resourceVersion": "7", "annotations": {"etcd.version": "3.2.13"}},
                "spec": {"containers": [{"name": "etcd", "image": "quay.io/coreos/etcd:v3.2.13"}]},
            })
        );
    }

    #[test]
    fn marks_are_one_patch() {
        let disarmed = json!({
            "etcd.database.coreos.com/initial-cluster-state": "existing",
            "etcd.database.coreos.com/initial-cluster": "data-lost=http://data-lost.invalid:2380",
            "etcd.database.coreos.com/started": "true",
        });
        let serving = json!({"etcd.database.coreos.com/serving": "true"});
        for (disarm, serve, metadata) in [
            (true, true, json!({"uid": "u", "annotations": disarmed, "labels": serving})),
            (true, false, json!({"uid": "u", "annotations": disarmed})),
            (false, true, json!({"uid": "u", "labels": serving})),
        ] {
            assert_eq!(mark_patch("u", disarm, serve), json!({"metadata": metadata}));
        }
    }
}
