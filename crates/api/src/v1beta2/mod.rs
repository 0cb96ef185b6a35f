//! Version v1beta2 of the group, as coreos defined it, and what we added.

mod cluster;
mod pod;
mod status;
mod tls;

pub use cluster::{DEFAULT_REPOSITORY, DEFAULT_VERSION, EtcdCluster, EtcdClusterSpec, image};
pub use pod::{DEFAULT_BUSYBOX_IMAGE, PodPolicy, RetentionPolicy, RetentionPolicyType};
pub use status::{EtcdClusterStatus, MembersStatus, Phase, rounded_size};
pub use tls::{MemberSecrets, StaticTls, TlsPolicy};

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
fn is_false(value: &bool) -> bool {
    !value
}
