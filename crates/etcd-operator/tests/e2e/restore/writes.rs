//! A client that numbers its writes and remembers how far it was promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd::{Expect, Member};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use lab::wait::until;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{Cluster, LIMIT, Outcome};

/// Keys 0 up to that number were acknowledged, in this order.
pub struct Writes {
    promised: Arc<AtomicU64>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn key(number: u64) -> String {
    format!("promised/{number:06}")
}

impl Writes {
    pub fn start(cluster: &Cluster<'_>) -> Self {
        let (promised, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let (told, ended, pods, name) =
            (promised.clone(), stop.clone(), cluster.pods_api(), cluster.name.clone());
        let task = tokio::spawn(async move {
            while !ended.is_cancelled() {
                let number = told.load(Ordering::SeqCst);
                match put_to(&pods, &name, &key(number), "kept").await {
                    Ok(()) => told.store(number + 1, Ordering::SeqCst),
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
        Self { promised, stop, task }
    }

    /// Waits for so many more; how many there are in all.
    pub async fn some(&self, more: u64) -> Outcome<u64> {
        let goal = self.promised.load(Ordering::SeqCst) + more;
        let what = format!("{goal} writes to be acknowledged");
        let reached = until(&what, LIMIT, async || {
            let now = self.promised.load(Ordering::SeqCst);
            Ok(if now >= goal { Ok(now) } else { Err(now.to_string()) })
        });
        Ok(reached.await?)
    }

    pub async fn stop(self) -> Outcome {
        self.stop.cancel();
        Ok(self.task.await?)
    }
}

/// Through any member that serves clients.
pub async fn put(cluster: &Cluster<'_>, key: &str, value: &str) -> Outcome {
    Ok(put_to(&cluster.pods_api(), &cluster.name, key, value).await?)
}

async fn put_to(pods: &Api<Pod>, cluster: &str, key: &str, value: &str) -> Result<(), String> {
    let serving = format!("etcd_cluster={cluster},app=etcd,{}=true", api::labels::SERVING);
    let pods = pods.list(&ListParams::default().labels(&serving)).await.map_err(|error| error.to_string())?;
    let mut why = "nobody serves".to_owned();
    for pod in pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.clone()) else { continue };
        let member = Member::connect(format!("{ip}:2379"), Expect::default()).map_err(|e| e.to_string())?;
        match member.with_deadline(Duration::from_secs(1)).put(key, value).await {
            Ok(_) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Every write that was promised so far is there, on every member.
pub async fn all_there(cluster: &Cluster<'_>, promised: u64) -> Outcome {
    for endpoint in cluster.endpoints().await? {
        let member = Member::connect(&endpoint, Expect::default())?;
        let request = etcd::kv::RangeRequest {
            key: "promised/".into(),
            range_end: "promised0".into(),
            ..Default::default()
        };
        let found = member.range(request).await?.kvs;
        let missing: Vec<_> = (0..promised)
            .map(key)
            .filter(|key| !found.iter().any(|kv| kv.key[..] == *key.as_bytes() && kv.value[..] == *b"kept"))
            .collect();
        if !missing.is_empty() {
            return Err(format!("{endpoint} lacks {} of {promised}: {missing:?}", missing.len()).into());
        }
    }
    Ok(())
}

pub async fn revision(cluster: &Cluster<'_>) -> Outcome<i64> {
    let endpoints = cluster.endpoints().await?;
    let member = Member::connect(endpoints.first().ok_or("no member")?, Expect::default())?;
    Ok(member.revision().await?)
}
