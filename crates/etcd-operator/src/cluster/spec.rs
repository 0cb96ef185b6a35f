//! What an `EtcdCluster` asks for, in the planner's words.

use std::time::Duration;

use api::EtcdCluster;
use api::names::MAX_CLUSTER_NAME;
use api::v1beta2::{REFUSED_ENV, RestoreRequest};
use domain::{ClusterId, HopTable, Knobs, Spec, Storage};
use kube::ResourceExt;

/// What the administrator set for all clusters.
#[derive(Clone, Debug)]
pub struct Defaults {
    pub unresponsive_after: Duration,
    pub hops: HopTable,
}

pub fn spec_of(cluster: &EtcdCluster, template: String, defaults: &Defaults) -> Spec {
    let spec = &cluster.spec;
    let unresponsive_after =
        spec.member_unresponsive_seconds.map_or(defaults.unresponsive_after, |_| spec.member_unresponsive());
    let persistent = spec.pod().persistent_volume_claim_spec.is_some();
    Spec {
        size: u32::try_from(spec.size).unwrap_or(0),
        version: spec.version().to_owned(),
        repository: repository(cluster).to_owned(),
        paused: spec.paused,
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        tls_requested: spec.tls.is_some(),
        restore: request(cluster),
        invalid: invalid(cluster),
        storage: if persistent { Storage::Persistent } else { Storage::EmptyDir },
        retains: spec.pod().retention().retains_when_deleted(),
        template,
        knobs: Knobs { unresponsive_after, ..Knobs::default() },
        hops: defaults.hops.clone(),
    }
}

/// What the restore controller asks for. What cannot be read is said in [`invalid`].
fn request(cluster: &EtcdCluster) -> Option<domain::RestoreRequest> {
    let request = RestoreRequest::on(cluster).ok().flatten()?;
    Some(domain::RestoreRequest {
        uid: request.uid.into(),
        name: request.name,
        version: request.etcd_version.and_then(|version| version.parse().ok()),
    })
}

pub fn repository(cluster: &EtcdCluster) -> &str {
    match cluster.spec.repository.as_str() {
        "" => api::v1beta2::DEFAULT_REPOSITORY,
        repository => repository,
    }
}

/// `ETCD_QUOTA_BACKEND_BYTES` of the spec: versions before 3.6 do not tell their quota.
pub fn quota(cluster: &EtcdCluster) -> Option<u64> {
    let env = cluster.spec.pod().etcd_env.iter().find(|env| env.name == "ETCD_QUOTA_BACKEND_BYTES")?;
    env.value.as_deref()?.parse().ok().filter(|number| *number > 0)
}

/// The ID of the etcd cluster that once began. One that cannot be read is not taken for none: nothing begins a second time.
pub fn recorded_id(cluster: &EtcdCluster) -> Result<Option<ClusterId>, String> {
    let id = cluster.status.as_ref().map_or("", |status| status.cluster_id.as_str());
    if id.is_empty() {
        return Ok(None);
    }
    u64::from_str_radix(id, 16).map(|id| Some(ClusterId(id))).map_err(|_| {
        format!("status.clusterID is {id:?}: write the cluster ID that the members tell, in hexadecimal")
    })
}

/// The schema refuses most of this; a CRD that somebody else installed may not.
fn invalid(cluster: &EtcdCluster) -> Option<String> {
    let (name, size) = (cluster.name_any(), cluster.spec.size);
    if name.len() > MAX_CLUSTER_NAME {
        return Some(format!(
            "metadata.name has {} characters: make it at most {MAX_CLUSTER_NAME}",
            name.len()
        ));
    }
    if !(1..=7).contains(&size) {
        return Some(format!("spec.size is {size}: write 1 to 7"));
    }
    if let Err(unreadable) = recorded_id(cluster) {
        return Some(unreadable);
    }
    if let Err(unreadable) = RestoreRequest::on(cluster) {
        return Some(unreadable.to_string());
    }
    let ours = |key: &&String| *key == "app" || key.starts_with("etcd_") || key.starts_with(api::GROUP);
    if let Some(label) = cluster.spec.pod().labels.keys().find(ours) {
        return Some(format!(
            "spec.pod.labels has {label}, which is the operator's own: choose another name"
        ));
    }
    let mut env = cluster.spec.pod().etcd_env.iter();
    env.find_map(|env| {
        REFUSED_ENV.iter().find(|refused| refused.has(&env.name)).map(|refused| (env, refused))
    })
    .map(|(env, refused)| format!("spec.pod.etcdEnv has {}: {}", env.name, refused.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::EtcdClusterStatus;
    use rstest::rstest;
    use serde_json::json;

    fn cluster(name: &str, spec: serde_json::Value) -> EtcdCluster {
        serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": name, "namespace": "ns"}, "spec": spec,
        }))
        .unwrap()
    }

    fn env(name: &str) -> serde_json::Value {
        json!({"size": 3, "pod": {"etcdEnv": [{"name": name, "value": "x"}]}})
    }

    #[rstest]
    #[case("c", json!({"size": 3, "version": "3.5.16"}), None)]
    #[case("c", json!({"size": 0, "version": "3.5.16"}), Some("write 1 to 7"))]
    #[case("c", json!({"size": 8, "version": "3.5.16"}), Some("write 1 to 7"))]
    #[case(&"c".repeat(53), json!({"size": 3}), Some("at most 52"))]
    #[case("c", json!({"size": 3, "pod": {"labels": {"etcd_cluster": "x"}}}), Some("choose another name"))]
    #[case("c", json!({"size": 3, "pod": {"labels": {"team": "x"}}}), None)]
    #[case("c", env("ETCD_QUOTA_BACKEND_BYTES"), None)]
    #[case("c", env("ETCD_NAME"), Some("spec.pod.etcdEnv has ETCD_NAME: the operator sets"))]
    #[case("c", env("ETCD_INITIAL_CLUSTER_TOKEN"), Some("the operator sets"))]
    #[case("c", env("ETCD_FORCE_NEW_CLUSTER"), Some("can lose data"))]
    #[case("c", env("ETCD_UNSAFE_NO_FSYNC"), Some("can lose data"))]
    fn what_the_schema_let_through_is_said(
        #[case] name: &str,
        #[case] spec: serde_json::Value,
        #[case] says: Option<&str>,
    ) {
        let found = invalid(&cluster(name, spec));
        assert_eq!(found.is_some(), says.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().contains(says.unwrap_or_default()));
    }

    #[rstest]
    #[case::none("", Ok(None))]
    #[case::ours("cafe", Ok(Some(ClusterId(0xcafe))))]
    #[case::not_ours("cafe!", Err(()))]
    fn nothing_is_done_where_the_recorded_id_cannot_be_read(
        #[case] id: &str,
        #[case] read: Result<Option<ClusterId>, ()>,
    ) {
        let mut cluster = cluster("c", json!({"size": 3}));
        let status = EtcdClusterStatus { cluster_id: id.into(), ..EtcdClusterStatus::default() };
        cluster.status = Some(status);
        assert_eq!(recorded_id(&cluster).map_err(drop), read);
        assert_eq!(invalid(&cluster).is_some(), read.is_err());
    }

    #[test]
    fn the_cluster_overrides_the_administrator() {
        let defaults = Defaults { unresponsive_after: Duration::from_secs(90), hops: HopTable::default() };
        let after = |spec| spec_of(&cluster("c", spec), String::new(), &defaults).knobs.unresponsive_after;
        assert_eq!(after(json!({"size": 3})), Duration::from_secs(90));
        assert_eq!(after(json!({"size": 3, "memberUnresponsiveSeconds": 15})), Duration::from_secs(15));
    }

    #[test]
    fn the_quota_is_read_from_the_environment() {
        let env = json!([{"name": "ETCD_QUOTA_BACKEND_BYTES", "value": "4294967296"}]);
        assert_eq!(quota(&cluster("c", json!({"size": 3, "pod": {"etcdEnv": env}}))), Some(4 << 30));
        assert_eq!(quota(&cluster("c", json!({"size": 3}))), None);
    }
}
