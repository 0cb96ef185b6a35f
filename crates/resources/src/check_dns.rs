//! The init container that waits for a member's own name in DNS: its peers find it by that name alone.

use api::v1beta2::PodPolicy;
use k8s_openapi::api::core::v1::Container;

use crate::security;

const SCRIPT: &str = include_str!("check_dns.sh");
/// coreos waited for ever where nothing was said; etcd looks its peers up again and again, so we need not.
const DEFAULT_SECONDS: i64 = 60;

pub fn check_dns(host: &str, pod: &PodPolicy) -> Container {
    let seconds = if pod.dns_timeout_in_second > 0 { pod.dns_timeout_in_second } else { DEFAULT_SECONDS };
    let command = ["/bin/sh", "-c", SCRIPT, "check-dns", host].map(str::to_owned);
    Container {
        name: "check-dns".to_owned(),
        image: Some(pod.busybox_image().to_owned()),
        command: Some(command.into_iter().chain([seconds.to_string()]).collect()),
        security_context: Some(security::of_container()),
        ..Container::default()
    }
}
