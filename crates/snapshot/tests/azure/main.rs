//! Azure Blob Storage, as its own emulator plays it. It comes from npm, once, into the lab's cache.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use etcd::process::{Bootstrap, Place as Member};
use http::{Method, Request};
use jiff::Timestamp;
use lab::programs::{EtcdVersion, Program, Programs, default_cache};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::HttpRequestBody;
use snapshot::store::Secret;
use snapshot::{
    Endpoints, Expect, From, Meta, Naming, StoreError, StoreSource, fetch, manifest, save, store,
};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const AZURITE: &str = "azurite@3.37.0";
/// Everybody's: the emulator has no other.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

struct Azurite {
    child: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Azurite {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("node")
            .arg(installed().join("node_modules/azurite/dist/src/blob/main.js"))
            .args([
                "--silent",
                "--skipApiVersionCheck",
                "--disableTelemetry",
                "--blobHost",
                "127.0.0.1",
                "--blobPort",
            ])
            .arg(address.port().to_string())
            .arg("--location")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "Azurite does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { child, endpoint: format!("http://{address}/{ACCOUNT}"), _folder: folder }
    }

    async fn create(&self, container: &str) {
        let uri = format!("{}/{container}?restype=container", self.endpoint);
        let body = HttpRequestBody::from(Vec::new());
        let mut request =
            Request::builder().method(Method::PUT).uri(&uri).header("content-length", 0).body(body).unwrap();
        let key = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY).unwrap());
        AzureAuthorizer::new(&key, ACCOUNT).try_authorize(&mut request).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let answer = client.put(&uri).headers(request.headers().clone()).send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Installed beside, and moved into place whole.
fn installed() -> PathBuf {
    let cache = default_cache().unwrap();
    let folder = cache.join(AZURITE);
    if !folder.exists() {
        std::fs::create_dir_all(&cache).unwrap();
        let fresh = tempfile::tempdir_in(&cache).unwrap();
        let npm = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--loglevel=error", AZURITE, "--prefix"])
            .arg(fresh.path())
            .status()
            .unwrap();
        assert!(npm.success(), "npm did not install {AZURITE}");
        // Another test may have been first, which is as good.
        drop(std::fs::rename(fresh.path(), &folder));
    }
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_goes_to_azure_and_back() {
    let azurite = Azurite::start();
    let secret: Secret = [("storage-account", ACCOUNT), ("storage-key", KEY)]
        .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
        .into();
    let source =
        |path: &str| StoreSource::Azure { path: path.into(), endpoint: Some(azurite.endpoint.clone()) };
    let place = store::open(&source("backups/a/etcd.backup"), &secret).unwrap();
    assert!(matches!(place.size().await, Err(StoreError::NoBucket { .. })));
    azurite.create("backups").await;
    assert!(matches!(place.size().await, Err(StoreError::NoObject { .. })));

    let mut member = Member::new("a").unwrap();
    let etcd = Programs::new(&default_cache().unwrap()).path(Program::Etcd(EtcdVersion::V3_5_16)).unwrap();
    member.start(&etcd, &Bootstrap::new_cluster([&member])).unwrap();
    member.healthy(Duration::from_secs(30)).await.unwrap();
    for number in 0..12 {
        member.member().unwrap().put(format!("k{number}"), vec![b'v'; 1 << 20]).await.unwrap();
    }
    let meta = Meta {
        slot: Timestamp::now(),
        owner_uid: "uid".into(),
        owner: "test/azure".into(),
        cluster_name: None,
        cluster_spec: None,
    };
    let from = From::Cluster(Endpoints::new([member.client().to_string()]));
    let stop = CancellationToken::new();
    let (place, manifest) = save(from, &place, Naming::Series, &meta, &stop, |_| {}).await.unwrap();
    assert_eq!(manifest.keys, 12);
    let prefix = store::open(&source("backups/a/etcd.backup"), &secret).unwrap();
    let listed = manifest::list(&prefix).await.unwrap();
    assert_eq!(listed.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let expect = Expect { sha256: Some(manifest.sha256.clone()), digest: Some(manifest.digest.clone()) };
    let contents = fetch(&place, &folder.path().join("db"), &expect, |_| {}).await.unwrap();
    assert_eq!(contents.revision, manifest.revision);
    manifest::delete(&place).await.unwrap();
    assert_eq!(manifest::list(&prefix).await.unwrap().len(), 0);

    let mut wrong = secret.clone();
    wrong.insert("storage-key".into(), b"d3Jvbmc=".to_vec());
    let denied = store::open(&source("backups/x"), &wrong).unwrap().size().await;
    assert!(matches!(denied, Err(StoreError::Denied { .. })), "{denied:?}");
}
