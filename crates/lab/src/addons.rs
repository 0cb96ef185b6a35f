//! What every lab runs inside: DNS and volumes. Applied like any user's manifests, through the API server.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::IPAddress;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::error::{Error, Result};
use crate::kit::wait_for;
use crate::layout::{DNS_SERVICE, Layout};
use crate::net::netns_path;
use crate::node::Node;
use crate::process::run;
use crate::wait::until;

const COREDNS: &str = include_str!("../../../lab/manifests/coredns.yaml");
const VOLUMES: &str = include_str!("../../../lab/manifests/volumes.yaml");

/// Objects that are as they should be are left alone by the API server.
pub async fn apply(lab: &Layout, client: &Client) -> Result<()> {
    free_dns_address(client).await?;
    for object in documents(COREDNS)?.into_iter().chain(documents(VOLUMES)?).chain([volume_folders(lab)?]) {
        let name = object.name_any();
        let api = api_of(client, &object)?;
        api.patch(&name, &PatchParams::apply("lab").force(), &Patch::Apply(&object)).await?;
    }
    Ok(())
}

/// The API server gives a Service its address first: an `up` that was killed just then left the address taken, and no Service.
async fn free_dns_address(client: &Client) -> Result<()> {
    let addresses: Api<IPAddress> = Api::all(client.clone());
    let Some(taken) = addresses.get_opt(&DNS_SERVICE.to_string()).await? else { return Ok(()) };
    let owner = taken.spec.map(|spec| spec.parent_ref).unwrap_or_default();
    let services: Api<Service> = Api::namespaced(client.clone(), &owner.namespace.unwrap_or_default());
    if services.get_opt(&owner.name).await?.is_none() {
        addresses.delete(&taken.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Each node has a folder of its own: no node sees another's data.
fn volume_folders(lab: &Layout) -> Result<DynamicObject> {
    let paths: Vec<_> = Node::all(lab).map(|n| json!({"node": n.name(), "paths": [n.volumes()]})).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "local-path-nodes", "namespace": "kube-system"},
        "data": {"config.json": json!({"nodePathMap": paths}).to_string()},
    });
    serde_json::from_value(map).map_err(|e| Error::other("volume folders", e))
}

fn documents(yaml: &str) -> Result<Vec<DynamicObject>> {
    serde_saphyr::from_multiple(yaml).map_err(|e| Error::other("manifest", e))
}

fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().ok_or_else(|| Error::other("manifest", "an object without kind"))?;
    let gvk = GroupVersionKind::try_from(types).map_err(|e| Error::other("manifest", e))?;
    let resource = ApiResource::from_gvk(&gvk);
    Ok(match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// DNS answers once kube-proxy knows the Service and CoreDNS serves: asked from a node, as a pod would.
async fn dns_answers(lab: &Layout) -> Result<()> {
    let net = format!("--net={}", netns_path(&lab.node_netns(1)).display());
    let server = DNS_SERVICE.to_string();
    until("DNS", Duration::from_mins(3), async || {
        let asked = run(&[
            "nsenter",
            &net,
            "timeout",
            "1",
            "busybox",
            "nslookup",
            "kubernetes.default.svc.cluster.local",
            &server,
        ]);
        Ok(asked.map(drop).map_err(|e| e.to_string()))
    })
    .await
}

/// DNS answers and a claim would be served.
pub async fn ready(lab: &Layout, client: &Client) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
    wait_for(&deployments, "local-path", Duration::from_mins(3), "to provision volumes", |deployment| {
        deployment.status.as_ref().and_then(|status| status.available_replicas).is_some_and(|n| n > 0)
    })
    .await?;
    dns_answers(lab).await
}
