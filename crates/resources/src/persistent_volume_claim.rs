//! The volume of a member.

use api::{labels, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use crate::Cluster;

/// The claim of `member`, if the spec asks for volumes. It goes with the cluster, unless the spec retains it.
pub fn persistent_volume_claim(cluster: &Cluster<'_>, member: &str) -> Option<PersistentVolumeClaim> {
    let spec = cluster.pod.persistent_volume_claim_spec.clone()?;
    let name = names::volume_claim(member);
    let labels = labels::of_member(cluster.name, member);
    let retained = cluster.pod.retention().retains_when_deleted();
    let metadata = if retained { cluster.unowned(name, labels) } else { cluster.owned(name, labels) };
    Some(PersistentVolumeClaim { metadata, spec: Some(spec), status: None })
}

/// Merge patch for a claim that exists: it goes with the cluster, or stays. One of another UID, or that changed since it had
/// this resource version, is left alone.
pub fn owner_patch(cluster: &Cluster<'_>, uid: &str, resource_version: Option<&str>, owned: bool) -> Value {
    let owners = owned.then_some([&cluster.owner]);
    json!({"metadata": {"uid": uid, "resourceVersion": resource_version, "ownerReferences": owners}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn an_edit_gives_a_claim_the_owner_that_it_would_have_been_made_with() {
        let cluster = fixture::plain();
        let cluster = Cluster::of(&cluster).unwrap();
        let metadata = |owners: Value| json!({"metadata": {"uid": "u-1", "resourceVersion": "7", "ownerReferences": owners}});
        assert_eq!(owner_patch(&cluster, "u-1", Some("7"), true), metadata(json!([cluster.owner])));
        assert_eq!(owner_patch(&cluster, "u-1", Some("7"), false), metadata(Value::Null));
    }
}
