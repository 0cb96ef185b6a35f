//! The webhook's HTTPS server. The certificate changes under it without a connection being lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::nginx::crd::WEBHOOK_PATH;
use api::nginx::{Version, conversion};
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use axum::{Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kube::core::Status;
use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// A list is converted in one piece: room for tens of thousands of objects.
const MAX_BODY: usize = 64 << 20;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long open connections may delay a stop.
const GRACE: Duration = Duration::from_secs(2);
/// Out of file descriptors, for example: trying on at once would only burn the processor.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
#[error("cannot listen on {address}, choose another --webhook-addr: {source}")]
pub struct WebhookServerError {
    address: SocketAddr,
    source: std::io::Error,
}

pub struct Server {
    listener: TcpListener,
}

type Config = Option<Arc<ServerConfig>>;

impl Server {
    pub async fn bind(address: SocketAddr) -> Result<Self, WebhookServerError> {
        let bound = TcpListener::bind(address).await;
        Ok(Self { listener: bound.map_err(|source| WebhookServerError { address, source })? })
    }

    /// What is sent here last is served; before the first, connections wait.
    pub fn channel(&self) -> (watch::Sender<Config>, watch::Receiver<Config>) {
        watch::channel(None)
    }

    pub async fn serve(self, config: watch::Receiver<Config>, stop: CancellationToken) {
        let router = Router::new().route(WEBHOOK_PATH, post(convert)).layer(DefaultBodyLimit::max(MAX_BODY));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let serve = connection(stream, config.clone(), router.clone(), stop.clone());
                    connections.spawn(serve);
                }
                Err(error) => {
                    warn!(%error, "the webhook could not accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        connections.close();
        if tokio::time::timeout(GRACE, connections.wait()).await.is_err() {
            debug!("connections of the webhook were still open");
        }
    }
}

async fn connection(
    stream: TcpStream,
    mut config: watch::Receiver<Config>,
    router: Router,
    stop: CancellationToken,
) {
    let handshake = async {
        let config = config.wait_for(Option::is_some).await.ok()?.clone()?;
        TlsAcceptor::from(config)
            .accept(stream)
            .await
            .inspect_err(|error| debug!(%error, "no handshake"))
            .ok()
    };
    let Ok(Some(stream)) = tokio::time::timeout(HANDSHAKE, handshake).await else { return };
    let builder = Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        debug!(error, "a connection of the webhook ended");
    }
}

async fn convert(Json(review): Json<ConversionReview>) -> Json<ConversionReview> {
    let request = match ConversionRequest::from_review(review) {
        Ok(request) => request,
        Err(error) => {
            let refused = Status::failure(&error.to_string(), "InvalidRequest");
            return Json(ConversionResponse::invalid(refused).into_review());
        }
    };
    let desired = request.desired_api_version.clone();
    let Some(version) = Version::of_api_version(&desired) else {
        let message =
            format!("{desired:?} is no version of NginxOperator that this operator knows; upgrade it");
        let refused = Status::failure(&message, "UnknownVersion");
        return Json(ConversionResponse::for_request(request).failure(refused).into_review());
    };
    let converted: Result<Vec<_>, _> =
        request.objects.iter().cloned().map(|object| conversion::convert(object, version)).collect();
    let response = ConversionResponse::for_request(request);
    Json(match converted {
        Ok(objects) => response.success(objects).into_review(),
        Err(error) => response.failure(Status::failure(&error.to_string(), "NotConvertible")).into_review(),
    })
}
