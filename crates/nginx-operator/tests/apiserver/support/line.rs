//! A client whose requests are counted, and cut at a place of the test's choice.

use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::rough::{rough, smooth, unknown};

const MIGRATOR: &str = "/storagemigration.k8s.io/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The process dies when this write, counted from 1, has been done.
    DieAfter(usize),
    /// This write is done and its answer is lost.
    LoseAnswerOf(usize),
    /// This write is refused with a server error and not done.
    Refuse(usize),
    /// Every event of every watch is late and told twice, and many are not told at all.
    RoughWatches,
}

#[derive(Clone, Default)]
pub struct Line(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    died: CancellationToken,
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    migrator_hidden: bool,
    writes: usize,
    requests: Vec<String>,
}

impl Line {
    pub fn new(fault: Fault) -> Self {
        let line = Self::default();
        line.0.state.lock().unwrap().fault = Some(fault);
        line
    }

    /// To an API server that does not know `StorageVersionMigration`s.
    pub fn without_migrator(fault: Fault) -> Self {
        let line = Self::new(fault);
        line.0.state.lock().unwrap().migrator_hidden = true;
        line
    }

    /// `METHOD path?query` of each request so far, leases apart.
    pub fn requests(&self) -> Vec<String> {
        self.0.state.lock().unwrap().requests.clone()
    }

    /// Completes when the process would have died.
    pub async fn died(&self) {
        self.0.died.cancelled().await;
    }

    pub fn client(&self, client: &Client) -> Client {
        let (line, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (line, inner) = (line.clone(), inner.clone());
            async move {
                let hit = line.hits(&request);
                let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                if let Some(Fault::Refuse(_)) = hit {
                    return Err(BoxError::from("refused by the test"));
                }
                if line.0.state.lock().unwrap().migrator_hidden && request.uri().path().contains(MIGRATOR) {
                    return Ok(unknown());
                }
                let answer = inner.send(request).await.map_err(BoxError::from);
                match hit {
                    Some(Fault::DieAfter(_)) => {
                        line.0.died.cancel();
                        std::future::pending().await
                    }
                    Some(Fault::LoseAnswerOf(_)) => Err(BoxError::from("the answer was lost by the test")),
                    _ if watch && line.rough() => answer.map(rough),
                    _ => answer.map(smooth),
                }
            }
        });
        Client::new(service, client.default_namespace())
    }

    fn rough(&self) -> bool {
        self.0.state.lock().unwrap().fault == Some(Fault::RoughWatches)
    }

    /// The fault, if it is this request's. Leases and questions about rights are no writes of the loop.
    fn hits(&self, request: &Request<Body>) -> Option<Fault> {
        let path = request.uri().to_string();
        if ["/leases", "selfsubjectaccessreviews"].iter().any(|other| path.contains(other)) {
            return None;
        }
        let mut state = self.0.state.lock().unwrap();
        state.requests.push(format!("{} {path}", request.method()));
        if request.method() == Method::GET {
            return None;
        }
        state.writes += 1;
        let now = state.writes;
        state.fault.filter(|fault| match fault {
            Fault::None | Fault::RoughWatches => false,
            Fault::DieAfter(at) | Fault::LoseAnswerOf(at) | Fault::Refuse(at) => *at == now,
        })
    }
}
