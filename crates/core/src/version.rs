//! etcd versions: what each can do, and which way leads from one to another.

use std::fmt;
use std::str::FromStr;

/// A released etcd version; printed without a leading `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
}

impl Version {
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no etcd version: write it like 3.5.16 or v3.5.16")]
pub struct NotAVersion(String);

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let refused = || NotAVersion(text.to_owned());
        let version =
            semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).map_err(|_| refused())?;
        if !version.pre.is_empty() || !version.build.is_empty() {
            return Err(refused());
        }
        Ok(Self::new(version.major, version.minor, version.patch))
    }
}

/// The patch version through which each minor is passed, lowest minor first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HopTable(pub Vec<Version>);

impl Default for HopTable {
    fn default() -> Self {
        Self(vec![
            Version::new(3, 1, 20),
            Version::new(3, 2, 32),
            Version::new(3, 3, 27),
            Version::new(3, 4, 37),
            Version::new(3, 5, 35),
            Version::new(3, 6, 16),
        ])
    }
}
