//! A certificate for the webhook's Service and the authority that signed it, whose key nobody keeps.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::nginx::crd::WEBHOOK_SERVICE;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use thiserror::Error;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Clocks of other machines may be behind ours.
const SKEW: Duration = Duration::from_mins(5);

#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("cannot issue a certificate for the webhook: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("the time {0} is out of range")]
    Time(#[from] jiff::Error),
    #[error("the webhook's certificate cannot be read: {0}")]
    Pem(#[from] tokio_rustls::rustls::pki_types::pem::Error),
    #[error("the webhook's certificate cannot be used: {0}")]
    Unusable(#[from] tokio_rustls::rustls::Error),
}

/// All in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whom to trust: the authority of this certificate, then that of the one before it.
    pub authorities: String,
    pub chain: String,
    pub key: String,
    pub renew_after: Timestamp,
}

/// The names that the API server may call the Service by.
fn names(namespace: &str) -> Vec<String> {
    ["svc", "svc.cluster.local"].map(|end| format!("{WEBHOOK_SERVICE}.{namespace}.{end}")).into()
}

/// A new certificate. `before` is the one that it follows: replicas may serve that a little longer.
pub fn issue(
    namespace: &str,
    life: Duration,
    now: Timestamp,
    before: Option<&Certificate>,
) -> Result<Certificate, CertificateError> {
    let (from, until) = (SystemTime::from(now) - SKEW, SystemTime::from(now) + life);
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, format!("{WEBHOOK_SERVICE} {now}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (authority.not_before, authority.not_after) = (from.into(), until.into());
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut server = CertificateParams::new(names(namespace))?;
    server.distinguished_name.push(DnType::CommonName, WEBHOOK_SERVICE);
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    (server.not_before, server.not_after) = (from.into(), until.into());
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &authority)?;

    let mut authorities = authority.pem();
    if let Some(before) = before {
        authorities.push_str(first(&before.authorities));
    }
    Ok(Certificate {
        authorities,
        chain: certificate.pem(),
        key: key.serialize_pem(),
        renew_after: now.checked_add(life * 2 / 3)?,
    })
}

/// The first certificate of a bundle.
fn first(bundle: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.find(END).map_or("", |at| bundle[..at + END.len()].trim_start())
}

impl Certificate {
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let chain = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_certificate_serves_and_its_successor_still_trusts_it() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let one = issue("ns", 90 * DAY, now, None).unwrap();
        assert_eq!(one.renew_after, "2026-03-02T00:00:00Z".parse().unwrap());
        one.server_config().unwrap();
        let two = issue("ns", 90 * DAY, now, Some(&one)).unwrap();
        let three = issue("ns", 90 * DAY, now, Some(&two)).unwrap();
        assert!(two.authorities.contains(first(&one.authorities)));
        assert_ne!(first(&two.authorities), first(&one.authorities));
        assert!(!three.authorities.contains(first(&one.authorities)), "and no longer than that");
        assert_eq!(three.authorities.matches("BEGIN CERTIFICATE").count(), 2);
    }

    #[test]
    fn a_broken_certificate_is_an_error() {
        let now = Timestamp::UNIX_EPOCH;
        let good = issue("ns", DAY, now, None).unwrap();
        for broken in [
            Certificate { key: "x".into(), ..good.clone() },
            Certificate { chain: String::new(), ..good.clone() },
            Certificate { key: issue("ns", DAY, now, None).unwrap().key, ..good },
        ] {
            assert!(broken.server_config().is_err());
        }
    }
}
