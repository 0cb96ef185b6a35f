//! S3, with the files of AWS's tools as its secret, or with the identity of the pod.

use super::ini::Ini;
use super::{Secret, StoreError, client_options, retry, split, text};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use std::collections::BTreeMap;

/// What a source says of its store.
pub(super) struct S3<'a> {
    pub path: &'a str,
    pub endpoint: Option<&'a str>,
    pub force_path_style: bool,
    pub profile: Option<&'a str>,
    pub region: Option<&'a str>,
}

/// What the secret says for one profile.
#[derive(Debug, Default, PartialEq, Eq)]
struct Profile {
    keys: Option<(String, String)>,
    token: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
    virtual_hosts: Option<bool>,
}

impl S3<'_> {
    /// The store, and how the bucket is shown.
    pub(super) fn open(&self, secret: &Secret) -> Result<(AmazonS3, String, String), StoreError> {
        let (bucket, key) = split(self.path)?;
        let profile =
            if secret.is_empty() { Profile::default() } else { Profile::read(secret, self.profile)? };
        let endpoint = self.endpoint.map(str::to_owned).or(profile.endpoint);
        // Without a secret: what the pod's environment says, down to the identity of its node.
        let mut builder =
            if secret.is_empty() { AmazonS3Builder::from_env() } else { AmazonS3Builder::new() };
        builder = builder
            .with_bucket_name(bucket)
            .with_client_options(client_options(endpoint.as_deref())?)
            .with_retry(retry());
        if let Some((id, key)) = profile.keys {
            builder = builder.with_access_key_id(id).with_secret_access_key(key);
        }
        if let Some(token) = profile.token {
            builder = builder.with_token(token);
        }
        if let Some(region) = self.region.map(str::to_owned).or(profile.region) {
            builder = builder.with_region(region);
        }
        // AWS wants host names, except where dots in the bucket's name break TLS; others are given the path.
        let by_host = !self.force_path_style
            && profile.virtual_hosts.unwrap_or(endpoint.is_none() && !bucket.contains('.'));
        builder = builder.with_virtual_hosted_style_request(by_host);
        // Every backup is read back to its last byte: to hash each part twice more, here and there, would prove nothing new.
        builder = builder.with_unsigned_payload(true);
        let mut shown = format!("s3://{bucket}");
        if let Some(endpoint) = endpoint {
            let endpoint = endpoint.trim_end_matches('/');
            shown = format!("{endpoint}/{bucket}");
            builder = builder.with_endpoint(match endpoint.split_once("://") {
                Some((scheme, host)) if by_host => format!("{scheme}://{bucket}.{host}"),
                _ => endpoint.to_owned(),
            });
        }
        let store = builder
            .build()
            .map_err(|cause| StoreError::Client { place: shown.clone(), why: cause.to_string() })?;
        Ok((store, key.to_owned(), shown))
    }
}

impl Profile {
    fn read(secret: &Secret, name: Option<&str>) -> Result<Self, StoreError> {
        const WANTED: &str = "the file that AWS's tools keep in ~/.aws/credentials";
        let credentials = Ini::parse(text(secret, "credentials", WANTED)?);
        let config = match secret.get("config") {
            Some(_) => Ini::parse(text(secret, "config", "the file ~/.aws/config")?),
            None => Ini::default(),
        };
        let name = name.filter(|name| !name.is_empty()).unwrap_or("default");
        let found =
            [credentials.section(name), config.section(&format!("profile {name}")), config.section(name)];
        if found.iter().all(Option::is_none) {
            let known: Vec<&str> = credentials.names().chain(config.names()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(StoreError::NoProfile { name: name.to_owned(), known });
        }
        let get =
            |key: &str| found.iter().flatten().find_map(|section| nonempty(section, key)).map(str::to_owned);
        let keys = match (get("aws_access_key_id"), get("aws_secret_access_key")) {
            (Some(id), Some(key)) => (id, key),
            (None, None) => return Err(bad(format!("profile {name:?} has no aws_access_key_id"))),
            (None, _) => return Err(bad("aws_access_key_id is missing".into())),
            (_, None) => return Err(bad("aws_secret_access_key is missing".into())),
        };
        Ok(Self {
            keys: Some(keys),
            token: get("aws_session_token"),
            region: get("region"),
            endpoint: get("s3.endpoint_url").or_else(|| get("endpoint_url")),
            virtual_hosts: get("s3.addressing_style").and_then(|style| match style.as_str() {
                "virtual" => Some(true),
                "path" => Some(false),
                _ => None,
            }),
        })
    }
}

fn nonempty<'a>(section: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    section.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

fn bad(why: String) -> StoreError {
    StoreError::BadSecret { key: "credentials", why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(credentials: &str, config: &str) -> Secret {
        [("credentials", credentials), ("config", config)]
            .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
            .into()
    }

    const KEYS: &str = "[default]\naws_access_key_id = ID\naws_secret_access_key = KEY\n[b]\naws_access_key_id = B\naws_secret_access_key = BK\naws_session_token = T\n";

    #[test]
    fn a_profile_comes_from_both_files() {
        let secret = secret(
            KEYS,
            "[default]\nregion = r\nendpoint_url = http://s3:7070\n[profile b]\nregion = q\ns3 =\n  addressing_style = virtual\n",
        );
        let default = Profile::read(&secret, None).unwrap();
        assert_eq!(default.keys, Some(("ID".into(), "KEY".into())));
        assert_eq!(default.endpoint.as_deref(), Some("http://s3:7070"));
        assert_eq!((default.region.as_deref(), default.token), (Some("r"), None));
        let b = Profile::read(&secret, Some("b")).unwrap();
        assert_eq!(b.keys, Some(("B".into(), "BK".into())));
        assert_eq!((b.region.as_deref(), b.token.as_deref()), (Some("q"), Some("T")));
        assert_eq!((b.endpoint, b.virtual_hosts), (None, Some(true)));
    }

    #[test]
    fn says_what_is_wrong_with_a_secret() {
        let message = |secret: &Secret, profile| Profile::read(secret, profile).unwrap_err().to_string();
        let other: Secret = [("config".to_owned(), Vec::new())].into();
        assert!(message(&other, None).contains("no key \"credentials\""));
        assert!(
            message(&secret(KEYS, ""), Some("c")).contains("no profile \"c\": its files have b, default")
        );
        let half = "[default]\naws_access_key_id = ID\n";
        assert!(message(&secret(half, ""), None).contains("aws_secret_access_key is missing"));
        assert!(message(&secret("", ""), None).contains("its files have none"));
    }

    #[test]
    fn the_bucket_is_shown_without_secrets() {
        let s3 = S3 { path: "b/k/l", endpoint: None, force_path_style: false, profile: None, region: None };
        super::super::ring();
        let (_, key, shown) = s3.open(&secret(KEYS, "[default]\nendpoint_url = http://s3:7070/\n")).unwrap();
        assert_eq!((key.as_str(), shown.as_str()), ("k/l", "http://s3:7070/b"));
    }
}
