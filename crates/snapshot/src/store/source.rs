//! Where a backup is, as it is passed on: between processes, and on command lines.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One object of one store. Secrets are never part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum StoreSource {
    /// S3 and what speaks its protocol.
    S3 {
        /// `bucket/key`.
        path: String,
        /// Goes before `endpoint_url` of the secret's `config`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint: Option<String>,
        #[serde(default)]
        force_path_style: bool,
        /// The section of the secret's files; `default` unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
        /// Goes before `region` of the secret's `config`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    },
    /// Google Cloud Storage.
    Gcs {
        /// `bucket/key`.
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint: Option<String>,
    },
    /// Azure Blob Storage.
    Azure {
        /// `container/key`.
        path: String,
        /// The address of the account, where it is not that of the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint: Option<String>,
    },
    /// A folder: a volume that is mounted, or any other.
    Volume {
        root: PathBuf,
        /// Below `root`.
        path: String,
    },
}

impl StoreSource {
    /// The same store, with another object.
    #[must_use]
    pub fn with_path(mut self, new: impl Into<String>) -> Self {
        match &mut self {
            Self::S3 { path, .. }
            | Self::Gcs { path, .. }
            | Self::Azure { path, .. }
            | Self::Volume { path, .. } => *path = new.into(),
        }
        self
    }

    pub fn path(&self) -> &str {
        match self {
            Self::S3 { path, .. }
            | Self::Gcs { path, .. }
            | Self::Azure { path, .. }
            | Self::Volume { path, .. } => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_from_a_command_line() {
        let json = r#"{"type":"s3","path":"mybucket/etcd.backup","endpoint":"http://s3:7070","forcePathStyle":true}"#;
        let source: StoreSource = serde_json::from_str(json).unwrap();
        assert_eq!(
            source,
            StoreSource::S3 {
                path: "mybucket/etcd.backup".into(),
                endpoint: Some("http://s3:7070".into()),
                force_path_style: true,
                profile: None,
                region: None,
            }
        );
        assert_eq!(serde_json::to_string(&source).unwrap(), json);
        let volume: StoreSource =
            serde_json::from_str(r#"{"type":"volume","root":"/backups","path":"a/b"}"#).unwrap();
        assert_eq!(volume.with_path("c"), StoreSource::Volume { root: "/backups".into(), path: "c".into() });
    }

    #[test]
    fn a_misspelt_field_is_no_source() {
        serde_json::from_str::<StoreSource>(r#"{"type":"s3","path":"b/k","endpiont":"x"}"#).unwrap_err();
        serde_json::from_str::<StoreSource>(r#"{"type":"ftp","path":"b/k"}"#).unwrap_err();
    }
}
