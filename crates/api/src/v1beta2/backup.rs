//! `EtcdBackup`: a backup of an etcd cluster, once or again and again.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{NoStore, Store, Stores, is_false, is_zero};
use crate::conditions::Condition;

/// So long that a database of the greatest size that etcd advises fits through a slow line.
const DEFAULT_TIMEOUT: Duration = Duration::from_hours(1);

/// What is backed up, where to, and when.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdBackup",
    plural = "etcdbackups",
    singular = "etcdbackup",
    namespaced,
    status = "EtcdBackupStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A backup of an etcd cluster: one that is made once, or again and again by its policy. Deleting it keeps what it made.",
    printcolumn(name = "Succeeded", type_ = "boolean", json_path = ".status.succeeded"),
    printcolumn(
        name = "Last Backup",
        type_ = "date",
        json_path = ".status.lastSuccessDate",
        description = "Since the last good backup"
    ),
    printcolumn(
        name = "Revision",
        type_ = "integer",
        json_path = ".status.etcdRevision",
        description = "Revision of the last good backup"
    ),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextBackup", priority = 1),
    printcolumn(name = "Object", type_ = "string", json_path = ".status.lastObject", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.Reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new(
    "has(self.clusterRef) != (has(self.etcdEndpoints) && size(self.etcdEndpoints) > 0)"
).message("write either clusterRef, an EtcdCluster of this namespace, or etcdEndpoints, not both"))]
#[x_kube(validation = Rule::new("self.storageType in ['S3', 'ABS', 'GCS', 'Volume']").message(
    "storageType must be S3, ABS, GCS or Volume"
))]
#[x_kube(validation = Rule::new(
    "!(self.storageType == 'S3' && !has(self.s3) || self.storageType == 'ABS' && !has(self.abs) || \
     self.storageType == 'GCS' && !has(self.gcs) || self.storageType == 'Volume' && !has(self.volume))"
).message("the section of the storageType must say where to: s3 for S3, abs for ABS, gcs for GCS, volume for Volume"))]
#[x_kube(validation = Rule::new(
    "!(has(self.schedule) && self.schedule != '' && has(self.backupPolicy) && \
     has(self.backupPolicy.backupIntervalInSecond) && self.backupPolicy.backupIntervalInSecond > 0)"
).message("write either schedule or backupPolicy.backupIntervalInSecond, not both"))]
#[x_kube(validation = Rule::new(
    "!(has(self.timeZone) && self.timeZone != '') || (has(self.schedule) && self.schedule != '')"
).message("timeZone is that of schedule: write a schedule, too, or neither"))]
pub struct EtcdBackupSpec {
    /// Addresses of the cluster's client port, such as `http://example-etcd-cluster-client:2379`. One is enough: the
    /// others are found through it. Names without a dot are looked up in this namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 1024)))]
    #[x_kube(validation = Rule::new("self.all(url, url.matches('^https?://[^/]+/?$'))").message(
        "each of etcdEndpoints must be a URL such as http://example-etcd-cluster-client:2379"
    ))]
    pub etcd_endpoints: Vec<String>,

    /// The EtcdCluster of this namespace that is backed up; in place of `etcdEndpoints`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,

    /// Where backups are kept: `S3`, `ABS` (Azure Blob Storage), `GCS` (Google Cloud Storage) or `Volume`. The section
    /// of that name says the rest.
    #[schemars(length(max = 64))]
    pub storage_type: String,

    /// How often, how many, and how long one may take. Without it, one backup is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_policy: Option<BackupPolicy>,

    /// When to make backups, as cron writes it: minute, hour, day of the month, month, day of the week. Such as
    /// `0 3 * * *`, every day at three.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub schedule: String,

    /// Time zone of `schedule`, such as `Europe/Berlin`. Default: UTC.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,

    /// True: no backup is begun until it is false again. Those that were made stay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,

    /// Secret with the certificate to show to the members: `etcd-client-ca.crt`, `etcd-client.crt` and
    /// `etcd-client.key`. Not built yet: a backup that asks for it is refused, and says so.
    #[serde(rename = "clientTLSSecret", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub client_tls_secret: String,

    #[serde(flatten)]
    pub stores: Stores,
}

/// An EtcdCluster of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// The name of the EtcdCluster, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How often, how many, how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// How many seconds one backup may take before it is given up and tried again. 0 or absent: 3600.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[x_kube(validation = Rule::new("self >= 0").message("timeoutInSecond must be 0 or more; 0 means the default of 3600"))]
    pub timeout_in_second: i64,
    /// A backup every so many seconds. 0 or absent: one backup, unless there is a `schedule`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[x_kube(validation = Rule::new("self >= 0").message("backupIntervalInSecond must be 0 or more; 0 means once"))]
    pub backup_interval_in_second: i64,
    /// How many good backups of this EtcdBackup are kept; older ones are deleted. 0 or absent: all.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[x_kube(validation = Rule::new("self >= 0").message("maxBackups must be 0 or more; 0 means all"))]
    pub max_backups: i64,
    /// Backups of this EtcdBackup that are older are deleted, never the newest good one. 0 or absent: none for its age.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[x_kube(validation = Rule::new("self >= 0").message("maxAgeSeconds must be 0 or more; 0 means for ever"))]
    pub max_age_seconds: i64,
}

/// What became of the backup. The fields speak of the last good one; `Reason` of the last attempt, if that failed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStatus {
    /// True once a backup was made and verified; false again while the last attempt failed.
    #[serde(default)]
    pub succeeded: bool,
    /// Why the last attempt failed, and what to do.
    #[serde(rename = "Reason", default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Version of etcd that the last good backup was made of.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etcd_version: String,
    /// Revision of the last good backup.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub etcd_revision: i64,
    /// When the last good backup was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_date: Option<Time>,
    /// The moment that the last good backup was due at: no other is made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<Time>,
    /// Where the last good backup is, as `path` names it: what an EtcdRestore takes for `path`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_object: String,
    /// Size of the last good backup in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size_bytes: i64,
    /// How many live keys it holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keys: i64,
    /// How many good backups of this EtcdBackup are in the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept: i64,
    /// When the next backup, or the next attempt, begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_backup: Option<Time>,
    /// How many attempts failed since the last good backup, or since the spec changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i64,
    /// When the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Time>,
    /// The attempt under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<BackupProgress>,
    /// The aspects of the backup's state, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// `metadata.generation` of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// An attempt under way.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupProgress {
    /// The moment that it was due at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Time>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// How much is in the store so far, rounded up to two digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
}

impl EtcdBackupSpec {
    pub fn store(&self) -> Result<Store<'_>, NoStore> {
        self.stores.chosen("storageType", &self.storage_type)
    }

    /// The EtcdCluster of `namespace` that is backed up, as far as the spec tells: by reference, or by its Service.
    pub fn cluster_name(&self, namespace: &str) -> Option<&str> {
        match &self.cluster_ref {
            Some(named) => Some(&named.name),
            None => self.etcd_endpoints.first().and_then(|url| cluster_behind(url, namespace)),
        }
    }

    /// The same once, at once, and to a place beside.
    #[must_use]
    pub fn once_more(&self, suffix: &str) -> Self {
        let timeout = |policy: &BackupPolicy| BackupPolicy {
            timeout_in_second: policy.timeout_in_second,
            ..BackupPolicy::default()
        };
        Self {
            backup_policy: self.backup_policy.as_ref().map(timeout),
            schedule: String::new(),
            time_zone: String::new(),
            suspend: false,
            stores: self.stores.followed_by(suffix),
            ..self.clone()
        }
    }

    /// What the spec says of how often and how many, or that nothing was said.
    pub fn policy(&self) -> BackupPolicy {
        self.backup_policy.clone().unwrap_or_default()
    }
}

impl BackupPolicy {
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_in_second).unwrap_or(DEFAULT_TIMEOUT)
    }

    pub fn interval(&self) -> Option<Duration> {
        seconds(self.backup_interval_in_second)
    }

    pub fn max_age(&self) -> Option<Duration> {
        seconds(self.max_age_seconds)
    }

    pub fn max_backups(&self) -> Option<usize> {
        usize::try_from(self.max_backups).ok().filter(|most| *most > 0)
    }
}

/// The EtcdCluster whose Service a URL names, if that is how it is written.
fn cluster_behind<'a>(url: &'a str, namespace: &str) -> Option<&'a str> {
    let host = url.split_once("://")?.1.split([':', '/']).next()?;
    let (service, rest) = host.split_once('.').unwrap_or((host, ""));
    let here = rest.is_empty() || rest.split('.').next() == Some(namespace);
    service.strip_suffix("-client").filter(|_| here)
}

/// Zero means that nothing was said; so does less, which the CRD's rules refuse.
fn seconds(value: i64) -> Option<Duration> {
    u64::try_from(value).ok().filter(|value| *value > 0).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("http://example-etcd-cluster-client:2379", Some("example-etcd-cluster"))]
    #[case("http://c-client.here.svc:2379", Some("c"))]
    #[case("http://c-client/", Some("c"))]
    #[case("http://c-client.here.svc.cluster.local:2379", Some("c"))]
    #[case("http://c-client.there.svc:2379", None)]
    #[case("http://10.0.0.1:2379", None)]
    #[case("http://etcd:2379", None)]
    fn the_cluster_is_known_by_its_service(#[case] url: &str, #[case] cluster: Option<&str>) {
        assert_eq!(cluster_behind(url, "here"), cluster);
    }
}
