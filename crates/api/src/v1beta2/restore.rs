//! `EtcdRestore`: brings the data of a backup back, into a cluster of its name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{ClusterRef, EtcdClusterSpec, NoStore, Store, Stores, is_false, is_zero};
use crate::conditions::Condition;

/// Which backup goes into which cluster.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdRestore",
    plural = "etcdrestores",
    singular = "etcdrestore",
    namespaced,
    status = "EtcdRestoreStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "One restore of a backup into the EtcdCluster of the same name. It runs once: to restore again, make another.",
    printcolumn(name = "Succeeded", type_ = "boolean", json_path = ".status.succeeded"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Revision",
        type_ = "integer",
        json_path = ".status.backup.revision",
        description = "Revision of the backup"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name == self.spec.etcdCluster.name")
        .message("metadata.name must be the name of the EtcdCluster that is restored: write spec.etcdCluster.name there, too"),
)]
#[x_kube(validation = Rule::new("self.backupStorageType in ['S3', 'ABS', 'GCS', 'Volume']").message(
    "backupStorageType must be S3, ABS, GCS or Volume"
))]
#[x_kube(validation = Rule::new(
    "!(self.backupStorageType == 'S3' && !has(self.s3) || self.backupStorageType == 'ABS' && !has(self.abs) || \
     self.backupStorageType == 'GCS' && !has(self.gcs) || self.backupStorageType == 'Volume' && !has(self.volume))"
).message("the section of the backupStorageType must say where the backup is: s3 for S3, abs for ABS, gcs for GCS, volume for Volume"))]
pub struct EtcdRestoreSpec {
    /// The EtcdCluster that is restored. If there is none of that name, one is made.
    pub etcd_cluster: ClusterRef,

    /// Where the backup is kept: `S3`, `ABS` (Azure Blob Storage), `GCS` (Google Cloud Storage) or `Volume`. The section
    /// of that name says the rest.
    #[schemars(length(max = 64))]
    pub backup_storage_type: String,

    #[serde(flatten)]
    pub stores: Stores,

    /// True: a healthy cluster is replaced by the backup, and so is one whose members hold, or may hold, what the backup
    /// lacks. That data is gone then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,

    /// Spec of the EtcdCluster, where there is none of that name. Without it, the one that was saved with the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_template: Option<EtcdClusterSpec>,
}

/// What became of the restore.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// True once the restored cluster is full and holds what the backup holds.
    #[serde(default)]
    pub succeeded: bool,
    /// Why it failed, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The step that it is at, or `Succeeded` or `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When the EtcdCluster was asked to begin with the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Time>,
    /// When it ended, either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// What the backup holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupContents>,
    /// What the restored data directory holds, read before etcd started on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<BackupContents>,
    /// What the members that could still be reached held, and where it was saved, or why it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub survivors: Vec<Survivor>,
    /// The aspects of the restore's state, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// `metadata.generation` of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What a backup, or the data made of it, holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupContents {
    /// Version of etcd that made it, where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etcd_version: String,
    /// Its revision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: i64,
    /// How many live keys it holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keys: i64,
    /// Digest of the live keys and values.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Size of the file in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size_bytes: i64,
}

/// A member that could still be reached after quorum was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Survivor {
    /// Its name.
    pub member: String,
    /// Its revision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: i64,
    /// How many revisions it holds that the backup lacks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: i64,
    /// Where its snapshot was saved, as `path` names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub saved_to: String,
    /// Why its snapshot was not saved, where `force` went on without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_saved: String,
}

impl EtcdRestoreSpec {
    pub fn store(&self) -> Result<Store<'_>, NoStore> {
        self.stores.chosen("backupStorageType", &self.backup_storage_type)
    }
}
