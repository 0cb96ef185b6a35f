//! The volume of a member.

use api::{labels, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

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
