//! How a lab is: every component with its process and its health.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Api, ListParams};
use serde::Serialize;

use crate::control::{Control, answers_inside, processes};
use crate::error::Result;
use crate::layout::Layout;
use crate::node::{Agent, Node, PROXY_HEALTH};
use crate::up;

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub component: String,
    pub node: String,
    pub pid: Option<i32>,
    pub age_seconds: Option<u64>,
    pub health: Health,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Healthy,
    /// The process runs, but does not answer or is not Ready.
    Unhealthy,
    Stopped,
}

impl Health {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Stopped => "stopped",
        }
    }
}

pub async fn status(lab: &Layout) -> Result<Vec<Row>> {
    let api = api_answers(lab).await;
    let answers = |component: Control| match component {
        Control::ApiServer => api,
        other => other.answers(lab),
    };
    let mut rows: Vec<Row> =
        Control::of(lab).into_iter().map(|c| row(lab, c.name(), "control", || answers(c))).collect();
    let ready = if api { ready_nodes(lab).await } else { vec![] };
    for node in Node::all(lab) {
        let name = node.name();
        for agent in Agent::ALL {
            let answers = || match agent {
                Agent::Containerd => UnixStream::connect(node.containerd_socket()).is_ok(),
                Agent::Kubelet => ready.contains(&name),
                Agent::Proxy => answers_inside(&lab.node_netns(node.number), PROXY_HEALTH),
            };
            rows.push(row(lab, &node.component(agent), &name, answers));
        }
    }
    Ok(rows)
}

fn row(lab: &Layout, component: &str, node: &str, answers: impl FnOnce() -> bool) -> Row {
    let process = processes(lab).alive(component);
    let health = match &process {
        None => Health::Stopped,
        Some(_) if answers() => Health::Healthy,
        Some(_) => Health::Unhealthy,
    };
    Row {
        component: component.to_owned(),
        node: node.to_owned(),
        pid: process.as_ref().map(|p| p.pid),
        age_seconds: process.and_then(|p| p.age()).map(|a| a.as_secs()),
        health,
    }
}

/// A server that is paused still takes connections.
async fn api_answers(lab: &Layout) -> bool {
    let asked = async { up::readyz(&up::client(lab).await?).await };
    matches!(tokio::time::timeout(Duration::from_secs(2), asked).await, Ok(Ok(_)))
}

/// Without an API server no node counts as Ready: that is what a user of the cluster would see.
async fn ready_nodes(lab: &Layout) -> Vec<String> {
    let list = async {
        let api: Api<KubeNode> = Api::all(up::client(lab).await?);
        Ok::<_, crate::error::Error>(api.list(&ListParams::default()).await?.items)
    };
    let nodes = tokio::time::timeout(Duration::from_secs(5), list).await;
    let nodes = nodes.ok().and_then(Result::ok).unwrap_or_default();
    nodes.iter().filter(|n| up::is_ready(n)).filter_map(|n| n.metadata.name.clone()).collect()
}
