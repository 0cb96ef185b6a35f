//! Pure builders, one file per Kubernetes kind: what is to exist, from an `EtcdCluster` alone. No client.
//!
//! ```text
//! Cluster::of(&EtcdCluster) ─┬─ headless_service, client_service
//!                            ├─ pod_disruption_budget
//!                            ├─ member_pod, persistent_volume_claim; image_patch, mark_patch
//!                            └─ image_check_pod
//! ```

mod affinity;
mod check_dns;
mod cluster;
mod image_check_pod;
mod member_patch;
mod member_pod;
mod persistent_volume_claim;
mod pod_disruption_budget;
mod probes;
mod restored_seed;
mod security;
mod services;
mod template_hash;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, ClusterError};
pub use image_check_pod::{image_check_name, image_check_pod};
pub use member_patch::{adopt_patch, image_patch, mark_patch, stop_serving_patch};
pub use member_pod::{Bootstrap, CONTAINER, ENV_SNAPSHOT_COUNT, member_pod};
pub use persistent_volume_claim::{owner_patch, persistent_volume_claim};
pub use pod_disruption_budget::pod_disruption_budget;
pub use restored_seed::{BACKUP_PATH, RESTORE, VERIFY};
pub use services::{client_service, headless_service};
pub use template_hash::template_hash;
