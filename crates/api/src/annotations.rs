//! Annotations of the pods that we make, and the one that a restore puts on an `EtcdCluster`.

/// Version of etcd that the pod was last set to run, without a leading `v`.
pub const VERSION: &str = "etcd.version";
/// Value of `--initial-cluster-state`, which the kubelet reads anew at every start of the container.
pub const INITIAL_CLUSTER_STATE: &str = "etcd.database.coreos.com/initial-cluster-state";
/// Value of `--initial-cluster`, which the kubelet reads anew at every start of the container.
pub const INITIAL_CLUSTER: &str = "etcd.database.coreos.com/initial-cluster";
/// Hash of what `spec.pod` asked for when the pod was made; another hash means that it is to be rolled out.
pub const TEMPLATE_HASH: &str = "etcd.database.coreos.com/template-hash";
/// UID of the claim that holds the member's data: a claim of the same name and another UID is not that data.
pub const VOLUME_UID: &str = "etcd.database.coreos.com/volume-uid";
/// Whether the member has started once. The init containers of a restored seed read it anew at every start: a pod that
/// starts over on a member's data must not put the backup in its place.
pub const STARTED: &str = "etcd.database.coreos.com/started";

/// On an `EtcdCluster`: the [`RestoreRequest`](crate::v1beta2::RestoreRequest), as JSON. It stays when it was served.
pub const RESTORE: &str = "etcd.database.coreos.com/restore";

/// On an `EtcdBackup` that was made before an upgrade: the one that it is a copy of.
pub const BACKUP_OF: &str = "etcd.database.coreos.com/backup-of";
/// Beside [`BACKUP_OF`]: the version that the cluster goes to after it.
pub const BEFORE: &str = "etcd.database.coreos.com/before";

/// [`INITIAL_CLUSTER_STATE`] of the seed of a new cluster.
pub const STATE_NEW: &str = "new";
/// [`INITIAL_CLUSTER_STATE`] of every other member, and of the seed once it has started.
pub const STATE_EXISTING: &str = "existing";
/// [`INITIAL_CLUSTER`] of a member that has started. A member with data ignores it; one whose data was wiped does not
/// find its own name in it and exits, instead of making a second cluster.
pub const DISARMED: &str = "data-lost=http://data-lost.invalid:2380";

/// Whether the operator alone may set this annotation on pods.
pub fn is_reserved(key: &str) -> bool {
    key == VERSION || key.starts_with("etcd.database.coreos.com/")
}
