use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Config};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use runtime::client::{ClientError, MINIMUM_VERSION, Version, builder, check_version};
use runtime::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server;

#[tokio::test]
async fn requests_are_counted_by_what_they_are() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, "0");
    let client = builder(server::config().await, "runtime-test/0", metrics).unwrap().build();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.list(&ListParams::default()).await.unwrap();
    maps.get_opt("none").await.unwrap();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"api_requests_total{verb="list",resource="configmaps",code="200"} 1"#), "{text}");
    assert!(text.contains(r#"api_requests_total{verb="get",resource="configmaps",code="404"} 1"#), "{text}");
}

#[tokio::test]
async fn the_version_is_checked() {
    let client = server::client().await;
    let found = check_version(&client, MINIMUM_VERSION).await.expect("new enough");
    let next = Version { minor: found.minor + 1, ..found };
    let error = check_version(&client, next).await.unwrap_err();
    assert!(matches!(error, ClientError::TooOld { .. }), "{error}");
}

#[tokio::test]
async fn a_request_carries_our_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        stream.write_all(b"HTTP/1.1 503 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let client = builder(Config::new(url.parse().unwrap()), "etcd-operator/0.10.0", server::metrics())
        .unwrap()
        .build();
    // Not repeated behind our back: the listener takes one connection only.
    client.apiserver_version().await.expect_err("unavailable");
    let request = served.await.unwrap();
    assert!(request.contains("user-agent: etcd-operator/0.10.0\r\n"), "{request}");
}
