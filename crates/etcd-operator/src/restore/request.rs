//! The request: what is written onto the EtcdCluster, and that nothing changed since it was decided.

use api::v1beta2::{EtcdCluster, EtcdRestore, RestoreRequest};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use snapshot::StoreSource;
use thiserror::Error;

use super::look::Backup;
use crate::store::source;
use crate::tenure::Tenure;

#[derive(Debug, Error)]
pub enum RequestError {
    #[error(
        "the image of this operator is not known: start it with --image, or let MY_POD_NAME and MY_POD_NAMESPACE name its pod"
    )]
    NoImage,
    #[error("there is no spec to make the EtcdCluster from")]
    NoSpec,
    #[error("the EtcdRestore names no store that is known")]
    NoStore,
    #[error("the EtcdCluster was changed meanwhile")]
    Changed,
    #[error("Kubernetes refused: {0}")]
    Kubernetes(#[source] kube::Error),
}

impl RequestError {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoImage => "NoImage",
            Self::NoSpec => "NoClusterSpec",
            Self::NoStore => "NoStore",
            Self::Changed => "Changed",
            Self::Kubernetes(_) => "KubernetesRefused",
        }
    }

    /// Tried again. What the API server finds invalid stays so: a saved spec that today's rules refuse.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Kubernetes(kube::Error::Api(status)) => ![400, 422].contains(&status.code),
            Self::Changed | Self::Kubernetes(_) => true,
            Self::NoImage | Self::NoSpec | Self::NoStore => false,
        }
    }
}

pub async fn compose(
    tenure: &Tenure,
    restore: &EtcdRestore,
    backup: &Backup,
) -> Result<RestoreRequest, RequestError> {
    let store = restore.spec.store().map_err(|_| RequestError::NoStore)?;
    let mut place = source(store, &tenure.volumes);
    let mut claim = None;
    if let (StoreSource::Volume { root, .. }, api::v1beta2::Store::Volume(volume)) = (&mut place, store) {
        *root = resources::BACKUP_PATH.into();
        claim = Some(volume.claim_name.clone());
    }
    Ok(RestoreRequest {
        uid: restore.uid().unwrap_or_default(),
        name: restore.name_any(),
        image: image(tenure).await?,
        source: json!(place),
        secret: store.secret().map(str::to_owned),
        claim,
        etcd_version: backup.version.map(|version| version.to_string()),
        digest: backup.contents.digest.clone(),
    })
}

/// The image that this process runs from, as its own pod says.
async fn image(tenure: &Tenure) -> Result<String, RequestError> {
    if let Some(image) = &tenure.image {
        return Ok(image.clone());
    }
    let pods: Api<Pod> = Api::namespaced(tenure.client.clone(), &tenure.namespace);
    let pod = pods.get_opt(&tenure.pod).await.map_err(RequestError::Kubernetes)?;
    let containers = pod.and_then(|pod| pod.spec).map(|spec| spec.containers).unwrap_or_default();
    containers.into_iter().find_map(|container| container.image).ok_or(RequestError::NoImage)
}

/// A cluster that is not there is made with the request on it, so that it never begins without.
pub async fn write(
    tenure: &Tenure,
    restore: &EtcdRestore,
    cluster: Option<&EtcdCluster>,
    backup: &Backup,
    request: &RestoreRequest,
) -> Result<(), RequestError> {
    let namespace = restore.namespace().unwrap_or_default();
    let api: Api<EtcdCluster> = Api::namespaced(tenure.client.clone(), &namespace);
    let name = &restore.spec.etcd_cluster.name;
    let written = if let Some(cluster) = cluster {
        let patch = json!({"metadata": {
            "resourceVersion": cluster.metadata.resource_version,
            "annotations": request.annotation(),
        }});
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    } else {
        let spec = restore.spec.cluster_template.clone().or(backup.spec.clone());
        let mut cluster = EtcdCluster::new(name, spec.ok_or(RequestError::NoSpec)?);
        cluster.metadata.annotations = Some(request.annotation());
        api.create(&PostParams::default(), &cluster).await
    };
    match written {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Err(RequestError::Changed),
        Err(error) => Err(RequestError::Kubernetes(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use rstest::rstest;

    #[rstest]
    #[case::unreadable(400, false)]
    #[case::invalid(422, false)]
    #[case::forbidden(403, true)]
    #[case::busy(429, true)]
    #[case::broken(500, true)]
    fn what_is_invalid_is_not_asked_again(#[case] code: u16, #[case] passing: bool) {
        let refused = Status::failure("spec.size is out of range", "Invalid").with_code(code);
        let error = RequestError::Kubernetes(kube::Error::Api(Box::new(refused)));
        assert_eq!(error.is_passing(), passing);
        assert!(error.to_string().contains("spec.size is out of range"), "{error}");
    }
}
