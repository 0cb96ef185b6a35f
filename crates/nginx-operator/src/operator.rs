//! The process: who leads, what it may do, which version of the API it works with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::nginx::Version;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use prometheus_client::registry::Registry;
use runtime::backoff::{Backoff, Policy, until_ok};
use runtime::client::{MINIMUM_VERSION, check_version};
use runtime::events::{Recorder, Severity};
use runtime::lease::{Config as LeaseConfig, Election, Identity, Leadership, Timing, deployment_of};
use runtime::metrics::Metrics;
use runtime::rights::{self, Need};
use runtime::server::{Readiness, Server, ServerError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Operands;
use crate::operand::{AssetError, Assets};
use crate::reconcile::Context;
use crate::source::{Scope, served};
use crate::watches::Loop;
use crate::webhook::server::WebhookServerError;
use crate::webhook::{self, Webhook};
use crate::written::Written;
use crate::{NAME, storage};

/// Until something that others must do is done: soon, and not for ever longer.
const PATIENT: Policy = Policy { first: Duration::from_millis(500), most: Duration::from_secs(5) };
/// For one instance whose reconcile fails.
const RETRY: Policy = Policy { first: Duration::from_millis(500), most: Duration::from_mins(1) };

/// The rights that the loop cannot do without; `role.yaml` grants them.
pub const NEEDS: [Need; 7] = [
    Need::namespaced("operator.example.com", "nginxoperators", &["list", "watch"]),
    Need::namespaced("operator.example.com", "nginxoperators/status", &["patch"]),
    Need::namespaced("operator.example.com", "nginxoperators/finalizers", &["update"]),
    Need::namespaced("apps", "deployments", &["get", "list", "watch", "create", "patch"]),
    Need::namespaced("", "services", &["get", "list", "watch", "create", "patch"]),
    Need::namespaced("", "pods", &["list", "watch"]),
    Need::namespaced("", "events", &["create", "patch"]),
];

/// Used at home where they are granted, and done without where they are not: the lease and the webhook's Secret go with the
/// Deployment.
pub const OPTIONAL: [Need; 2] =
    [Need::namespaced("", "pods", &["get"]), Need::namespaced("apps", "deployments", &["get"])];

#[derive(Clone, Debug)]
pub struct Settings {
    pub scope: Scope,
    /// The namespace that the operator runs in, and its lease with it.
    pub home: String,
    pub pod_name: String,
    pub pod_uid: Option<String>,
    /// The newest version of the API to work with.
    pub newest: Version,
    /// For metrics and health.
    pub listen: SocketAddr,
    /// Where conversion is served, if there is more than one version to work with.
    pub webhook: Option<webhook::Settings>,
    pub timing: Timing,
}

#[derive(Debug, Error)]
pub enum OperatorError {
    #[error(transparent)]
    Asset(#[from] AssetError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Webhook(#[from] WebhookServerError),
}

/// The parts of the process that outlive a tenure.
struct Operator {
    client: Client,
    settings: Settings,
    assets: Assets,
    metrics: Metrics,
    operands: Operands,
}

/// What is counted, and where it is shown.
pub struct Instruments {
    pub registry: Registry,
    pub metrics: Metrics,
    pub operands: Operands,
}

impl Default for Instruments {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("nginx_operator");
        let metrics = Metrics::register(&mut registry, env!("CARGO_PKG_VERSION"));
        let operands = Operands::default();
        registry.register_collector(Box::new(operands.clone()));
        Self { registry, metrics, operands }
    }
}

/// Runs until `stop`.
pub async fn run(
    client: Client,
    settings: Settings,
    instruments: Instruments,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let Instruments { registry, metrics, operands } = instruments;
    let readiness = Readiness::default();
    let api_server = readiness.gate("the API server");
    let webhook = match settings.webhook.clone() {
        Some(settings) => {
            let certificate = readiness.gate("the webhook's certificate");
            Some(Webhook::bind(client.clone(), settings, certificate).await?)
        }
        None => None,
    };
    let server = Server::bind(settings.listen, Arc::new(registry), readiness).await?;
    let operator = Operator { client, settings, assets: Assets::load()?, metrics, operands };
    let work = async {
        let checked = until_ok(PATIENT, &stop, "the check of the API server", || {
            check_version(&operator.client, MINIMUM_VERSION)
        });
        if let Some(version) = checked.await {
            info!(kubernetes = %version, operator = env!("CARGO_PKG_VERSION"), "started");
            api_server.set(true);
            operator.stand_for_election(&stop).await;
        }
    };
    let convert = async {
        if let Some(webhook) = webhook {
            webhook.run(stop.clone()).await;
        }
    };
    let (served, (), ()) = tokio::join!(server.serve(stop.clone()), work, convert);
    Ok(served?)
}

impl Operator {
    async fn stand_for_election(&self, stop: &CancellationToken) {
        let settings = &self.settings;
        let config = LeaseConfig {
            namespace: settings.home.clone(),
            name: NAME.to_owned(),
            identity: Identity::new(&settings.pod_name, settings.pod_uid.as_deref()),
            timing: settings.timing,
            owner: deployment_of(&self.client, &settings.home, &settings.pod_name).await,
        };
        let election = Election::start(self.client.clone(), config, self.metrics.leading(NAME));
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                elected = election.acquired() => match elected {
                    Ok(leadership) => self.lead(&leadership, stop).await,
                    Err(error) => {
                        warn!(%error, "this process will not lead any more");
                        stop.cancelled().await;
                    }
                },
            }
        }
        election.stop().await;
    }

    /// One tenure: the loop, and beside it the care for what is stored.
    async fn lead(&self, leadership: &Leadership, stop: &CancellationToken) {
        let over = either(stop, &leadership.token());
        let client = leadership.guard(&self.client);
        let migrate = async {
            if self.settings.webhook.is_some() {
                storage::keep(&client, &over).await;
            }
        };
        tokio::join!(self.reconcile(&client, &over), migrate);
    }

    /// An event about our own pod, if we are one.
    async fn tell_start(&self, recorder: &Recorder, version: Version) {
        let Settings { home, pod_name, pod_uid, .. } = &self.settings;
        if pod_uid.is_none() {
            return;
        }
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(home.clone()),
            name: Some(pod_name.clone()),
            uid: pod_uid.clone(),
            ..ObjectReference::default()
        };
        let message = format!("{NAME} {} leads and works with {version}", env!("CARGO_PKG_VERSION"));
        recorder.publish(&pod, Severity::Normal, "Started", &message).await;
    }

    /// Again and again the loop, for the newest version that is served.
    async fn reconcile(&self, client: &Client, over: &CancellationToken) {
        let Settings { scope, newest, home, pod_name, .. } = &self.settings;
        let recorder = Recorder::new(self.client.clone(), pod_name.clone(), self.metrics.clone());
        while !over.is_cancelled() {
            let may = until_ok(PATIENT, over, "the check of rights", || {
                rights::require(&self.client, &NEEDS, scope.namespace())
            });
            let found =
                until_ok(PATIENT, over, "looking for the CRD", || served(&self.client, *newest, home));
            let (Some(()), Some(version)) = (may.await, found.await) else { break };
            info!(%version, "working with this version of the API");
            self.tell_start(&recorder, version).await;
            let work = Loop::new(client, scope, version);
            self.operands.show(Some(work.instances.clone()));
            let context = Context {
                client: client.clone(),
                scope: scope.clone(),
                version,
                assets: self.assets.clone(),
                caches: work.caches.clone(),
                recorder: recorder.clone(),
                metrics: self.metrics.clone(),
                backoff: Backoff::new(RETRY),
                written: Written::default(),
            };
            work.run(context, over.child_token()).await;
            self.operands.show(None);
        }
    }
}

/// A token that is cancelled with the first of two.
fn either(one: &CancellationToken, two: &CancellationToken) -> CancellationToken {
    let both = one.child_token();
    let (cancelled, two) = (both.clone(), two.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = two.cancelled() => cancelled.cancel(),
            () = cancelled.cancelled() => {}
        }
    });
    both
}
