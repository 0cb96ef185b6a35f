//! Clients with all members as endpoints, writing and reading all the time, as the members come and go.

use std::time::Duration;

use api::labels;
use api::names::CLIENT_PORT;
use etcd::traffic::{Config, Traffic};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Cluster, Failed, Result};

const LOOK: Duration = Duration::from_millis(250);

pub struct Clients {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Traffic>,
    pods: Api<Pod>,
    cluster: String,
}

impl Clients {
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let (pods, name) = (cluster.pods.clone(), cluster.name.clone());
        let traffic = Traffic::start(endpoints(&pods, &name).await?, Config::default());
        let (stop, mut stopped) = oneshot::channel();
        let (watched, of) = (pods.clone(), name.clone());
        let task = tokio::spawn(async move {
            while tokio::time::timeout(LOOK, &mut stopped).await.is_err() {
                // Clients keep what they know while the API server does not answer.
                if let Ok(endpoints) = endpoints(&watched, &of).await
                    && !endpoints.is_empty()
                {
                    traffic.set_endpoints(endpoints);
                }
            }
            traffic
        });
        Ok(Self { stop, task, pods, cluster: name })
    }

    /// Proves that no request failed and that nothing promised is lost; gives the longest pause.
    pub async fn finish(self) -> Result<Duration> {
        // The task ends only by this, so somebody listens.
        let _ = self.stop.send(());
        let report = self.task.await?.finish().await;
        eprintln!(
            "{}: {} requests answered, {} of them writes; longest pause {:?}, median {:?}, p99 {:?}",
            self.cluster,
            report.answered,
            report.writes,
            report.longest_pause,
            report.latencies.median,
            report.latencies.p99
        );
        report.verify(&endpoints(&self.pods, &self.cluster).await?).await?;
        if report.writes == 0 {
            return Err(Failed("the clients wrote nothing".into()));
        }
        if !report.failures.is_empty() || !report.violations.is_empty() {
            return Err(Failed(format!("failed: {:?}; violated: {:?}", report.failures, report.violations)));
        }
        Ok(report.longest_pause)
    }
}

/// The members that the client Service would choose from.
async fn endpoints(pods: &Api<Pod>, cluster: &str) -> Result<Vec<String>> {
    let serving = ListParams::default().labels(&labels::selector(&labels::serving(cluster)));
    let pods = pods.list(&serving).await?;
    let ips = pods.items.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_ref());
    Ok(ips.map(|ip| format!("{ip}:{CLIENT_PORT}")).collect())
}
