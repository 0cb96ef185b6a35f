//! Version v1beta2 of the group, as coreos defined it, and what we added.

mod backup;
mod cluster;
mod env;
mod pod;
mod restore;
mod restore_request;
mod status;
mod store;
mod tls;

pub use backup::{BackupPolicy, BackupProgress, ClusterRef, EtcdBackup, EtcdBackupSpec, EtcdBackupStatus};
pub use cluster::{DEFAULT_REPOSITORY, DEFAULT_VERSION, EtcdCluster, EtcdClusterSpec, image};
pub use env::{REFUSED_ENV, RefusedEnv};
pub use pod::{DEFAULT_BUSYBOX_IMAGE, PodPolicy, RetentionPolicy, RetentionPolicyType};
pub use restore::{BackupContents, EtcdRestore, EtcdRestoreSpec, EtcdRestoreStatus, Survivor};
pub use restore_request::{BadRequest, RestoreRequest};
pub use status::{EtcdClusterStatus, MembersStatus, Phase, RestoreProgress, RestoreStage, rounded_size};
pub use store::{AbsSource, GcsSource, NoStore, S3Source, Store, Stores, VolumeSource};
pub use tls::{MemberSecrets, StaticTls, TlsPolicy};

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
fn is_zero(value: &i64) -> bool {
    *value == 0
}
