//! `NginxOperator`: an nginx deployment, declared by ports and replicas, in every version of its API.
//!
//! [`v1alpha2`] is the hub: the operator works with it alone, and [`conversion`] leads to it from every other version.

pub mod conditions;
pub mod conversion;
pub mod crd;
mod status;
pub mod v1alpha1;
pub mod v1alpha2;

use std::collections::BTreeMap;

pub use status::NginxOperatorStatus;
pub use v1alpha2::{NginxOperator, NginxOperatorSpec, Port};

pub const GROUP: &str = "operator.example.com";
pub const KIND: &str = "NginxOperator";
pub const PLURAL: &str = "nginxoperators";

/// Name of the CRD.
pub const CRD_NAME: &str = "nginxoperators.operator.example.com";

/// The port where nothing is said.
pub const DEFAULT_PORT: i32 = 80;
/// Its name in v1alpha2, for v1alpha1 has none.
pub const DEFAULT_PORT_NAME: &str = "http";
/// The replicas where nothing is said; 0 said aloud is 0.
pub const DEFAULT_REPLICAS: i32 = 1;

/// Label with the name of the `NginxOperator` that an object belongs to.
pub const INSTANCE_LABEL: &str = "operator.example.com/instance";

/// Annotation of a pod with the value of `spec.forceRedeploy` that it was made for.
pub const FORCE_REDEPLOY_ANNOTATION: &str = "operator.example.com/force-redeploy";
/// Annotation of a pod with the nginx configuration that it runs.
pub const CONFIGURATION_ANNOTATION: &str = "operator.example.com/nginx.conf";
/// Annotation of a v1alpha1 object with what only v1alpha2 can say: all its ports.
pub const PORTS_ANNOTATION: &str = "operator.example.com/v1alpha2-ports";

/// Labels of everything that belongs to one instance; as a selector, its pods.
pub fn labels(instance: &str) -> BTreeMap<String, String> {
    [("app", "nginx"), (INSTANCE_LABEL, instance)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The same as the API server takes it in the scale subresource.
pub fn selector(instance: &str) -> String {
    format!("app=nginx,{INSTANCE_LABEL}={instance}")
}

/// A version of the API, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V1alpha1,
    V1alpha2,
}

impl Version {
    pub const ALL: [Self; 2] = [Self::V1alpha1, Self::V1alpha2];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1alpha2 => "v1alpha2",
        }
    }

    /// As it stands in an object: group and version.
    pub fn api_version(self) -> String {
        format!("{GROUP}/{}", self.as_str())
    }

    /// The version of an object that names it as its `apiVersion`.
    pub fn of_api_version(api_version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.api_version() == api_version)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No such version of the API.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownVersion(String);

impl std::fmt::Display for UnknownVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is no version of {KIND}; write v1alpha1 or v1alpha2", self.0)
    }
}

impl std::error::Error for UnknownVersion {}

impl std::str::FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}
