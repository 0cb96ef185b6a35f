//! Stores: S3, Google Cloud Storage, Azure, and folders.

mod azure;
mod error;
mod gcs;
mod ini;
mod place;
mod s3;
mod source;

pub use error::StoreError;
pub use place::Place;
pub use source::StoreSource;

use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A Kubernetes secret's data, by key. Empty where the pod's own identity is to be used.
pub type Secret = BTreeMap<String, Vec<u8>>;

/// A failing store is reported within half a minute: whoever asked tries again, and says so meanwhile.
const RETRY_FOR: Duration = Duration::from_secs(30);
const RETRIES: usize = 6;
const CONNECT: Duration = Duration::from_secs(5);
/// For one request: a part of an upload, or a range.
const REQUEST: Duration = Duration::from_mins(1);

/// Opens a store; nothing is sent yet.
pub fn open(source: &StoreSource, secret: &Secret) -> Result<Place, StoreError> {
    ring();
    match source {
        StoreSource::S3 { path, endpoint, force_path_style, profile, region } => {
            let s3 = s3::S3 {
                path,
                endpoint: given(endpoint.as_ref()),
                force_path_style: *force_path_style,
                profile: given(profile.as_ref()),
                region: given(region.as_ref()),
            };
            let (store, key, shown) = s3.open(secret)?;
            Place::cloud(Arc::new(store), &key, shown)
        }
        StoreSource::Gcs { path, endpoint } => {
            let (store, key, shown) = gcs::open(path, given(endpoint.as_ref()), secret)?;
            Place::cloud(Arc::new(store), &key, shown)
        }
        StoreSource::Azure { path, endpoint } => {
            let (store, key, shown) = azure::open(path, given(endpoint.as_ref()), secret)?;
            Place::cloud(Arc::new(store), &key, shown)
        }
        StoreSource::Volume { root, path } => {
            let folder = |source: std::io::Error| StoreError::Folder { path: root.clone(), source };
            let root = root.canonicalize().map_err(folder)?;
            let store = LocalFileSystem::new_with_prefix(&root)
                .map_err(|cause| StoreError::of(root.display(), &cause))?
                .with_fsync(true);
            Place::folder(Arc::new(store), root, path)
        }
    }
}

/// Empty strings are how YAML leaves things out.
fn given(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

/// The HTTP client takes the process's TLS provider; somebody may have chosen it before.
fn ring() {
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// `bucket/key`, as the book writes it.
fn split(path: &str) -> Result<(&str, &str), StoreError> {
    let trimmed = path.trim_start_matches('/');
    match trimmed.split_once('/') {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() && !key.ends_with('/') => {
            Ok((bucket, key))
        }
        _ => Err(StoreError::BadPath(path.to_owned())),
    }
}

/// A secret's value as text.
fn text<'a>(secret: &'a Secret, key: &'static str, wanted: &'static str) -> Result<&'a str, StoreError> {
    let value = secret.get(key).ok_or(StoreError::SecretKeyMissing { key, wanted })?;
    std::str::from_utf8(value).map_err(|_| StoreError::BadSecret { key, why: "it is no text".into() })
}

fn client_options(endpoint: Option<&str>) -> Result<ClientOptions, StoreError> {
    let options = ClientOptions::new().with_connect_timeout(CONNECT).with_timeout(REQUEST);
    let Some(endpoint) = endpoint else { return Ok(options) };
    let bad = || StoreError::BadEndpoint(endpoint.to_owned());
    let uri: http::Uri = endpoint.parse().map_err(|_| bad())?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(bad());
    }
    match uri.scheme_str() {
        Some("https") => Ok(options),
        // There is nobody to verify, and images without certificates would fail for nothing.
        Some("http") => Ok(options.with_allow_http(true).with_no_system_certificates(true)),
        _ => Err(bad()),
    }
}

fn retry() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_FOR }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("mybucket/etcd.backup", Some(("mybucket", "etcd.backup")))]
    #[case("/b/a/b", Some(("b", "a/b")))]
    #[case("b", None)]
    #[case("b/", None)]
    #[case("b/a/", None)]
    #[case("", None)]
    fn paths(#[case] path: &str, #[case] expected: Option<(&str, &str)>) {
        assert_eq!(split(path).ok(), expected);
    }

    fn azure(secret: &[(&str, &str)]) -> Result<String, String> {
        let secret = secret.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
        let source = StoreSource::Azure { path: "c/k".into(), endpoint: None };
        open(&source, &secret).map(|place| place.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn azure_takes_the_keys_of_coreos() {
        let key = ("storage-key", "a2V5");
        let account = ("storage-account", "me");
        assert_eq!(azure(&[account, key]).unwrap(), "https://me.blob.core.windows.net/c/k");
        assert_eq!(
            azure(&[account, key, ("cloud", "AzureChinaCloud")]).unwrap(),
            "https://me.blob.core.chinacloudapi.cn/c/k"
        );
        assert!(azure(&[account]).unwrap_err().contains("no key \"storage-key\""));
        assert!(azure(&[key]).unwrap_err().contains("no key \"storage-account\""));
        assert!(azure(&[account, key, ("cloud", "Mine")]).unwrap_err().contains("none of AzurePublicCloud"));
    }

    #[test]
    fn gcs_takes_the_keys_of_coreos() {
        let source = StoreSource::Gcs { path: "b/k".into(), endpoint: None };
        let open = |key: &str, value: &str| {
            let secret = [(key.to_owned(), value.as_bytes().to_vec())].into();
            open(&source, &secret).map(|place| place.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(open("access-token", "t").unwrap(), "gs://b/k");
        assert!(open("credentials.json", "{").unwrap_err().contains("credentials.json"));
        assert!(open("password", "x").unwrap_err().contains("no key \"credentials.json\""));
    }

    #[rstest]
    #[case("s3.local:7070")]
    #[case("ftp://s3")]
    #[case("http://")]
    fn endpoints_need_a_scheme_and_a_host(#[case] endpoint: &str) {
        assert!(matches!(client_options(Some(endpoint)), Err(StoreError::BadEndpoint(_))));
    }

    #[test]
    fn a_folder_must_be_there() {
        let source = StoreSource::Volume { root: "/nowhere/at/all".into(), path: "k".into() };
        assert!(matches!(open(&source, &Secret::new()), Err(StoreError::Folder { .. })));
    }
}
