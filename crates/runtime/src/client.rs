//! The way to the Kubernetes API: time limits, counting, a name, and the check that the server is not too old.

mod observe;

use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use thiserror::Error;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use crate::metrics::Metrics;
pub use observe::{Observe, ObserveLayer, Stack, Target, TimedOut};

/// The oldest Kubernetes that we test and whose API types we are compiled for.
pub const MINIMUM_VERSION: Version = Version { major: 1, minor: 33 };

/// Longer than any answer takes, a watch's apart; shorter than a person's patience.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A watch may be silent for minutes: only the kernel can tell a quiet server from a cut line.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// An operator needs few connections at once; idle ones cost memory on both ends.
const IDLE_CONNECTIONS: usize = 2;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error(
        "no way to a Kubernetes API was found; set KUBECONFIG, or run in a pod with a service account: {0}"
    )]
    NoConfig(#[source] kube::config::InferConfigError),
    #[error("the configuration of the Kubernetes client is not usable: {0}")]
    BadConfig(#[source] kube::Error),
    #[error(
        "the way to the Kubernetes API leads through proxy {0}, which is not supported; unset HTTPS_PROXY or proxy-url"
    )]
    Proxy(Uri),
    #[error("user agent {0:?} is not a valid header value")]
    BadUserAgent(String),
    #[error("cannot ask the Kubernetes API for its version: {0}")]
    NoVersion(#[source] kube::Error),
    #[error("the Kubernetes API calls its version {0:?}, which is not understood")]
    UnreadableVersion(String),
    #[error("Kubernetes {found} is too old: this operator needs {minimum} or later; upgrade the cluster")]
    TooOld { found: Version, minimum: Version },
}

/// The configuration from `KUBECONFIG`, else from the pod that we run in.
pub async fn infer_config() -> Result<Config, ClientError> {
    Config::infer().await.map_err(ClientError::NoConfig)
}

/// A stack to build a client from: `builder(…)?.build()`, or with more layers first.
///
/// Nothing is repeated here: a reconcile that fails looks again before it writes; a blind repeat does not.
pub fn builder(
    mut config: Config,
    user_agent: &str,
    metrics: Metrics,
) -> Result<ClientBuilder<Stack>, ClientError> {
    if let Some(proxy) = config.proxy_url {
        return Err(ClientError::Proxy(proxy));
    }
    let agent =
        HeaderValue::from_str(user_agent).map_err(|_| ClientError::BadUserAgent(user_agent.to_owned()))?;
    config.headers.push((USER_AGENT, agent));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(ClientError::BadConfig)?)
        .layer(config.extra_headers_layer().map_err(ClientError::BadConfig)?)
        .map_err(BoxError::from)
        .service(http_client(&config)?)
        .boxed();
    let builder = ClientBuilder::new(service, config.default_namespace);
    Ok(builder.with_layer(&ObserveLayer::new(metrics, REQUEST_TIMEOUT)))
}

fn http_client(
    config: &Config,
) -> Result<HttpClient<impl Connect + Clone + Send + Sync + use<>, Body>, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(PROBE_AFTER));
    tcp.set_keepalive_interval(Some(PROBE_EVERY));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp.set_tcp_user_timeout(Some(PROBE_AFTER + PROBES * PROBE_EVERY));
    let tls = config.rustls_https_connector_with_connector(tcp).map_err(ClientError::BadConfig)?;
    let mut http = HttpClient::builder(TokioExecutor::new());
    Ok(http.pool_max_idle_per_host(IDLE_CONNECTIONS).build(tls))
}

/// A Kubernetes version, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// Some providers write the minor as `33+`.
    fn parse(major: &str, minor: &str) -> Option<Self> {
        let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

/// The server's version, or why we do not work with it.
pub async fn check_version(client: &Client, minimum: Version) -> Result<Version, ClientError> {
    let info = client.apiserver_version().await.map_err(ClientError::NoVersion)?;
    let found = Version::parse(&info.major, &info.minor)
        .ok_or_else(|| ClientError::UnreadableVersion(info.git_version.clone()))?;
    if found < minimum {
        return Err(ClientError::TooOld { found, minimum });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_providers_write_them_and_compared_as_numbers() {
        assert_eq!(Version::parse("1", "33+"), Some(MINIMUM_VERSION));
        assert!(Version::parse("1", "9").unwrap() < MINIMUM_VERSION);
        assert!(Version::parse("1", "100").unwrap() > MINIMUM_VERSION);
        assert_eq!(Version::parse("1", ""), None);
        let old = ClientError::TooOld { found: Version { major: 1, minor: 9 }, minimum: MINIMUM_VERSION };
        assert_eq!(
            old.to_string(),
            "Kubernetes 1.9 is too old: this operator needs 1.33 or later; upgrade the cluster"
        );
    }
}
