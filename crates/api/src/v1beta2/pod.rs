//! `spec.pod` of an `EtcdCluster`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, PersistentVolumeClaimSpec, PodSecurityContext, ResourceRequirements, Toleration,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::env::{DANGEROUS, OPERATORS};
use super::{is_false, is_zero};

/// Image of the init container when `spec.pod.busyboxImage` does not name another.
pub const DEFAULT_BUSYBOX_IMAGE: &str = "busybox:1.28.0-glibc";

/// How the pods of the members are made. An edit is rolled out one member at a time: with a volume the member's pod is
/// made anew on its data, without one the member is replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodPolicy {
    /// Labels for the pods. `app`, `etcd_*` and `etcd.database.coreos.com/*` are the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new(
        "self.all(key, key != 'app' && !key.startsWith('etcd_') && !key.startsWith('etcd.database.coreos.com/'))"
    ).message("labels app, etcd_* and etcd.database.coreos.com/* are the operator's own: choose other names"))]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the pods. `etcd.version` and `etcd.database.coreos.com/*` are the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new(
        "self.all(key, key != 'etcd.version' && !key.startsWith('etcd.database.coreos.com/'))"
    ).message("annotations etcd.version and etcd.database.coreos.com/* are the operator's own: choose other names"))]
    pub annotations: BTreeMap<String, String>,

    /// Labels that a node must have to run a member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Where pods may run, in full. Without it, members prefer nodes that run no other member of their cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Deprecated: write `affinity`. True means that no node ever runs two members of the cluster; ignored when
    /// `affinity` is set.
    #[serde(default, skip_serializing_if = "is_false")]
    pub anti_affinity: bool,

    /// CPU and memory of the etcd container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Taints that the pods put up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,

    /// Environment of the etcd container: etcd reads every flag from a variable too, such as
    /// `ETCD_QUOTA_BACKEND_BYTES` or `ETCD_AUTO_COMPACTION_RETENTION`. Those that the operator sets, and those that can
    /// lose data, are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(validation = Rule::new(OPERATORS.rule()).message(OPERATORS.message))]
    #[x_kube(validation = Rule::new(DANGEROUS.rule()).message(DANGEROUS.message))]
    pub etcd_env: Vec<EnvVar>,

    /// Volume of each member. Without it the data lives and dies with the pod (emptyDir), and only the other members
    /// keep it. Cannot be changed on a cluster that exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "persistentVolumeClaimSpec of a cluster that exists cannot be changed: write it as it was, or make a new \
         EtcdCluster and restore a backup into it"
    ))]
    pub persistent_volume_claim_spec: Option<PersistentVolumeClaimSpec>,

    /// What becomes of the volumes of members that are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<RetentionPolicy>,

    /// Image of the init container that waits for the pod's name in DNS; it needs a shell and nslookup. Default:
    /// busybox:1.28.0-glibc. An edit is for new pods.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub busybox_image: String,

    /// Security context of the pods, in place of ours (user, group and fsGroup 1000, never root, seccomp
    /// `RuntimeDefault`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,

    /// How many seconds a pod waits for its own name in DNS before it starts etcd all the same. 0 or absent: 60.
    #[serde(rename = "DNSTimeoutInSecond", default, skip_serializing_if = "is_zero")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 3600").message(
        "DNSTimeoutInSecond must be 0 to 3600; 0 means the default of 60"
    ))]
    pub dns_timeout_in_second: i64,

    /// DNS domain of Kubernetes, such as `cluster.local`, for members' addresses that end in it. Without it they end
    /// in `.svc`. Cannot be changed on a cluster that exists.
    #[serde(rename = "ClusterDomain", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub cluster_domain: String,
}

/// What becomes of volumes, as in StatefulSet; here both are `Delete` where nothing is said, as with coreos.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicy {
    /// When the EtcdCluster is deleted: `Delete` the volumes with it, or `Retain` them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_deleted: Option<RetentionPolicyType>,
    /// When a member has left the cluster: `Delete` its volume, or `Retain` it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_scaled: Option<RetentionPolicyType>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RetentionPolicyType {
    #[default]
    Delete,
    Retain,
}

impl PodPolicy {
    pub fn busybox_image(&self) -> &str {
        if self.busybox_image.is_empty() { DEFAULT_BUSYBOX_IMAGE } else { &self.busybox_image }
    }

    pub fn retention(&self) -> RetentionPolicy {
        self.persistent_volume_claim_retention_policy.clone().unwrap_or_default()
    }
}

impl RetentionPolicy {
    pub fn retains_when_deleted(&self) -> bool {
        self.when_deleted == Some(RetentionPolicyType::Retain)
    }

    pub fn retains_when_scaled(&self) -> bool {
        self.when_scaled == Some(RetentionPolicyType::Retain)
    }
}
