//! What a drain must leave of a cluster.

use api::{labels, names};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use crate::Cluster;

/// Keeps `min_available` started voters, the quorum of the membership as it is now. A learner counts for nothing.
pub fn pod_disruption_budget(cluster: &Cluster<'_>, min_available: i32) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: cluster.owned(names::disruption_budget(cluster.name), labels::of_cluster(cluster.name)),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(min_available)),
            selector: Some(LabelSelector {
                match_labels: Some(labels::serving(cluster.name)),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
