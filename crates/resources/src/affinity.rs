//! Where members may run.

use api::{labels, v1beta2::PodPolicy};
use k8s_openapi::{
    api::core::v1::{Affinity, PodAffinityTerm, PodAntiAffinity, WeightedPodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

/// What the spec says; else apart from each other: always where `antiAffinity` is set, and where it can be otherwise.
pub fn affinity(cluster: &str, pod: &PodPolicy) -> Affinity {
    if let Some(affinity) = &pod.affinity {
        return affinity.clone();
    }
    let apart = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(labels::of_cluster(cluster)),
            ..LabelSelector::default()
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    let rule = if pod.anti_affinity {
        PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![apart]),
            ..PodAntiAffinity::default()
        }
    } else {
        PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                pod_affinity_term: apart,
                weight: 100,
            }]),
            ..PodAntiAffinity::default()
        }
    };
    Affinity { pod_anti_affinity: Some(rule), ..Affinity::default() }
}
