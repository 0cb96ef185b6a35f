//! `spec.TLS` of an `EtcdCluster`.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Encryption of client and peer traffic.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
pub struct TlsPolicy {
    /// Certificates that you issue yourself and keep in Secrets of the cluster's namespace.
    #[serde(rename = "static", default, skip_serializing_if = "Option::is_none")]
    pub static_: Option<StaticTls>,
}

/// Secrets with certificates that you issued.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "(has(self.operatorSecret) && self.operatorSecret != '') == \
     (has(self.member) && has(self.member.serverSecret) && self.member.serverSecret != '')"
).message("operatorSecret and member.serverSecret go together: write both, or neither"))]
pub struct StaticTls {
    /// Certificates of the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberSecrets>,
    /// Secret with the client certificate that the operator shows to the members: `etcd-client-ca.crt`,
    /// `etcd-client.crt` and `etcd-client.key`. Needed as soon as `member.serverSecret` is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub operator_secret: String,
}

/// Secrets with the certificates of the members.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberSecrets {
    /// Secret for traffic between members: `peer-ca.crt`, `peer.crt` and `peer.key`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub peer_secret: String,
    /// Secret for traffic from clients: `server-ca.crt`, `server.crt` and `server.key`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub server_secret: String,
}
