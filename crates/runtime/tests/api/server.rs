//! A real API server to test against, and a namespace for each test.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use lab::wait::until;
use lab::{Lab, Options};
use prometheus_client::registry::Registry;
use runtime::metrics::Metrics;
use tokio::sync::OnceCell;

/// Joins the API-only lab of this test run, or brings it up; one at a time, as the lab demands.
async fn kubeconfig() -> PathBuf {
    static LAB: OnceCell<PathBuf> = OnceCell::const_new();
    let join = async || {
        let options =
            Options { quiet: true, ..Options::api_only(&format!("{}api", lab::kit::shared_name())) };
        let joined = until("an API-only lab", Duration::from_mins(2), async || Ok(Lab::up(&options).await));
        joined.await.expect("a lab").kubeconfig()
    };
    LAB.get_or_init(join).await.clone()
}

pub async fn config() -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig().await).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config")
}

pub async fn client() -> Client {
    client_of(config().await)
}

pub fn client_of(config: Config) -> Client {
    runtime::client::builder(config, "runtime-test/0", metrics()).expect("a usable config").build()
}

pub fn metrics() -> Metrics {
    Metrics::register(&mut Registry::default(), "0")
}

pub async fn namespace(client: &Client) -> String {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name = Some("runtime-".into());
    api.create(&PostParams::default(), &namespace).await.expect("a namespace").name_any()
}
