//! Azure's own emulator. It comes from npm, once, into the lab's cache.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use http::{Method, Request};
use lab::programs::default_cache;
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::HttpRequestBody;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const AZURITE: &str = "azurite@3.37.0";
/// Everybody's: the emulator has no other.
pub const ACCOUNT: &str = "devstoreaccount1";
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub struct Azurite {
    child: Child,
    pub endpoint: String,
    _folder: tempfile::TempDir,
}

impl Azurite {
    pub fn start() -> Self {
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

    pub async fn create(&self, container: &str) {
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
