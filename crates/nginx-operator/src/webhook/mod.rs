//! The conversion webhook: every replica serves it, with a certificate that looks after itself.
//!
//! The certificate lives in a Secret, its authority in the CRD. A new one takes three steps, and at no moment does the
//! API server meet a certificate that it does not trust: the Secret gets the new certificate, the CRD gets the new
//! authority beside the old one, and only then do the replicas, woken by the change of the CRD, serve it.

pub mod certificate;
pub mod definition;
pub mod secret;
pub mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::nginx::CRD_NAME;
use api::nginx::crd::WEBHOOK_SERVICE;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use runtime::backoff::{Policy, until_ok};
use runtime::lease::deployment_of;
use runtime::rights::{self, Need, RightsError};
use runtime::server::Gate;
use thiserror::Error;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use certificate::{Certificate, CertificateError};
use definition::DefinitionError;
use secret::SecretError;
use server::{Server, WebhookServerError};

/// After a change of the CRD, until the API server itself, and every other one beside it, has surely heard of it.
const SETTLE: Duration = Duration::from_secs(3);

const RETRY: Policy = Policy { first: Duration::from_millis(500), most: Duration::from_secs(30) };

/// `cluster-role.yaml` and `webhook-role.yaml` grant these.
pub const NEEDS: [Need; 4] = [
    Need::cluster("apiextensions.k8s.io", "customresourcedefinitions", &["get", "list", "watch", "patch"])
        .named(CRD_NAME),
    Need::namespaced("", "secrets", &["get", "update"]).named(WEBHOOK_SERVICE),
    Need::namespaced("", "secrets", &["create"]),
    Need::cluster("apiextensions.k8s.io", "customresourcedefinitions/status", &["patch"]).named(CRD_NAME),
];

#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// The namespace that the operator runs in: its Service and its Secret are there.
    pub home: String,
    /// The pod that it runs in.
    pub pod_name: String,
    /// How long a certificate is good for; it is renewed when two thirds are over.
    pub life: Duration,
}

#[derive(Debug, Error)]
pub enum WebhookError {
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

pub struct Webhook {
    client: Client,
    settings: Settings,
    server: Server,
    ready: Gate,
}

impl Webhook {
    /// Bound apart from serving, so that a taken port is an error at start.
    pub async fn bind(client: Client, settings: Settings, ready: Gate) -> Result<Self, WebhookServerError> {
        let server = Server::bind(settings.listen).await?;
        Ok(Self { client, settings, server, ready })
    }

    pub async fn run(self, stop: CancellationToken) {
        let Self { client, settings, server, ready } = self;
        let (serve, served) = server.channel();
        let keep = async {
            let needs = until_ok(RETRY, &stop, "the check of the webhook's rights", || {
                rights::require(&client, &NEEDS, Some(&settings.home))
            });
            if needs.await.is_some() {
                keep(&client, &settings, &serve, &ready, &stop).await;
            }
        };
        tokio::join!(server.serve(served, stop.clone()), keep);
    }
}

/// Brings Secret, CRD and server in line, again at every change of the CRD and when it is time to renew.
async fn keep(
    client: &Client,
    settings: &Settings,
    serve: &tokio::sync::watch::Sender<Option<Arc<ServerConfig>>>,
    ready: &Gate,
    stop: &CancellationToken,
) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &settings.home);
    let changes = watcher::watch_object(crds.clone(), CRD_NAME).default_backoff();
    let mut changes = std::pin::pin!(changes);
    let owner = deployment_of(client, &settings.home, &settings.pod_name).await;
    let mut served: Option<Certificate> = None;
    let mut crd = None;
    loop {
        let aligned = until_ok(RETRY, stop, "looking after the webhook's certificate", || {
            align(&crds, &secrets, settings, owner.as_ref(), crd.as_ref(), served.as_ref())
        });
        let Some(Aligned { certificate, config, trusted }) = aligned.await else { return };
        let due =
            Duration::try_from(certificate.renew_after.duration_since(Timestamp::now())).unwrap_or_default();
        // Without any, one that is not trusted yet is better than none.
        if served.as_ref() != Some(&certificate) && (trusted || served.is_none()) {
            if served.is_some() && stop.run_until_cancelled(tokio::time::sleep(SETTLE)).await.is_none() {
                return;
            }
            info!(renew_after = %certificate.renew_after, "serving conversion with this certificate");
            serve.send_replace(Some(config));
            ready.set(true);
            served = Some(certificate);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(due) => {}
            change = changes.next() => match change {
                Some(Ok(now)) => crd = now,
                Some(Err(error)) => warn!(%error, "the watch of the CRD broke; it is set up again"),
                None => return,
            },
        }
    }
}

struct Aligned {
    certificate: Certificate,
    config: Arc<ServerConfig>,
    /// Whether the API server trusts it, as far as it has to.
    trusted: bool,
}

/// One pass. The order matters: first the Secret, then the CRD, and what comes back is served.
async fn align(
    crds: &Api<CustomResourceDefinition>,
    secrets: &Api<Secret>,
    settings: &Settings,
    owner: Option<&OwnerReference>,
    crd: Option<&CustomResourceDefinition>,
    served: Option<&Certificate>,
) -> Result<Aligned, WebhookError> {
    let certificate =
        secret::current(secrets, &settings.home, settings.life, owner, Timestamp::now(), served).await?;
    let config = certificate.server_config()?;
    let trusted = match crd {
        Some(crd) => definition::inject(crds, crd, &settings.home, &certificate.authorities).await?,
        None => true,
    };
    Ok(Aligned { certificate, config, trusted })
}
