//! The init container that waits for a member's own name in DNS, by which alone its peers find it, and for the others to
//! list it: pods are made ahead of their members, and etcd ends at once where it is not expected.

use api::v1beta2::PodPolicy;
use k8s_openapi::api::core::v1::{Container, EnvVar};

use crate::security;

const SCRIPT: &str = include_str!("check_dns.sh");
/// coreos waited for ever where nothing was said; etcd looks its peers up again and again, so we need not.
const DEFAULT_SECONDS: i64 = 60;

pub fn check_dns(host: &str, initial_cluster: EnvVar, pod: &PodPolicy) -> Container {
    let seconds = if pod.dns_timeout_in_second > 0 { pod.dns_timeout_in_second } else { DEFAULT_SECONDS };
    let command = ["/bin/sh", "-c", SCRIPT, "check-dns", host].map(str::to_owned);
    Container {
        name: "check-dns".to_owned(),
        image: Some(pod.busybox_image().to_owned()),
        command: Some(command.into_iter().chain([seconds.to_string()]).collect()),
        env: Some(vec![initial_cluster]),
        security_context: Some(security::of_container()),
        ..Container::default()
    }
}
