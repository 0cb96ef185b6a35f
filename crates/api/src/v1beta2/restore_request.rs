//! What the restore controller asks of the cluster controller, once it has verified a backup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EtcdCluster;
use crate::annotations;

/// The value of the annotation [`annotations::RESTORE`]: all that is needed to make a member from a backup, and no secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreRequest {
    /// UID of the `EtcdRestore`: no request is served twice.
    pub uid: String,
    /// Name of the `EtcdRestore`.
    pub name: String,
    /// Image of this operator, which fetches and verifies.
    pub image: String,
    /// Where the backup is, as `etcd-operator snapshot fetch --source` takes it.
    pub source: Value,
    /// Secret that opens the store, if one is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Claim that holds the backup, if it is on a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Version of etcd that made the backup; with patch 0 only the minor is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Digest of the live keys and values of the backup that was verified.
    pub digest: String,
}

/// Why the annotation is not understood.
#[derive(Debug)]
pub struct BadRequest(serde_json::Error);

impl std::fmt::Display for BadRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the annotation {} is not understood: take it away ({})", annotations::RESTORE, self.0)
    }
}

impl std::error::Error for BadRequest {}

impl RestoreRequest {
    /// The request on this cluster, if there is one.
    pub fn on(cluster: &EtcdCluster) -> Result<Option<Self>, BadRequest> {
        let annotations = cluster.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(annotations::RESTORE));
        text.map(|text| serde_json::from_str(text)).transpose().map_err(BadRequest)
    }

    /// The annotation to put onto the cluster.
    pub fn annotation(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(annotations::RESTORE.to_owned(), serde_json::json!(self).to_string())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RestoreRequest {
        RestoreRequest {
            uid: "u".into(),
            name: "r".into(),
            image: "operator:1".into(),
            source: serde_json::json!({"s3": {"path": "b/k"}}),
            secret: Some("aws".into()),
            claim: None,
            etcd_version: Some("3.5.16".into()),
            digest: "d".into(),
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let mut cluster = EtcdCluster::default();
        assert_eq!(RestoreRequest::on(&cluster).unwrap(), None);
        cluster.metadata.annotations = Some(request().annotation());
        assert_eq!(RestoreRequest::on(&cluster).unwrap(), Some(request()));
        cluster.metadata.annotations =
            Some(BTreeMap::from([(annotations::RESTORE.to_owned(), "{}".to_owned())]));
        assert!(RestoreRequest::on(&cluster).unwrap_err().to_string().contains("take it away"));
    }
}
