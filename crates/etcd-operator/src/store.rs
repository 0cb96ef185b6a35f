//! From what a spec says of its store to an opened one: the Secret read, claims found where they are mounted.

use std::path::{Path, PathBuf};

use api::v1beta2::{NoStore, Store};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use snapshot::{Place, StoreError, StoreSource};
use thiserror::Error;

use crate::tenure::Tenure;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    NoStore(#[from] NoStore),
    #[error("there is no Secret {name:?} in namespace {namespace}: create it, or correct its name")]
    NoSecret { name: String, namespace: String },
    #[error("Secret {name:?} cannot be read, check the operator's rights: {source}")]
    Secret { name: String, source: kube::Error },
    #[error(
        "claim {claim:?} is not mounted: let the operator's Deployment mount it at {}",
        folder.display()
    )]
    NotMounted { claim: String, folder: PathBuf },
    #[error(
        "claim {claim:?} is in another namespace than the operator, which cannot mount it: use another store"
    )]
    Elsewhere { claim: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    /// Stable, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoStore(_) => "UnknownStore",
            Self::NoSecret { .. } => "SecretNotFound",
            Self::Secret { .. } => "SecretUnreadable",
            Self::NotMounted { .. } | Self::Elsewhere { .. } => "ClaimNotMounted",
            Self::Store(error) => reason(error),
        }
    }
}

/// Stable, for conditions, events and metrics.
pub fn reason(error: &StoreError) -> &'static str {
    match error {
        StoreError::BadPath(_) | StoreError::BadEndpoint(_) | StoreError::Client { .. } => "StoreInvalid",
        StoreError::SecretKeyMissing { .. } | StoreError::BadSecret { .. } | StoreError::NoProfile { .. } => {
            "SecretInvalid"
        }
        StoreError::Folder { .. } => "FolderUnusable",
        StoreError::NoObject { .. } => "ObjectNotFound",
        StoreError::NoBucket { .. } => "BucketNotFound",
        StoreError::Denied { .. } => "StoreRefused",
        StoreError::Unreachable { .. } => "StoreUnreachable",
        StoreError::Full { .. } => "StoreFull",
        StoreError::Other { .. } => "StoreFailed",
    }
}

/// Opens the store of an object in `namespace`; nothing is sent to it yet.
pub async fn open(tenure: &Tenure, namespace: &str, store: Store<'_>) -> Result<Place, OpenError> {
    let secret = match store.secret() {
        Some(name) => secret(&tenure.client, namespace, name).await?,
        None => snapshot::store::Secret::new(),
    };
    let source = source(store, &tenure.volumes);
    if let (Store::Volume(volume), StoreSource::Volume { root, .. }) = (store, &source) {
        let claim = volume.claim_name.clone();
        if namespace != tenure.namespace {
            return Err(OpenError::Elsewhere { claim });
        }
        if !root.is_dir() {
            return Err(OpenError::NotMounted { claim, folder: root.clone() });
        }
    }
    Ok(snapshot::store::open(&source, &secret)?)
}

/// The same store in the words of the snapshot library, for a process that has claims mounted in `volumes`.
pub fn source(store: Store, volumes: &Path) -> StoreSource {
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    match store {
        Store::S3(s3) => StoreSource::S3 {
            path: s3.path.clone(),
            endpoint: given(&s3.endpoint),
            force_path_style: s3.force_path_style,
            profile: given(&s3.profile),
            region: given(&s3.region),
        },
        Store::Abs(abs) => StoreSource::Azure { path: abs.path.clone(), endpoint: given(&abs.endpoint) },
        Store::Gcs(gcs) => StoreSource::Gcs { path: gcs.path.clone(), endpoint: given(&gcs.endpoint) },
        Store::Volume(volume) => {
            StoreSource::Volume { root: volumes.join(&volume.claim_name), path: volume.path.clone() }
        }
    }
}

/// How a spec would write the path of this object, which is in the store that `store` names.
pub fn path_of(store: Store, place: &Place) -> String {
    match (store, store.path().split_once('/')) {
        (Store::Volume(_), _) | (_, None) => place.path().to_owned(),
        (_, Some((bucket, _))) => format!("{bucket}/{}", place.path()),
    }
}

async fn secret(client: &Client, namespace: &str, name: &str) -> Result<snapshot::store::Secret, OpenError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match secrets.get_opt(name).await {
        Ok(Some(secret)) => {
            Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
        }
        Ok(None) => Err(OpenError::NoSecret { name: name.to_owned(), namespace: namespace.to_owned() }),
        Err(source) => Err(OpenError::Secret { name: name.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1beta2::{AbsSource, GcsSource};
    use serde_json::json;

    #[test]
    fn an_address_is_used_where_one_is_given() {
        let (path, endpoint) = ("c/k".to_owned(), "http://store:10000/me".to_owned());
        let abs = AbsSource { path: path.clone(), endpoint: endpoint.clone(), ..AbsSource::default() };
        let gcs = GcsSource { path: path.clone(), endpoint, ..GcsSource::default() };
        let plain = AbsSource { path, ..AbsSource::default() };
        let at = |store| json!(source(store, Path::new("/volumes"))).to_string();
        assert!(at(Store::Abs(&abs)).contains("http://store:10000/me"));
        assert!(at(Store::Gcs(&gcs)).contains("http://store:10000/me"));
        assert!(!at(Store::Abs(&plain)).contains("http"));
    }
}
