//! Nodes: asked for one by one and only in trouble, since a quiet cluster needs none of it and often we may not.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Name, NodeState};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::time::Instant;
use tracing::{debug, warn};

const FRESH: Duration = Duration::from_secs(2);
/// A right that we lack is not asked for again at once.
const REFUSED: Duration = Duration::from_mins(5);

pub struct Nodes {
    api: Api<Node>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    refused: Option<Instant>,
    states: BTreeMap<Name, (Instant, NodeState)>,
}

impl Nodes {
    pub fn new(client: Client) -> Self {
        Self { api: Api::all(client), seen: Mutex::default() }
    }

    pub async fn state(&self, name: &Name) -> NodeState {
        if let Some(state) = self.remembered(name) {
            return state;
        }
        let state = match self.api.get_opt(name.as_str()).await {
            Ok(Some(node)) if is_ready(&node) => NodeState::Ready,
            Ok(Some(_)) => NodeState::NotReady,
            Ok(None) => NodeState::Gone,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                debug!("nodes may not be read: pods and members alone decide");
                self.lock().refused = Some(Instant::now());
                NodeState::Unknown
            }
            Err(error) => {
                warn!(node = %name, %error, "the node could not be read");
                NodeState::Unread
            }
        };
        self.lock().states.insert(name.clone(), (Instant::now(), state));
        state
    }

    fn remembered(&self, name: &Name) -> Option<NodeState> {
        let mut seen = self.lock();
        if seen.refused.is_some_and(|at| at.elapsed() < REFUSED) {
            return Some(NodeState::Unknown);
        }
        seen.states.retain(|_, (at, _)| at.elapsed() < FRESH);
        seen.states.get(name).map(|(_, state)| *state)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
