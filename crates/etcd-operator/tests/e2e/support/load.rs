//! Clients on a cluster: they write and read all the time, on all members there are.

use std::sync::{Arc, Weak};
use std::time::Duration;

use etcd::traffic::{Config, Crowd, Report, Seen, Traffic};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use tokio::task::JoinHandle;

use super::{Cluster, Outcome};

/// As often as clients learn of a change in a Service.
const FOLLOW: Duration = Duration::from_millis(250);

/// Whoever has to know the members.
trait Clients: Send + Sync + 'static {
    fn set_endpoints(&self, endpoints: Vec<String>);
}

impl Clients for Traffic {
    fn set_endpoints(&self, endpoints: Vec<String>) {
        self.set_endpoints(endpoints);
    }
}

impl Clients for Crowd {
    fn set_endpoints(&self, endpoints: Vec<String>) {
        self.set_endpoints(endpoints);
    }
}

/// Clients that know the members of a cluster by its pods.
struct Following<C> {
    clients: Arc<C>,
    follower: JoinHandle<()>,
}

impl<C: Clients> Following<C> {
    fn new(cluster: &Cluster<'_>, clients: C) -> Self {
        let clients = Arc::new(clients);
        let selector = format!("etcd_cluster={},app=etcd", cluster.name);
        let follower = tokio::spawn(follow(cluster.pods_api(), selector, Arc::downgrade(&clients)));
        Self { clients, follower }
    }

    async fn end(self) -> Outcome<C> {
        self.follower.abort();
        // It was told to end: how it did is no news.
        let _ = self.follower.await;
        Arc::into_inner(self.clients).ok_or_else(|| "somebody still follows the pods".into())
    }
}

/// Traffic on a cluster.
pub struct Load<'a> {
    cluster: &'a Cluster<'a>,
    traffic: Following<Traffic>,
}

/// A crowd on a cluster.
pub struct CrowdLoad(Following<Crowd>);

impl CrowdLoad {
    pub async fn end(self) -> Outcome<Seen> {
        Ok(self.0.end().await?.finish().await)
    }
}

impl<'a> Cluster<'a> {
    /// Clients on all members, from now on. Endpoints follow the pods while they run.
    pub async fn traffic(&'a self) -> Outcome<Load<'a>> {
        let limit = Duration::from_mins(90);
        let traffic = Traffic::start(self.endpoints().await?, Config { limit, ..Config::default() });
        Ok(Load { cluster: self, traffic: Following::new(self, traffic) })
    }

    /// Clients that contend for a few keys, from now on.
    pub async fn crowd(&self) -> Outcome<CrowdLoad> {
        Ok(CrowdLoad(Following::new(self, Crowd::start(self.endpoints().await?))))
    }
}

impl Load<'_> {
    /// Tells the clients at once which members there are now; they would learn it a moment later.
    pub async fn follow(&self) -> Outcome {
        self.traffic.clients.set_endpoints(self.cluster.endpoints().await?);
        Ok(())
    }

    /// Ends the traffic: no acknowledged write may be missing and no answer stale. Prints the longest pause.
    pub async fn end(self) -> Outcome<Report> {
        self.follow().await?;
        let report = self.traffic.end().await?.finish().await;
        println!(
            "{}/{}: {} answers, {} writes, {} failed, longest pause {:.2} s",
            self.cluster.test.name,
            self.cluster.name,
            report.answered,
            report.writes,
            report.failures.len(),
            report.longest_pause.as_secs_f64()
        );
        report.verify(&self.cluster.endpoints().await?).await?;
        if report.violations.is_empty() { Ok(report) } else { Err(report.violations.join("; ").into()) }
    }

    /// As [`Self::end`], and not one request may have failed: what a cluster of three or more owes its clients.
    pub async fn end_without_failure(self) -> Outcome<Report> {
        let report = self.end().await?;
        if report.failures.is_empty() { Ok(report) } else { Err(format!("{:?}", report.failures).into()) }
    }
}

/// Until the clients end.
async fn follow(pods: Api<Pod>, selector: String, clients: Weak<impl Clients>) {
    let ours = ListParams::default().labels(&selector);
    while let Some(clients) = clients.upgrade() {
        // While the API server cannot say, clients go on with the members they know.
        if let Ok(list) = pods.list(&ours).await {
            clients.set_endpoints(addresses(&list.items));
        }
        drop(clients);
        tokio::time::sleep(FOLLOW).await;
    }
}

/// Where the members that stay answer clients, as `host:port`, reachable from this machine.
pub fn addresses(pods: &[Pod]) -> Vec<String> {
    let staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let ips = staying.filter_map(|pod| pod.status.as_ref()?.pod_ip.clone());
    ips.map(|ip| format!("{ip}:2379")).collect()
}
