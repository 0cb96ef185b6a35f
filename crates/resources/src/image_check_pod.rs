//! A throw-away pod that proves that an image can be pulled and run on a node, before a member there is touched.

use std::collections::BTreeMap;

use api::{annotations, labels};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration};
use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::{Cluster, member_pod::PROGRAM, security};

/// Named after what it tries, so that the same question is not asked twice.
pub fn image_check_name(cluster: &Cluster<'_>, version: &str, node: &str) -> String {
    let question = Sha256::digest(format!("{}\n{node}", cluster.image(version)));
    format!("{}-image-check-{}", cluster.name, hex::encode(&question[..4]))
}

/// Succeeds when `node` can run this version. It is bound to the node and tolerates everything: members that run on a
/// cordoned node are upgraded there, too.
pub fn image_check_pod(cluster: &Cluster<'_>, version: &str, node: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            annotations: Some(BTreeMap::from([(annotations::VERSION.to_owned(), version.to_owned())])),
            ..cluster.owned(image_check_name(cluster, version, node), labels::of_image_check(cluster.name))
        },
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            containers: vec![Container {
                name: "etcd-version".to_owned(),
                image: Some(cluster.image(version)),
                command: Some(vec![PROGRAM.to_owned(), "--version".to_owned()]),
                security_context: Some(security::of_container()),
                termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
                ..Container::default()
            }],
            enable_service_links: Some(false),
            // The pod's own name may be too long for a host.
            hostname: Some("image-check".to_owned()),
            node_name: Some(node.to_owned()),
            restart_policy: Some("Never".to_owned()),
            security_context: Some(security::of_pod(cluster.pod)),
            tolerations: Some(vec![Toleration {
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }]),
            ..PodSpec::default()
        }),
        status: None,
    }
}
