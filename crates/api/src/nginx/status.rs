//! `status`, the same in every version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What the operator sees of the operand. Written only when something in it changes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NginxOperatorStatus {
    /// `metadata.generation` of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods that the operand has now.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them answer.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Selects the pods; for the scale subresource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The image that the operand was last told to run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The aspects of the state, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
