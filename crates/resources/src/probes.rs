//! Probes of a member. An in-place upgrade cannot change them: this one set suits 3.1 to 3.6, and needs no shell.

use api::names::{CLIENT_PORT, PEER_PORT};
use k8s_openapi::{
    api::core::v1::{HTTPGetAction, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};

/// The peer port answers as soon as the member has loaded its data, with or without quorum. A member that still loads,
/// or waits for others, is left alone for a day.
pub fn startup() -> Probe {
    Probe {
        http_get: Some(get(PEER_PORT, "/version")),
        period_seconds: Some(1),
        timeout_seconds: Some(2),
        failure_threshold: Some(24 * 60 * 60),
        ..Probe::default()
    }
}

/// Only a process that hangs fails this; a member without quorum does not.
pub fn liveness() -> Probe {
    Probe {
        http_get: Some(get(PEER_PORT, "/version")),
        period_seconds: Some(15),
        timeout_seconds: Some(10),
        failure_threshold: Some(20),
        ..Probe::default()
    }
}

/// Quick to say yes, and slower than an election to say no. A full database must not take the whole Service away, or
/// nobody could compact it; etcd before 3.5 does not know `exclude` and ignores it.
pub fn readiness() -> Probe {
    Probe {
        http_get: Some(get(CLIENT_PORT, "/health?exclude=NOSPACE")),
        period_seconds: Some(1),
        timeout_seconds: Some(2),
        failure_threshold: Some(5),
        ..Probe::default()
    }
}

fn get(port: u16, path: &str) -> HTTPGetAction {
    HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::Int(port.into()),
        ..HTTPGetAction::default()
    }
}
