//! `EtcdCluster`: a cluster of etcd members, declared by size and version.

use std::{sync::LazyLock, time::Duration};

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{EtcdClusterStatus, PodPolicy, TlsPolicy, is_false};

pub const DEFAULT_REPOSITORY: &str = "quay.io/coreos/etcd";
/// What coreos ran where nothing was said; a manifest without a version must go on meaning the same.
pub const DEFAULT_VERSION: &str = "3.2.13";
const DEFAULT_UNRESPONSIVE_SECONDS: u16 = 60;

/// What the cluster shall be. The operator makes it so, one safe step at a time, and keeps it so.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    singular = "etcdcluster",
    shortname = "etcdclus",
    shortname = "etcd",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "An etcd cluster: the operator creates, scales, heals and upgrades it while clients keep reading and writing.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.size",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size", description = "Members asked for"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyMembers", description = "Members ready"),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.currentVersion",
        description = "Lowest version that runs"
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".status.targetVersion",
        description = "Version that members are being moved to"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", priority = 1),
    printcolumn(
        name = "DB Size",
        type_ = "string",
        json_path = ".status.dbSize",
        description = "Largest database on disk",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 52")
        .message("metadata.name may have at most 52 characters: members are named after it, and a host name has 63"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must begin with a letter and hold only a-z, 0-9 and -, such as my-etcd: Services are named after it"),
)]
#[x_kube(validation = Rule::new(
    "(has(self.pod) && has(self.pod.persistentVolumeClaimSpec)) == \
     (has(oldSelf.pod) && has(oldSelf.pod.persistentVolumeClaimSpec))"
).message(
    "pod.persistentVolumeClaimSpec can be neither added to nor taken from a cluster that exists: write it as it was, or \
     make a new EtcdCluster and restore a backup into it"
))]
#[x_kube(validation = Rule::new(
    "(has(self.pod) && has(self.pod.ClusterDomain) ? self.pod.ClusterDomain : '') == \
     (has(oldSelf.pod) && has(oldSelf.pod.ClusterDomain) ? oldSelf.pod.ClusterDomain : '')"
).message("pod.ClusterDomain is part of every member's address and cannot be changed: write it as it was"))]
pub struct EtcdClusterSpec {
    /// Number of members, 1 to 7. Odd numbers are best: 3 survive the loss of one member, 5 of two; a fourth member
    /// adds work and no safety. `kubectl scale` works too.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 7").message("size must be 1 to 7; 3 or 5 for most clusters"))]
    pub size: i32,

    /// Where the image comes from: `repository:vX.Y.Z`, with `version` as the tag.
    #[serde(default = "default_repository")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self == '' || !self.contains('@') && !self.matches('.*:[^/]*$')").message(
        "repository is the image without tag or digest, such as quay.io/coreos/etcd: the tag is made from version"
    ))]
    pub repository: String,

    /// Version of etcd that the members shall run, such as 3.5.16. An edit upgrades member by member, and minor by
    /// minor where etcd demands it.
    #[serde(default = "default_version")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^v?(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)$')").message(
        "version must have three numbers, such as 3.5.16 or v3.5.16"
    ))]
    pub version: String,

    /// True: the operator lets the cluster be, and says so in status, until it is false again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,

    /// How the pods of the members are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodPolicy>,

    /// Encryption of traffic. Not built yet: a cluster that asks for it gets no pods, and a condition that says so.
    #[serde(rename = "TLS", default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPolicy>,

    /// After how many seconds without an answer a member that has its data is replaced by a new one, while the others
    /// keep quorum. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 10 && self <= 86400").message(
        "memberUnresponsiveSeconds must be 10 to 86400: less would replace members that are merely slow"
    ))]
    pub member_unresponsive_seconds: Option<i32>,
}

impl EtcdClusterSpec {
    /// Version without the leading `v` that users may write.
    pub fn version(&self) -> &str {
        match self.version.trim_start_matches('v') {
            "" => DEFAULT_VERSION,
            version => version,
        }
    }

    /// Image that members shall run in the end; [`image`] names those on the way.
    pub fn image(&self) -> String {
        image(&self.repository, self.version())
    }

    /// What the spec says of pods, or that nothing was said.
    pub fn pod(&self) -> &PodPolicy {
        static NOTHING_SAID: LazyLock<PodPolicy> = LazyLock::new(PodPolicy::default);
        self.pod.as_ref().unwrap_or(&NOTHING_SAID)
    }

    pub fn member_unresponsive(&self) -> Duration {
        let seconds = self.member_unresponsive_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Duration::from_secs(seconds.unwrap_or(DEFAULT_UNRESPONSIVE_SECONDS.into()))
    }
}

/// Image of one version of etcd.
pub fn image(repository: &str, version: &str) -> String {
    let repository = if repository.is_empty() { DEFAULT_REPOSITORY } else { repository };
    format!("{repository}:v{version}")
}

fn default_repository() -> String {
    DEFAULT_REPOSITORY.to_owned()
}

fn default_version() -> String {
    DEFAULT_VERSION.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_made_of_repository_and_version() {
        for (repository, version, image) in [
            ("", "", "quay.io/coreos/etcd:v3.2.13"),
            ("quay.io/coreos/etcd", "3.1.10", "quay.io/coreos/etcd:v3.1.10"),
            ("localhost:5000/etcd", "v3.5.16", "localhost:5000/etcd:v3.5.16"),
        ] {
            let spec = EtcdClusterSpec {
                repository: repository.into(),
                version: version.into(),
                ..EtcdClusterSpec::default()
            };
            assert_eq!(spec.image(), image);
        }
    }

    #[test]
    fn members_may_be_silent_for_a_minute_unless_the_spec_says_otherwise() {
        let mut spec = EtcdClusterSpec::default();
        assert_eq!(spec.member_unresponsive(), Duration::from_mins(1));
        spec.member_unresponsive_seconds = Some(15);
        assert_eq!(spec.member_unresponsive(), Duration::from_secs(15));
    }
}
