//! `status` of an `EtcdCluster`.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{is_false, is_zero};
use crate::conditions::Condition;

/// What the operator sees of the cluster. Written only when something in it changes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// `Creating` until the cluster was available once, `Running` ever after; `Failed` while it cannot serve or
    /// the spec asks for what the operator may not do (`reason` says why).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Why the phase is `Failed`, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// True while `spec.paused` keeps the operator's hands off.
    #[serde(default, skip_serializing_if = "is_false")]
    pub control_paused: bool,
    /// The aspects of the cluster's state, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Number of members that the etcd cluster has now, learners included.
    #[serde(default)]
    pub size: i32,
    /// How many of them are ready.
    #[serde(default)]
    pub ready_members: i32,
    /// Selects the pods of the members; for the scale subresource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The Service for clients.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service_name: String,
    /// The port of that Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_port: Option<i32>,
    /// The members by name.
    #[serde(default)]
    pub members: MembersStatus,
    /// Lowest version that a member runs.
    #[serde(default)]
    pub current_version: String,
    /// Version that the members are being moved to; empty when there is nothing to move.
    #[serde(default)]
    pub target_version: String,
    /// The member that the cluster began with: recorded before its pod is made, so that no other ever begins one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub seed: String,
    /// etcd's own ID of this cluster, in hex. Once recorded, no other cluster is ever taken for this one.
    #[serde(rename = "clusterID", default, skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The restore that was last begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreProgress>,
    /// The member that leads; empty while there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// Size of the largest member's database on disk, rounded up to two digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub db_size: String,
    /// `metadata.generation` of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// How far a restore has come.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreProgress {
    /// UID of the EtcdRestore.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The member that is made from the backup; no other ever is.
    #[schemars(length(max = 63))]
    pub seed: String,
    /// `Seeding` while that member is made and everything else is left alone, `Filling` once it is the cluster, `Done`
    /// when the cluster is full, or `Failed`.
    pub stage: RestoreStage,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What was found in the restored data before etcd started on it, as JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub restored: String,
    /// How often that member was made anew, because etcd's tool ended half-way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub again: i64,
    /// Members of before: nothing of their data is taken away until the restored cluster is full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub replaced: Vec<String>,
}

/// The steps of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RestoreStage {
    Seeding,
    Filling,
    Done,
    Failed,
}

/// Where a cluster is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    Creating,
    Running,
    Failed,
}

/// The members by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MembersStatus {
    /// Members that serve clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ready: Vec<String>,
    /// Members that are starting, joining, or down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub unready: Vec<String>,
    /// Those of `unready` that have no vote yet: the others are a cluster without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub joining: Vec<String>,
}

/// A size for people, in MiB and rounded up to two digits, so that a growing database does not rewrite status all day.
pub fn rounded_size(bytes: u64) -> String {
    let mebibytes = bytes.div_ceil(1024 * 1024);
    let step = 10_u64.pow(mebibytes.checked_ilog10().unwrap_or(0).saturating_sub(1));
    format!("{}Mi", mebibytes.div_ceil(step) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_two_digits() {
        const MIB: u64 = 1024 * 1024;
        for (bytes, text) in [
            (0, "0Mi"),
            (1, "1Mi"),
            (20 * 1024, "1Mi"),
            (MIB, "1Mi"),
            (MIB + 1, "2Mi"),
            (99 * MIB, "99Mi"),
            (100 * MIB, "100Mi"),
            (101 * MIB, "110Mi"),
            (2047 * MIB, "2100Mi"),
            (8192 * MIB, "8200Mi"),
        ] {
            assert_eq!(rounded_size(bytes), text, "{bytes}");
        }
    }
}
