//! The operator in this process, all of it in one thread and one runtime of its own: to kill it is to drop that.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use clap::Parser;
use etcd_operator::cli::Cli;
use etcd_operator::process::{self, gates};
use etcd_operator::{backup, cluster};
use faults::Line;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;
use runtime::metrics::Metrics;
use runtime::server::Readiness;
use tokio_util::sync::CancellationToken;

use crate::{LIMIT, Outcome};

/// Every plan, so that a life that went wrong can be understood.
const LOGGED: &str = "info,etcd_operator=debug";

pub struct Operator {
    killed: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Operator {
    /// For one namespace, over `line`. Every operator of a life is the same pod restarted, and writes on into the same log.
    pub fn start(
        kubeconfig: &Path,
        namespace: &str,
        volumes: &Path,
        log: &Path,
        line: &Line,
    ) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let killed = CancellationToken::new();
        let log = Mutex::new(File::options().create(true).append(true).open(log)?);
        let log =
            tracing_subscriber::fmt().with_ansi(false).with_env_filter(LOGGED).with_writer(log).finish();
        let (kubeconfig, namespace, volumes) =
            (kubeconfig.to_owned(), namespace.to_owned(), volumes.to_owned());
        let (line, kill) = (line.clone(), killed.clone());
        let thread = std::thread::spawn(move || {
            let _log = tracing::subscriber::set_default(log);
            let troubles = Arc::new(line.clone());
            let work = etcd::faults::within(troubles, run(kubeconfig, namespace, volumes, line));
            runtime.block_on(async {
                tokio::select! {
                    () = kill.cancelled() => {}
                    ended = work => panic!("the operator ended by itself: {ended:?}"),
                }
            });
            // Whatever it spawned dies with it; what it has asked the disk for is done before another one starts.
            runtime.shutdown_timeout(LIMIT);
        });
        Ok(Self { killed, thread: Some(thread) })
    }

    /// Nothing is finished, nothing is given back.
    pub async fn kill(mut self) -> Outcome {
        self.killed.cancel();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        ended.map_err(|_| "the operator panicked".into())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.killed.cancel();
    }
}

async fn run(kubeconfig: PathBuf, namespace: String, volumes: PathBuf, line: Line) -> Outcome {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, "test");
    let clusters = cluster::Metrics::register(&mut registry);
    let backups = backup::Metrics::register(&mut registry);
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = runtime::client::builder(config, "etcd-operator/test", metrics.clone())?;
    let client = client.with_layer(&line.layer()).build();
    let cli = Cli::parse_from([
        "etcd-operator",
        "--controllers=cluster,backup,restore",
        "--create-crd=false",
        "--image=etcd-operator:test",
        &format!("--volumes={}", volumes.display()),
    ]);
    let gates = gates(&cli, &Readiness::default());
    let (pod, uid) = ("etcd-operator-test".to_owned(), Some("test".to_owned()));
    let operator = process::Operator { cli, pod, uid, namespace, client, metrics, clusters, backups };
    Ok(operator.work(gates, &CancellationToken::new()).await?)
}
