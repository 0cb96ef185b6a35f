//! Google Cloud Storage.

use super::{Secret, StoreError, client_options, retry, split, text};
use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder};
use std::sync::Arc;

const TOKEN: &str = "access-token";
const ACCOUNT: &str = "credentials.json";

pub(super) fn open(
    path: &str,
    endpoint: Option<&str>,
    secret: &Secret,
) -> Result<(GoogleCloudStorage, String, String), StoreError> {
    let (bucket, key) = split(path)?;
    // Without a secret: the identity of the pod.
    let mut builder = if secret.is_empty() {
        GoogleCloudStorageBuilder::from_env()
    } else {
        GoogleCloudStorageBuilder::new()
    };
    builder =
        builder.with_bucket_name(bucket).with_client_options(client_options(endpoint)?).with_retry(retry());
    let mut shown = format!("gs://{bucket}");
    if let Some(endpoint) = endpoint {
        let endpoint = endpoint.trim_end_matches('/');
        builder = builder.with_base_url(endpoint);
        shown = format!("{endpoint}/{bucket}");
    }
    if secret.contains_key(TOKEN) {
        let token = text(secret, TOKEN, "")?.trim().to_owned();
        builder = builder
            .with_credentials(Arc::new(StaticCredentialProvider::new(GcpCredential { bearer: token })));
    } else if !secret.is_empty() {
        builder = builder.with_service_account_key(text(
            secret,
            ACCOUNT,
            "the key file of a service account, or an access-token",
        )?);
    }
    let store =
        builder.build().map_err(|cause| StoreError::BadSecret { key: ACCOUNT, why: cause.to_string() })?;
    Ok((store, key.to_owned(), shown))
}
