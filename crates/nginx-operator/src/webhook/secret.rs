//! The Secret that all replicas take the webhook's certificate from.

use std::time::Duration;

use api::nginx::crd::WEBHOOK_SERVICE;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use thiserror::Error;
use tracing::{info, warn};

use super::certificate::{Certificate, CertificateError, issue};
use crate::NAME;

/// Annotation of the Secret: from when on a new certificate is issued.
const RENEW_AFTER: &str = "operator.example.com/renew-after";

/// Replicas that issue at the same time: one wins, the others take what it wrote.
const MAX_CONFLICTS: usize = 5;

#[derive(Debug, Error)]
pub enum SecretError {
    #[error("cannot read or write Secret {WEBHOOK_SERVICE}: {0}")]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Issue(#[from] CertificateError),
    #[error("Secret {WEBHOOK_SERVICE} changed under every try to write it")]
    Contended,
}

/// The certificate to serve at this moment: the one in the Secret, or a new one if that is missing, broken or due. The
/// new one's authorities go on to trust the one before, be it only `served` any more. A Secret that we make goes with `owner`.
pub async fn current(
    secrets: &Api<Secret>,
    namespace: &str,
    life: Duration,
    owner: Option<&OwnerReference>,
    now: Timestamp,
    served: Option<&Certificate>,
) -> Result<Certificate, SecretError> {
    for _ in 0..MAX_CONFLICTS {
        let found = secrets.get_opt(WEBHOOK_SERVICE).await?;
        let before = found.as_ref().and_then(read);
        if let Some(good) = before.as_ref().filter(|certificate| now < certificate.renew_after) {
            return Ok(good.clone());
        }
        let new = issue(namespace, life, now, before.as_ref().or(served))?;
        let params = PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() };
        let written = match &found {
            None => secrets.create(&params, &write(owned(owner), &new)).await,
            Some(found) => secrets.replace(WEBHOOK_SERVICE, &params, &write(found.clone(), &new)).await,
        };
        match written {
            Ok(_) => {
                info!(renew_after = %new.renew_after, "issued a certificate for the conversion webhook");
                return Ok(new);
            }
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(SecretError::Contended)
}

fn owned(owner: Option<&OwnerReference>) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.owner_references = owner.map(|owner| vec![owner.clone()]);
    secret
}

/// None if anything in it is missing or unusable: then it is issued anew.
fn read(secret: &Secret) -> Option<Certificate> {
    let text = |key: &str| {
        let ByteString(bytes) = secret.data.as_ref()?.get(key)?;
        String::from_utf8(bytes.clone()).ok()
    };
    let certificate = Certificate {
        authorities: text("ca.crt")?,
        chain: text("tls.crt")?,
        key: text("tls.key")?,
        renew_after: secret.annotations().get(RENEW_AFTER)?.parse().ok()?,
    };
    match certificate.server_config() {
        Ok(_) => Some(certificate),
        Err(error) => {
            warn!(%error, "Secret {WEBHOOK_SERVICE} holds no usable certificate; it is issued anew");
            None
        }
    }
}

fn write(mut secret: Secret, certificate: &Certificate) -> Secret {
    let Certificate { authorities, chain, key, renew_after } = certificate;
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    secret.metadata.name = Some(WEBHOOK_SERVICE.to_owned());
    secret.annotations_mut().insert(RENEW_AFTER.to_owned(), renew_after.to_string());
    if secret.type_.is_none() {
        secret.type_ = Some("kubernetes.io/tls".to_owned());
    }
    secret.data = Some(
        [("ca.crt", authorities), ("tls.crt", chain), ("tls.key", key)]
            .map(|(name, text)| (name.to_owned(), bytes(text)))
            .into(),
    );
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_not() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let certificate = issue("ns", Duration::from_hours(1), now, None).unwrap();
        let owner = OwnerReference { name: "nginx-operator".into(), ..OwnerReference::default() };
        let secret = write(owned(Some(&owner)), &certificate);
        assert_eq!(secret.owner_references(), [owner]);
        assert_eq!(write(owned(None), &certificate).metadata.owner_references, None);
        assert_eq!(read(&secret), Some(certificate));
        let mut broken = secret.clone();
        broken.annotations_mut().remove(RENEW_AFTER);
        assert_eq!(read(&broken), None);
        let mut broken = secret;
        broken.data.as_mut().unwrap().insert("tls.key".into(), ByteString(b"x".to_vec()));
        assert_eq!(read(&broken), None);
    }
}
