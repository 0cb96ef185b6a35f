//! `/metrics`, `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long open connections may delay a stop.
const GRACE: Duration = Duration::from_secs(2);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Error)]
pub enum ServerError {
    #[error("cannot listen on {address}, choose another --listen-addr: {source}")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error("the http server failed: {0}")]
    Serve(#[source] std::io::Error),
}

/// What must hold before this process is ready. Ready when every gate is open.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<Vec<(&'static str, bool)>>>);

impl Readiness {
    /// A new gate, closed; opened when its watch has synced, or when there is nothing to wait for.
    pub fn gate(&self, name: &'static str) -> Gate {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.push((name, false));
        Gate { all: self.clone(), index: gates.len() - 1 }
    }

    fn waiting_for(&self) -> Vec<&'static str> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().filter(|(_, open)| !open).map(|(name, _)| *name).collect()
    }
}

/// One thing to wait for.
#[derive(Debug)]
pub struct Gate {
    all: Readiness,
    index: usize,
}

impl Gate {
    pub fn set(&self, open: bool) {
        let mut gates = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, gate)) = gates.get_mut(self.index) {
            *gate = open;
        }
    }
}

#[derive(Clone)]
struct Shown {
    registry: Arc<Registry>,
    readiness: Readiness,
}

/// A bound server; binding apart from serving, so that a taken port is an error at start.
pub struct Server {
    listener: TcpListener,
    router: Router,
}

impl Server {
    pub async fn bind(
        address: SocketAddr,
        registry: Arc<Registry>,
        readiness: Readiness,
    ) -> Result<Self, ServerError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| ServerError::Bind { address, source })?;
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .with_state(Shown { registry, readiness });
        Ok(Self { listener, router })
    }

    /// Where it listens, with the port that was chosen if port 0 was asked for.
    pub fn address(&self) -> Result<SocketAddr, ServerError> {
        self.listener.local_addr().map_err(ServerError::Serve)
    }

    /// Serves until stopped, and lets answers that are under way finish.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), ServerError> {
        let graceful = axum::serve(self.listener, self.router)
            .with_graceful_shutdown(stop.clone().cancelled_owned())
            .into_future();
        let give_up = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = graceful => served.map_err(ServerError::Serve),
            () = give_up => Ok(()),
        }
    }
}

async fn metrics(State(shown): State<Shown>) -> Response {
    match crate::metrics::text(&shown.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn ready(State(shown): State<Shown>) -> Response {
    let waiting = shown.readiness.waiting_for();
    if waiting.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", waiting.join(", "))).into_response()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::metrics::Metrics;

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn serves_metrics_and_health_and_stops() {
        let mut registry = Registry::with_prefix("op");
        Metrics::register(&mut registry, "1.2.3");
        let readiness = Readiness::default();
        let (pods, clusters) = (readiness.gate("watch of pods"), readiness.gate("watch of clusters"));
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(any_port, Arc::new(registry), readiness).await.unwrap();
        let address = server.address().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.serve(stop.clone()));

        let metrics = fetch(address, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains(OPEN_METRICS), "{metrics}");
        assert!(metrics.contains(r#"op_build_info{version="1.2.3"} 1"#) && metrics.contains("# EOF"));
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));

        let waiting = fetch(address, "/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503"), "{waiting}");
        assert!(waiting.ends_with("waiting for: watch of pods, watch of clusters\n"), "{waiting}");
        pods.set(true);
        assert!(fetch(address, "/readyz").await.ends_with("waiting for: watch of clusters\n"));
        clusters.set(true);
        assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        pods.set(false);
        assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 503"), "may close again");

        let _open = TcpStream::connect(address).await.unwrap();
        stop.cancel();
        tokio::time::timeout(GRACE * 2, task)
            .await
            .expect("an idle connection delays no stop")
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = Server::bind(address, Arc::default(), Readiness::default()).await.err().unwrap();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(error.to_string().contains("--listen-addr"), "{error}");
    }
}
