//! What there is, in a form in which two lives can be compared: names, addresses, identities and times left out.

use api::EtcdCluster;
use api::names::MEMBER_SUFFIX;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::Outcome;
use crate::world::{NAME, World};

/// Objects, members and status, as they are now.
pub async fn seen(world: &World<'_>) -> Outcome<Value> {
    let everything = ListParams::default().labels("etcd_cluster");
    let pods = world.api::<Pod>().list(&everything).await?.items;
    let services = world.api::<Service>().list(&everything).await?.items;
    let budgets = world.api::<PodDisruptionBudget>().list(&everything).await?.items;
    let claims = world.api::<PersistentVolumeClaim>().list(&everything).await?.items;
    let cluster = world.api::<EtcdCluster>().get_opt(NAME).await?;
    let described = json!({
        "pods": sorted(pods.iter().map(pod)),
        "services": sorted(services.iter().map(|service| json!([
            service.name_any(), service.labels(),
            service.spec.as_ref().map(|spec| json!([spec.selector, spec.ports])),
        ]))),
        "budgets": sorted(budgets.iter().map(|budget| json!([budget.name_any(), budget.spec]))),
        "claims": sorted(claims.iter().map(|claim| json!([claim.labels(), claim.spec]))),
        "status": cluster.as_ref().map(status),
        "members": if pods.is_empty() { json!(null) } else { members(world).await? },
    });
    let text = described.to_string().replace(&world.test.name, "namespace");
    Ok(serde_json::from_str(&nameless(&text))?)
}

fn pod(pod: &Pod) -> Value {
    let spec = pod.spec.clone().unwrap_or_default();
    let etcd = spec.containers.first();
    let own = |argument: &&String| !argument.starts_with("--initial-cluster-token=");
    let command: Option<Vec<_>> =
        etcd.and_then(|etcd| Some(etcd.command.as_ref()?.iter().filter(own).collect()));
    let mut annotations = pod.annotations().clone();
    annotations.remove(api::annotations::VOLUME_UID);
    json!([
        pod.labels(),
        annotations,
        pod.owner_references().len(),
        pod.metadata.deletion_timestamp.is_some(),
        etcd.map(|etcd| (&etcd.image, &etcd.env, command)),
        pod.status.as_ref().and_then(|status| status.conditions.as_ref()).map(Vec::len),
    ])
}

fn status(cluster: &EtcdCluster) -> Value {
    let status = cluster.status.clone().unwrap_or_default();
    let said = status.conditions.iter().map(|one| json!([one.type_, one.status, one.reason]));
    json!({
        "phase": status.phase, "reason": status.reason, "conditions": said.collect::<Vec<_>>(),
        "size": status.size, "ready": status.ready_members, "versions": [status.current_version, status.target_version],
        "leads": !status.leader.is_empty(), "known": !status.cluster_id.is_empty(),
        "restore": status.restore.map(|restore| restore.stage),
    })
}

/// Who is in etcd's own list, as what; and what a client wrote.
async fn members(world: &World<'_>) -> Outcome<Value> {
    let member = world.member().await?;
    let list = member.members().await?;
    let listed = list.iter().map(|one| json!([one.learner, one.name.is_empty(), one.peer_urls.len()]));
    let kept = member.get("written").await?.map(|kept| String::from_utf8_lossy(&kept.value).into_owned());
    Ok(json!({"listed": listed.collect::<Vec<_>>(), "written": kept}))
}

fn sorted(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(|value| nameless(&value.to_string()));
    values
}

/// Members' names end in letters that chance chose.
fn nameless(text: &str) -> String {
    let start = format!("{NAME}-");
    let mut parts = text.split(&start);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let suffix = part.chars().take_while(char::is_ascii_alphanumeric).count();
        all.push_str(&start);
        all.push_str(if suffix == MEMBER_SUFFIX { "*" } else { "" });
        all.push_str(if suffix == MEMBER_SUFFIX { &part[suffix..] } else { part });
    }
    all
}
