//! When members are healthy: asked of etcd itself, the same way whoever made them.

use std::time::Duration;

use etcd::{Expect, Member};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use lab::kit::TestNamespace;
use lab::wait::until;

use crate::{LIMIT, Outcome};

pub fn pods_of(cluster: &str) -> String {
    format!("etcd_cluster={cluster},app=etcd")
}

pub async fn list(test: &TestNamespace<'_>, selector: &str) -> Outcome<Vec<Pod>> {
    Ok(test.api::<Pod>().list(&ListParams::default().labels(selector)).await?.items)
}

/// Waits until there are `size` members, each answers a linearizable read and lists all as started voters, `without`
/// that one.
pub async fn healthy(
    test: &TestNamespace<'_>,
    selector: &str,
    size: usize,
    without: Option<&str>,
) -> Outcome {
    let seen = until("healthy members", LIMIT, async || {
        Ok(look(test, selector, size, without).await.map_err(|error| error.to_string()))
    });
    Ok(seen.await?)
}

async fn look(test: &TestNamespace<'_>, selector: &str, size: usize, without: Option<&str>) -> Outcome {
    let pods = list(test, selector).await?;
    let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    if names.len() != size || names.iter().any(|name| Some(name.as_str()) == without) {
        return Err(format!("the pods are {names:?}").into());
    }
    for pod in &pods {
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()).ok_or("no address yet")?;
        let member = Member::connect(format!("{ip}:2379"), Expect::default())?;
        let member = member.with_deadline(Duration::from_secs(1));
        member.health().await?;
        let listed = member.members().await?;
        let voters = listed.iter().filter(|m| !m.learner && names.contains(&m.name)).count();
        if voters != size || listed.len() != size {
            return Err(format!("{ip} lists {listed:?}").into());
        }
    }
    Ok(())
}

/// Waits until no such pod is left.
pub async fn none(test: &TestNamespace<'_>, selector: &str) -> Outcome {
    let gone = until("the pods to be gone", LIMIT, async || {
        let left = test.api::<Pod>().list(&ListParams::default().labels(selector)).await?.items.len();
        Ok(if left == 0 { Ok(()) } else { Err(format!("{left} are left")) })
    });
    Ok(gone.await?)
}
