//! The Deployment that this process runs in.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Api, Client, Resource};
use tracing::info;

/// The Deployment of that pod, for what is to go with it. None if the pod is nobody's, if there is no such pod, and where it may
/// not be read: that takes `get` of pods and deployments.
pub async fn deployment_of(client: &Client, namespace: &str, pod: &str) -> Option<OwnerReference> {
    let read = read(client, namespace, pod).await;
    read.inspect_err(|error| {
        info!(%error, pod, "the Deployment of this pod cannot be read: what is made for it will outlive it");
    })
    .ok()
    .flatten()
}

async fn read(client: &Client, namespace: &str, pod: &str) -> Result<Option<OwnerReference>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let Some(pod) = pods.get_metadata_opt(pod).await? else { return Ok(None) };
    let Some(name) = named_by(&pod.metadata) else { return Ok(None) };
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments.get_metadata_opt(&name).await?;
    Ok(deployment.and_then(|deployment| {
        Deployment { metadata: deployment.metadata, ..Deployment::default() }.owner_ref(&())
    }))
}

/// Its `ReplicaSet` carries the Deployment's name and the hash that the pod is labelled with: the right to read `ReplicaSets`,
/// which the book's role does not give, is not needed.
fn named_by(pod: &ObjectMeta) -> Option<String> {
    let owners = pod.owner_references.as_deref().unwrap_or_default();
    let set = owners.iter().find(|owner| owner.kind == "ReplicaSet" && owner.controller == Some(true))?;
    let hash = pod.labels.as_ref()?.get("pod-template-hash")?;
    set.name.strip_suffix(hash)?.strip_suffix('-').map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_names_its_deployment() {
        let of = |kind: &str, hash: &str| {
            let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": "my-op-5c9f", "uid": "u", "controller": true});
            let pod = json!({"labels": {"pod-template-hash": hash}, "ownerReferences": [owner]});
            named_by(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(of("ReplicaSet", "5c9f").as_deref(), Some("my-op"));
        assert_eq!(of("ReplicaSet", "other"), None);
        assert_eq!(of("StatefulSet", "5c9f"), None);
        assert_eq!(named_by(&ObjectMeta::default()), None);
    }
}
