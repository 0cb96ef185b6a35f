//! The process: what must be in order before the controllers run, who leads, and how it ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use prometheus_client::registry::Registry;
use runtime::backoff::{Policy, until_ok};
use runtime::client::{self, ClientError};
use runtime::crd::Wanted;
use runtime::events::Recorder;
use runtime::lease::{self, Config, Election, Identity, Leadership, Timing};
use runtime::logging::{self, LoggingError};
use runtime::metrics::Metrics;
use runtime::rights::{Need, require_each};
use runtime::server::{Gate, Readiness, Server, ServerError};
use runtime::shutdown;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::cli::{Cli, Controller};
use crate::cluster::{self, Context, Defaults, Watches};
use crate::scope::Scope;
use crate::tenure::Tenure;
use crate::{backup, restore, rights};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the names of all metrics begin with.
pub const METRICS: &str = "etcd_operator";
/// Keeps, on each CRD, the version of the operator that wrote it.
const CRD_ANNOTATION: &str = "etcd.database.coreos.com/operator-version";
const CRD_PATIENCE: Duration = Duration::from_secs(30);
const START: Policy = Policy { first: Duration::from_secs(1), most: Duration::from_secs(15) };

#[derive(Debug, Error)]
pub enum ProcessError {
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("the version of this program, {VERSION}, is not understood: {0}")]
    Version(#[from] semver::Error),
}

/// Runs until SIGTERM or SIGINT, then gives the lease back.
pub async fn run(cli: Cli) -> Result<(), ProcessError> {
    logging::init(cli.log_format, &cli.log_level)?;
    let stop = shutdown::on_signal()?;
    let mut registry = Registry::with_prefix(METRICS);
    let metrics = Metrics::register(&mut registry, VERSION);
    let clusters = cluster::Metrics::register(&mut registry);
    let backups = backup::Metrics::register(&mut registry);

    let config = client::infer_config().await?;
    let namespace = cli.pod_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = client::builder(config, &format!("etcd-operator/{VERSION}"), metrics.clone())?.build();

    let readiness = Readiness::default();
    let gates = gates(&cli, &readiness);
    let server = Server::bind(cli.listen_addr, Arc::new(registry), readiness).await?;
    let served = tokio::spawn(server.serve(stop.clone()));

    let pod = pod_name(&cli);
    let uid = pod_uid(&pod);
    let operator = Operator { cli, pod, uid, namespace, client, metrics, clusters, backups };
    info!(
        version = VERSION,
        namespace = operator.namespace,
        cluster_wide = operator.cli.cluster_wide,
        pod = operator.pod,
        controllers = ?operator.cli.controllers,
        "started"
    );
    operator.work(gates, &stop).await?;
    if let Ok(Err(error)) = served.await {
        error!(%error, "metrics and health were no longer served");
    }
    info!("stopped");
    Ok(())
}

/// The operator itself, whatever it runs in.
pub struct Operator {
    pub cli: Cli,
    /// The pod that it runs in, and that pod's UID.
    pub pod: String,
    pub uid: Option<String>,
    pub namespace: String,
    pub client: Client,
    pub metrics: Metrics,
    pub clusters: cluster::Metrics,
    pub backups: backup::Metrics,
}

impl Operator {
    /// Works until `stop`.
    pub async fn work(
        &self,
        gates: Vec<(Controller, Gate)>,
        stop: &CancellationToken,
    ) -> Result<(), ProcessError> {
        if self.prepare(stop).await?.is_some() {
            join_all(gates.into_iter().map(|(one, gate)| self.control(one, gate, stop))).await;
        }
        Ok(())
    }

    fn scope(&self) -> Scope {
        if self.cli.cluster_wide { Scope::Everywhere } else { Scope::Namespace(self.namespace.clone()) }
    }

    /// Everything that must be in order first, each tried until it is. `None` if stopped before.
    async fn prepare(&self, stop: &CancellationToken) -> Result<Option<()>, ProcessError> {
        let client = &self.client;
        let version = || client::check_version(client, client::MINIMUM_VERSION);
        let Some(version) = until_ok(START, stop, "the check of the Kubernetes version", version).await
        else {
            return Ok(None);
        };
        info!(%version, "Kubernetes answers");
        let needs = self.needs();
        let home = Some(self.namespace.as_str());
        let places = [(needs.as_slice(), home.filter(|_| !self.cli.cluster_wide)), (&rights::AT_HOME, home)];
        let rights = || require_each(client, &places);
        if until_ok(START, stop, "the check of rights", rights).await.is_none() {
            return Ok(None);
        }
        if self.cli.create_crd {
            for controller in chosen(&self.cli) {
                let wanted = Wanted::new(crd(controller), CRD_ANNOTATION, VERSION.parse()?);
                let install = || wanted.install(client, CRD_PATIENCE);
                if until_ok(START, stop, "the installation of the CRD", install).await.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(()))
    }

    /// Runs one controller until `stop`.
    async fn control(&self, controller: Controller, ready: Gate, stop: &CancellationToken) {
        match controller {
            Controller::Cluster => self.clusters(ready, stop).await,
            Controller::Backup => {
                ready.set(true);
                let work =
                    async |leadership| backup::run(self.tenure(leadership, stop), self.backups.clone()).await;
                self.lead(controller, stop, work).await;
            }
            Controller::Restore => {
                ready.set(true);
                let work = async |leadership| restore::run(self.tenure(leadership, stop)).await;
                self.lead(controller, stop, work).await;
            }
        }
    }

    async fn clusters(&self, ready: Gate, stop: &CancellationToken) {
        let watches = Arc::new(Watches::start(&self.client, &self.scope(), stop));
        tokio::select! {
            filled = watches.ready() => ready.set(filled.is_ok()),
            () = stop.cancelled() => {}
        }
        let recorder = self.recorder();
        let defaults = Defaults {
            unresponsive_after: self.cli.member_unresponsive_after,
            hops: self.cli.version_table.clone(),
        };
        let work = async |leadership| {
            let context = Context::new(
                &self.client,
                leadership,
                watches.clone(),
                recorder.clone(),
                defaults.clone(),
                self.clusters.clone(),
                self.metrics.clone(),
            );
            cluster::run(Arc::new(context), stop.clone()).await;
        };
        self.lead(Controller::Cluster, stop, work).await;
    }

    /// Stands for election, and works whenever it leads.
    async fn lead(&self, controller: Controller, stop: &CancellationToken, work: impl AsyncFn(Leadership)) {
        let lease = controller.command();
        let config = Config {
            namespace: self.namespace.clone(),
            name: lease.to_owned(),
            identity: Identity::new(&self.pod, self.uid.as_deref()),
            timing: Timing::default(),
            owner: lease::deployment_of(&self.client, &self.namespace, &self.pod).await,
        };
        let election = Election::start(self.client.clone(), config, self.metrics.leading(lease));
        while !stop.is_cancelled() {
            let leadership = tokio::select! {
                () = stop.cancelled() => break,
                acquired = election.acquired() => match acquired {
                    Ok(leadership) => leadership,
                    Err(error) => {
                        error!(%error, lease, "nobody can lead here any more");
                        break;
                    }
                },
            };
            work(leadership).await;
        }
        election.stop().await;
    }

    fn tenure(&self, leadership: Leadership, stop: &CancellationToken) -> Tenure {
        Tenure {
            client: leadership.guard(&self.client),
            leadership,
            recorder: self.recorder(),
            rounds: self.metrics.clone(),
            scope: self.scope(),
            pod: self.pod.clone(),
            image: self.cli.image.clone(),
            namespace: self.namespace.clone(),
            volumes: self.cli.volumes.clone(),
            hops: self.cli.version_table.clone(),
            stop: stop.clone(),
        }
    }

    fn recorder(&self) -> Recorder {
        Recorder::new(self.client.clone(), self.pod.clone(), self.metrics.clone())
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = chosen(&self.cli).into_iter().flat_map(rights::of).copied().collect();
        needs.extend(rights::EVERYONE);
        needs.extend(self.cli.create_crd.then_some(rights::CREATE_CRD));
        needs
    }
}

/// What must be in order before each of the controllers is ready.
pub fn gates(cli: &Cli, readiness: &Readiness) -> Vec<(Controller, Gate)> {
    chosen(cli).into_iter().map(|one| (one, readiness.gate(gate(one)))).collect()
}

/// The controllers to run, each once.
fn chosen(cli: &Cli) -> BTreeSet<Controller> {
    cli.controllers.iter().copied().collect()
}

fn crd(controller: Controller) -> CustomResourceDefinition {
    match controller {
        Controller::Cluster => api::crd::etcd_cluster_crd(),
        Controller::Backup => api::crd::etcd_backup_crd(),
        Controller::Restore => api::crd::etcd_restore_crd(),
    }
}

/// What a controller waits for before it is ready.
fn gate(controller: Controller) -> &'static str {
    match controller {
        Controller::Cluster => "the caches of clusters, pods, claims, services and budgets",
        Controller::Backup => "the rights and the CRD of backups",
        Controller::Restore => "the rights and the CRD of restores",
    }
}

/// The kubelet makes the pod's name its host name, where the manifest does not pass it on.
fn pod_name(cli: &Cli) -> String {
    let named = cli.pod_name.clone().or_else(|| std::env::var("HOSTNAME").ok());
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| "etcd-operator".to_owned())
}

/// Pods that come from a Deployment never share a name, so where there is no UID the name will do: a container that
/// starts again in its pod need not wait for its own lease.
fn pod_uid(pod: &str) -> Option<String> {
    let in_a_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    std::env::var("MY_POD_UID").ok().or_else(|| in_a_pod.then(|| pod.to_owned()))
}
