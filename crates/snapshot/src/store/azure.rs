//! Azure Blob Storage.

use super::{Secret, StoreError, client_options, retry, split, text};
use object_store::azure::{MicrosoftAzure, MicrosoftAzureBuilder};

/// The clouds by their names in Azure's tools, and where each keeps its blobs.
const CLOUDS: [(&str, &str); 4] = [
    ("AzurePublicCloud", "blob.core.windows.net"),
    ("AzureChinaCloud", "blob.core.chinacloudapi.cn"),
    ("AzureUSGovernmentCloud", "blob.core.usgovcloudapi.net"),
    ("AzureGermanCloud", "blob.core.cloudapi.de"),
];

pub(super) fn open(
    path: &str,
    endpoint: Option<&str>,
    secret: &Secret,
) -> Result<(MicrosoftAzure, String, String), StoreError> {
    let (container, key) = split(path)?;
    // Without a secret: the identity of the pod.
    let mut builder =
        if secret.is_empty() { MicrosoftAzureBuilder::from_env() } else { MicrosoftAzureBuilder::new() };
    builder = builder
        .with_container_name(container)
        .with_client_options(client_options(endpoint)?)
        .with_retry(retry());
    let mut address = endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_owned());
    if !secret.is_empty() {
        let account = text(secret, "storage-account", "the name of the storage account")?.trim();
        let access = text(secret, "storage-key", "a key of the storage account")?.trim();
        builder = builder.with_account(account).with_access_key(access);
        let cloud = match secret.get("cloud") {
            Some(_) => host(text(secret, "cloud", "")?.trim())?,
            None => CLOUDS[0].1,
        };
        address = address.or_else(|| Some(format!("https://{account}.{cloud}")));
    }
    let shown = match &address {
        Some(address) => format!("{address}/{container}"),
        None => format!("azure://{container}"),
    };
    if let Some(address) = address {
        builder = builder.with_endpoint(address);
    }
    let store = builder
        .build()
        .map_err(|cause| StoreError::Client { place: shown.clone(), why: cause.to_string() })?;
    Ok((store, key.to_owned(), shown))
}

fn host(cloud: &str) -> Result<&'static str, StoreError> {
    let known = CLOUDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(cloud));
    match known {
        Some((_, host)) => Ok(host),
        None if cloud.is_empty() => Ok(CLOUDS[0].1),
        None => Err(StoreError::BadSecret {
            key: "cloud",
            why: format!("{cloud:?} is none of {}", CLOUDS.map(|(name, _)| name).join(", ")),
        }),
    }
}
