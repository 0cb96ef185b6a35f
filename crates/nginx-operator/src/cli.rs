//! What people type.

// Doc comments here are help texts, in which backticks would be noise.
#![allow(clippy::doc_markdown)]

use std::net::SocketAddr;
use std::time::Duration;

use api::nginx::Version;
use api::nginx::crd::Stage;
use clap::{Args, Parser, Subcommand};
use runtime::logging::Format;

use crate::source::Scope;
use crate::webhook;

#[derive(Debug, Parser)]
#[command(version, about = "Deploys nginx, keeps it running and reports its health")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look after NginxOperators
    Run(Run),
    /// Print the manifests that the operator is installed with
    Manifests(Manifests),
}

#[derive(Args, Debug)]
pub struct Run {
    /// Namespace to look after; the operator's own if none is named
    #[arg(long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Look after every namespace (needs a ClusterRole with the rules of the Role)
    #[arg(long)]
    all_namespaces: bool,
    /// Namespace that the operator itself runs in
    #[arg(long, env = "MY_POD_NAMESPACE", default_value = "default")]
    pub home: String,
    /// Name of the operator's pod, for its lease and its events
    #[arg(long, env = "MY_POD_NAME", default_value = "nginx-operator")]
    pub pod_name: String,
    /// UID of the operator's pod: a container that was restarted leads again at once
    #[arg(long, env = "MY_POD_UID")]
    pub pod_uid: Option<String>,
    /// Newest version of the API to work with
    #[arg(long, default_value_t = Version::V1alpha2)]
    pub api_version: Version,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen_addr: SocketAddr,
    /// Address of the conversion webhook, where several versions of the API are known
    #[arg(long, default_value = "0.0.0.0:9443")]
    pub webhook_addr: SocketAddr,
    /// How long the webhook's certificate is good for; it is renewed when two thirds are over
    #[arg(long, default_value_t = 90 * 24 * 3600, value_parser = clap::value_parser!(u64).range(30..))]
    pub certificate_seconds: u64,
    #[arg(long, default_value_t, value_name = "text|json")]
    pub log_format: Format,
    /// error, warn, info, debug or trace
    #[arg(long, default_value = "info")]
    pub log_level: String,
}

impl Run {
    pub fn scope(&self) -> Scope {
        if self.all_namespaces {
            return Scope::Everywhere;
        }
        Scope::Namespace(self.namespace.clone().unwrap_or_else(|| self.home.clone()))
    }

    /// Nothing to convert where only the first version is known.
    pub fn webhook(&self) -> Option<webhook::Settings> {
        (self.api_version > Version::V1alpha1).then(|| webhook::Settings {
            listen: self.webhook_addr,
            home: self.home.clone(),
            pod_name: self.pod_name.clone(),
            life: Duration::from_secs(self.certificate_seconds),
        })
    }
}

#[derive(Args, Debug)]
pub struct Manifests {
    /// Newest version of the API that the operator shall know
    #[arg(long, default_value_t = Version::V1alpha2)]
    pub api_version: Version,
    /// Namespace to run in
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Image of the operator, if not the one of its release
    #[arg(long)]
    pub image: Option<String>,
    /// Print the CRD instead
    #[arg(long)]
    pub crd: bool,
    /// Print the CRD on its way from v1alpha1: both versions served, v1alpha1 stored
    #[arg(long, conflicts_with_all = ["crd", "retired_crd"])]
    pub transition_crd: bool,
    /// Print the CRD with v1alpha1 no longer served
    #[arg(long, conflicts_with = "crd")]
    pub retired_crd: bool,
}

impl Manifests {
    /// The CRD that is asked for, if one is.
    pub fn stage(&self) -> Option<Stage> {
        match (self.crd, self.transition_crd, self.retired_crd, self.api_version) {
            (true, _, _, Version::V1alpha1) => Some(Stage::First),
            (true, _, _, Version::V1alpha2) => Some(Stage::Second),
            (_, true, _, _) => Some(Stage::Transition),
            (_, _, true, _) => Some(Stage::Retired),
            _ => None,
        }
    }
}
