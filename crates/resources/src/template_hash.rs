//! What of `spec.pod` needs new pods when it changes.

use api::v1beta2::PodPolicy;
use k8s_openapi::api::core::v1::ResourceRequirements;
use sha2::{Digest, Sha256};

/// Hash of the fields of `spec.pod` that a running pod cannot take up. It is made from what the user wrote, not from
/// the pod that we build, so that a new operator with other defaults does not roll every cluster out.
pub fn template_hash(pod: &PodPolicy) -> Result<String, serde_json::Error> {
    // Without `..`: a new field does not compile until somebody decides whether it needs a rollout. One that does, and
    // that is not written when nothing was said, leaves the hash of those who say nothing as it is.
    let template = PodPolicy {
        labels: pod.labels.clone(),
        annotations: pod.annotations.clone(),
        node_selector: pod.node_selector.clone(),
        affinity: pod.affinity.clone(),
        anti_affinity: pod.anti_affinity,
        resources: pod.resources.clone().filter(|resources| *resources != ResourceRequirements::default()),
        tolerations: pod.tolerations.clone(),
        etcd_env: pod.etcd_env.clone(),
        security_context: pod.security_context.clone(),
        // For new pods only: they concern the init container, which has done its work.
        busybox_image: String::new(),
        dns_timeout_in_second: 0,
        // Cannot be changed, or not of pods.
        persistent_volume_claim_spec: None,
        persistent_volume_claim_retention_policy: None,
        cluster_domain: String::new(),
    };
    let digest = Sha256::digest(serde_json::to_vec(&template)?);
    Ok(hex::encode(&digest[..8]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hash(pod: Value) -> String {
        template_hash(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    #[test]
    fn stays_the_same_over_releases() {
        assert_eq!(hash(json!({})), "44136fa355b3678a");
        let everything = json!({
            "labels": {"a": "b"}, "annotations": {"c": "d"}, "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {}}, "antiAffinity": true, "resources": {"limits": {"cpu": "1"}},
            "tolerations": [{"operator": "Exists"}], "etcdEnv": [{"name": "ETCD_LOG_LEVEL", "value": "debug"}],
            "securityContext": {"runAsUser": 7},
        });
        assert_eq!(hash(everything), "4de5dbc97faf5319");
    }

    #[test]
    fn ignores_the_order_of_fields_and_ways_to_write_the_same() {
        let one =
            r#"{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "nodeSelector": {"a": "1", "b": "2"}}"#;
        let two = r#"{"nodeSelector": {"b": "2", "a": "1"}, "resources": {"limits": {"memory": "1Gi", "cpu": "1"}}}"#;
        assert_eq!(hash(serde_json::from_str(one).unwrap()), hash(serde_json::from_str(two).unwrap()));
        assert_eq!(hash(json!({})), hash(json!({"resources": {}, "tolerations": [], "antiAffinity": false})));
    }

    #[test]
    fn changes_with_what_needs_new_pods() {
        let pods = [
            json!({}),
            json!({"labels": {"a": "b"}}),
            json!({"annotations": {"a": "b"}}),
            json!({"nodeSelector": {"disk": "ssd"}}),
            json!({"affinity": {}}),
            json!({"antiAffinity": true}),
            json!({"resources": {"requests": {"cpu": "1"}}}),
            json!({"tolerations": [{"operator": "Exists"}]}),
            json!({"etcdEnv": [{"name": "ETCD_LOG_LEVEL", "value": "debug"}]}),
            json!({"securityContext": {"runAsUser": 7}}),
        ];
        let hashes: std::collections::BTreeSet<_> = pods.iter().map(|pod| hash(pod.clone())).collect();
        assert_eq!(hashes.len(), pods.len());
    }

    #[test]
    fn does_not_change_with_the_rest() {
        for pod in [
            json!({"busyboxImage": "busybox"}),
            json!({"DNSTimeoutInSecond": 5}),
            json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}),
        ] {
            assert_eq!(hash(pod.clone()), hash(json!({})), "{pod}");
        }
    }
}
