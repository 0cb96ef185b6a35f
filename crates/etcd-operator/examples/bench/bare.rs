//! The limit: members that are all known at the start, in bare pods, with nobody in between.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, ListParams, PostParams};
use lab::kit::TestNamespace;
use serde_json::json;

use crate::Outcome;
use crate::health::{self, healthy};

const NAME: &str = "bare";

/// From the first request to healthy members; then takes all of it away again.
pub async fn start(test: &TestNamespace<'_>, version: &str, size: usize) -> Outcome<Duration> {
    let names: Vec<String> = (1..=size).map(|number| format!("{NAME}-{number}")).collect();
    let peers: Vec<String> = names.iter().map(|name| format!("{name}={}", url(test, name, 2380))).collect();
    let service = service()?;
    let pods: Vec<Pod> = names
        .iter()
        .zip(test.lab.layout.node_names())
        .map(|(name, node)| pod(test, name, &node, version, &peers.join(",")))
        .collect::<Outcome<_>>()?;

    let began = Instant::now();
    test.api::<Service>().create(&PostParams::default(), &service).await?;
    for pod in &pods {
        test.api::<Pod>().create(&PostParams::default(), pod).await?;
    }
    let selector = format!("app={NAME}");
    healthy(test, &selector, size, None).await?;
    let took = began.elapsed();

    let at_once = DeleteParams::default().grace_period(0);
    test.api::<Pod>().delete_collection(&at_once, &ListParams::default().labels(&selector)).await?;
    test.api::<Service>().delete(NAME, &DeleteParams::default()).await?;
    health::none(test, &selector).await?;
    Ok(took)
}

fn url(test: &TestNamespace<'_>, name: &str, port: u16) -> String {
    format!("http://{name}.{NAME}.{}.svc:{port}", test.name)
}

/// Names in DNS before the pods are ready: they need each other to become so.
fn service() -> Outcome<Service> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": NAME},
            "ports": [{"name": "peer", "port": 2380}]},
    }))?)
}

/// As a static pod: its node is named, nobody has to choose one.
fn pod(test: &TestNamespace<'_>, name: &str, node: &str, version: &str, peers: &str) -> Outcome<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": NAME}},
        "spec": {
            "nodeName": node, "hostname": name, "subdomain": NAME, "automountServiceAccountToken": false,
            "containers": [{
                "name": "etcd", "image": api::v1beta2::image("", version),
                "command": ["/usr/local/bin/etcd", "--data-dir=/var/etcd/data", format!("--name={name}"),
                    format!("--initial-advertise-peer-urls={}", url(test, name, 2380)),
                    "--listen-peer-urls=http://0.0.0.0:2380", "--listen-client-urls=http://0.0.0.0:2379",
                    format!("--advertise-client-urls={}", url(test, name, 2379)),
                    format!("--initial-cluster={peers}"), "--initial-cluster-state=new",
                    format!("--initial-cluster-token={}", test.name)],
                "volumeMounts": [{"name": "data", "mountPath": "/var/etcd"}],
            }],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }))?)
}
