//! The cluster that everything else is built from.

use api::{EtcdCluster, labels::Labels, names::Zone, v1beta2::PodPolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::template_hash;

/// Why nothing can be built from an `EtcdCluster`.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("the EtcdCluster has no {0}: it was not read from the API server")]
    Missing(&'static str),
    #[error("spec.pod cannot be hashed: {0}")]
    Hash(#[from] serde_json::Error),
}

/// An `EtcdCluster` as the API server gave it to us, with what every builder needs of it.
#[derive(Clone, Debug)]
pub struct Cluster<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub zone: Zone,
    /// What [`crate::member_pod`] notes on new pods: another value on a pod means that it is to be rolled out.
    pub template_hash: String,
    pub(crate) pod: &'a PodPolicy,
    repository: &'a str,
    pub(crate) owner: OwnerReference,
}

impl<'a> Cluster<'a> {
    pub fn of(cluster: &'a EtcdCluster) -> Result<Self, ClusterError> {
        let name = cluster.metadata.name.as_deref().ok_or(ClusterError::Missing("name"))?;
        let namespace = cluster.metadata.namespace.as_deref().ok_or(ClusterError::Missing("namespace"))?;
        let owner = cluster.controller_owner_ref(&()).ok_or(ClusterError::Missing("uid"))?;
        let pod = cluster.spec.pod();
        Ok(Self {
            name,
            namespace,
            zone: Zone::new(name, namespace, &pod.cluster_domain),
            template_hash: template_hash(pod)?,
            pod,
            repository: &cluster.spec.repository,
            owner,
        })
    }

    /// Image of one version; on the way to `spec.version` members run others.
    pub fn image(&self, version: &str) -> String {
        api::v1beta2::image(self.repository, version)
    }

    /// Metadata of an object that goes when the cluster goes.
    pub(crate) fn owned(&self, name: String, labels: Labels) -> ObjectMeta {
        ObjectMeta { owner_references: Some(vec![self.owner.clone()]), ..self.unowned(name, labels) }
    }

    /// Metadata of an object that outlives the cluster.
    pub(crate) fn unowned(&self, name: String, labels: Labels) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_cluster_that_was_never_stored_builds_nothing() {
        for (missing, clear) in [
            ("name", (|meta| meta.name = None) as fn(&mut ObjectMeta)),
            ("namespace", |meta| meta.namespace = None),
            ("uid", |meta| meta.uid = None),
        ] {
            let mut cluster = fixture::plain();
            clear(&mut cluster.metadata);
            let error = Cluster::of(&cluster).unwrap_err();
            assert!(error.to_string().contains(missing), "{error}");
        }
    }
}
