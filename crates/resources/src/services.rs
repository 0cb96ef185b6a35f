//! The two Services of a cluster.

use api::{
    labels,
    names::{self, CLIENT_PORT, PEER_PORT},
};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::Cluster;

/// Gives every member its host name, from the moment that its pod has an address: members must find each other before
/// any of them is ready.
pub fn headless_service(cluster: &Cluster<'_>) -> Service {
    service(
        cluster,
        names::headless_service(cluster.name),
        ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(vec![port("client", CLIENT_PORT), port("peer", PEER_PORT)]),
            publish_not_ready_addresses: Some(true),
            selector: Some(labels::of_cluster(cluster.name)),
            ..ServiceSpec::default()
        },
    )
}

/// For clients: started voters only, since a learner looks healthy and refuses writes.
pub fn client_service(cluster: &Cluster<'_>) -> Service {
    service(
        cluster,
        names::client_service(cluster.name),
        ServiceSpec {
            ports: Some(vec![port("client", CLIENT_PORT)]),
            selector: Some(labels::serving(cluster.name)),
            ..ServiceSpec::default()
        },
    )
}

fn service(cluster: &Cluster<'_>, name: String, spec: ServiceSpec) -> Service {
    Service {
        metadata: cluster.owned(name, labels::of_cluster(cluster.name)),
        spec: Some(spec),
        status: None,
    }
}

fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number.into(),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(number.into())),
        ..ServicePort::default()
    }
}
