//! Where backups are kept: what `EtcdBackup` and `EtcdRestore` say of it, in the same words.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::is_false;

/// An object in S3, or in a store that speaks its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Source {
    /// Bucket and key, such as `mybucket/etcd.backup`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[^/]+/.*[^/]$')").message(
        "path must be the bucket, a slash and the key, such as mybucket/etcd.backup"
    ))]
    pub path: String,
    /// Secret of the same namespace with AWS's own files: `credentials`, and `config` for region and `endpoint_url`.
    /// Without it, the identity of the operator's pod is used; a restore needs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub aws_secret: String,
    /// Address of a store that is not Amazon's, such as `https://minio.example.com:9000`; goes before `endpoint_url`
    /// of the secret's `config`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub endpoint: String,
    /// True: the bucket is part of the path of the URL, not of its host name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force_path_style: bool,
    /// Profile of the secret's files; `default` where nothing is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub profile: String,
    /// Region of the bucket; goes before that of the secret's `config`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub region: String,
}

/// An object in Azure Blob Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbsSource {
    /// Container and blob, such as `mycontainer/etcd.backup`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[^/]+/.*[^/]$')").message(
        "path must be the container, a slash and the blob, such as mycontainer/etcd.backup"
    ))]
    pub path: String,
    /// Secret of the same namespace with `storage-account`, `storage-key` and, where it is not Azure's public one,
    /// `cloud`. Without it, the identity of the operator's pod is used; a restore needs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub abs_secret: String,
    /// Address of a store that is not Azure's, with the account behind it, such as
    /// `http://azurite.example.com:10000/devstoreaccount1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub endpoint: String,
}

/// An object in Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsSource {
    /// Bucket and object, such as `mybucket/etcd.backup`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^[^/]+/.*[^/]$')").message(
        "path must be the bucket, a slash and the object, such as mybucket/etcd.backup"
    ))]
    pub path: String,
    /// Secret of the same namespace with `access-token` or `credentials.json`. Without it, the identity of the
    /// operator's pod is used; a restore needs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub gcp_secret: String,
    /// Address of a store that is not Google's, such as `http://gcs.example.com:4443`. Without it, Google's own is
    /// used.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub endpoint: String,
}

/// A file on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSource {
    /// PersistentVolumeClaim of the same namespace. The operator's Deployment must mount it, at the folder of this name
    /// in `--volumes`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')").message(
        "claimName is the name of a PersistentVolumeClaim, such as etcd-backups"
    ))]
    pub claim_name: String,
    /// The file, from the root of the volume, such as `etcd.backup`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(
        "self != '' && !self.endsWith('/') && !self.matches('(^|.*/)[.]{1,2}(/.*|$)')"
    ).message("path must be a file below the root of the volume, such as prod/etcd.backup"))]
    pub path: String,
}

/// The store that a spec chose, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store<'a> {
    S3(&'a S3Source),
    Abs(&'a AbsSource),
    Gcs(&'a GcsSource),
    Volume(&'a VolumeSource),
}

impl<'a> Store<'a> {
    /// Where, as the spec writes it.
    pub fn path(&self) -> &'a str {
        match self {
            Self::S3(source) => &source.path,
            Self::Abs(source) => &source.path,
            Self::Gcs(source) => &source.path,
            Self::Volume(source) => &source.path,
        }
    }

    /// The Secret that opens it, if one is needed.
    pub fn secret(&self) -> Option<&'a str> {
        let name = match self {
            Self::S3(source) => source.aws_secret.as_str(),
            Self::Abs(source) => source.abs_secret.as_str(),
            Self::Gcs(source) => source.gcp_secret.as_str(),
            Self::Volume(_) => "",
        };
        (!name.is_empty()).then_some(name)
    }
}

/// The sections of a spec, one for each store; a type beside them chooses one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stores {
    /// S3, or a store that speaks its protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Source>,
    /// Azure Blob Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs: Option<AbsSource>,
    /// Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsSource>,
    /// A volume: a claim that is mounted into the operator, and a path in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeSource>,
}

impl Stores {
    /// The one that `type_` names; coreos named the `field` of it twice. The CRD's rules refuse the rest before it is
    /// stored, unless the CRD is an older one.
    pub fn chosen(&self, field: &'static str, type_: &str) -> Result<Store<'_>, NoStore> {
        let (chosen, section) = match type_ {
            "S3" => (self.s3.as_ref().map(Store::S3), "s3"),
            "ABS" => (self.abs.as_ref().map(Store::Abs), "abs"),
            "GCS" => (self.gcs.as_ref().map(Store::Gcs), "gcs"),
            "Volume" => (self.volume.as_ref().map(Store::Volume), "volume"),
            other => return Err(NoStore::Unknown { field, type_: other.to_owned() }),
        };
        chosen.ok_or(NoStore::Missing { field, type_: type_.to_owned(), section })
    }

    /// The same places, and `suffix` behind each.
    #[must_use]
    pub fn followed_by(&self, suffix: &str) -> Self {
        let mut stores = self.clone();
        let paths = [
            stores.s3.as_mut().map(|source| &mut source.path),
            stores.abs.as_mut().map(|source| &mut source.path),
            stores.gcs.as_mut().map(|source| &mut source.path),
            stores.volume.as_mut().map(|source| &mut source.path),
        ];
        paths.into_iter().flatten().for_each(|path| path.push_str(suffix));
        stores
    }
}

/// Why a spec names no store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStore {
    Unknown { field: &'static str, type_: String },
    Missing { field: &'static str, type_: String, section: &'static str },
}

impl std::fmt::Display for NoStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { field, type_ } => {
                write!(f, "{field} {type_:?} is not known: write S3, ABS, GCS or Volume")
            }
            Self::Missing { field, type_, section } => {
                write!(f, "{field} is {type_}, and spec.{section} is not there: write where the backup is")
            }
        }
    }
}

impl std::error::Error for NoStore {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_chooses_the_section() {
        let s3 = S3Source { path: "b/k".into(), aws_secret: "aws".into(), ..S3Source::default() };
        let stores = Stores { s3: Some(s3), ..Stores::default() };
        let chosen = |type_| stores.chosen("storageType", type_);
        let s3 = chosen("S3").unwrap();
        assert_eq!((s3.path(), s3.secret()), ("b/k", Some("aws")));
        assert!(chosen("ABS").unwrap_err().to_string().contains("spec.abs is not there"));
        assert!(chosen("FTP").unwrap_err().to_string().contains("S3, ABS, GCS or Volume"));
    }
}
