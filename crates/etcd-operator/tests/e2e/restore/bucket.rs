//! The lab's S3 server, as a person with its keys uses it.

use std::collections::BTreeMap;
use std::fs;

use jiff::Timestamp;
use lab::kit::TestNamespace;
use snapshot::{Endpoints, Meta, Naming, Place, StoreSource, store};
use tokio_util::sync::CancellationToken;

use crate::support::{Cluster, Outcome};

/// The Secret that opens it.
pub const SECRET: &str = "aws";
const BUCKET: &str = "mybucket";

pub struct Bucket {
    secret: store::Secret,
    folder: String,
}

impl Bucket {
    /// With the Secret in the test's namespace, made as the book makes it.
    pub async fn open(test: &TestNamespace<'_>) -> Outcome<Self> {
        let folder = test.lab.layout.aws_dir();
        let file = |name: &str| format!("--from-file={}", folder.join(name).display());
        test.kubectl(&["create", "secret", "generic", SECRET, &file("credentials"), &file("config")]).await?;
        let mut secret = BTreeMap::new();
        for name in ["credentials", "config"] {
            secret.insert(name.to_owned(), fs::read(folder.join(name))?);
        }
        Ok(Self { secret, folder: test.name.clone() })
    }

    fn place(&self, path: &str) -> Outcome<Place> {
        let source = StoreSource::S3 {
            path: path.to_owned(),
            endpoint: None,
            force_path_style: true,
            profile: None,
            region: None,
        };
        Ok(store::open(&source, &self.secret)?)
    }

    fn path(&self, name: &str) -> String {
        format!("{BUCKET}/{}/{name}", self.folder)
    }

    /// A backup of the cluster as it is now; its path.
    pub async fn save(&self, cluster: &Cluster<'_>, name: &str) -> Outcome<String> {
        let path = self.path(name);
        let meta = Meta {
            slot: Timestamp::now(),
            owner_uid: "test".into(),
            owner: "test".into(),
            cluster_name: Some(cluster.name.clone()),
            cluster_spec: Some(serde_json::to_value(cluster.get().await?.spec)?),
        };
        let from = snapshot::From::Cluster(Endpoints::new(cluster.endpoints().await?));
        let stop = CancellationToken::new();
        snapshot::save(from, &self.place(&path)?, Naming::AsGiven, &meta, &stop, |_| {}).await?;
        Ok(path)
    }

    pub async fn read(&self, path: &str) -> Outcome<Vec<u8>> {
        let bytes = self.place(path)?.get().await?;
        Ok(bytes.ok_or("there is no such object")?.to_vec())
    }

    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Outcome<String> {
        let path = self.path(name);
        self.place(&path)?.put(bytes).await?;
        Ok(path)
    }

    /// There is something at this path.
    pub async fn holds(&self, path: &str) -> Outcome {
        let size = self.place(path)?.size().await?;
        if size > 0 { Ok(()) } else { Err(format!("{path} is empty").into()) }
    }

    /// One whose keys are wrong, and one that lacks a file.
    pub async fn bad_secrets(&self, test: &TestNamespace<'_>) -> Outcome {
        let text = |name: &str| String::from_utf8_lossy(&self.secret[name]).into_owned();
        let wrong = text("credentials").replace("lab-secret-key", "not-the-key");
        let (wrong, config) = (format!("--from-literal=credentials={wrong}"), text("config"));
        let config = format!("--from-literal=config={config}");
        test.kubectl(&["create", "secret", "generic", "wrong", &wrong, &config]).await?;
        test.kubectl(&["create", "secret", "generic", "half", &config]).await?;
        Ok(())
    }
}

/// Every way to spoil a good backup, and what is said of it.
pub fn damages(good: &[u8]) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let flipped = |at: usize| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let half = good.len() / 2;
    vec![
        ("truncated", good[..half].to_vec(), "truncated"),
        ("trailer", flipped(good.len() - 1), "trailer is damaged"),
        ("page", flipped(3 * 4096 + 20), "damaged"),
        ("middle", flipped(half), "damaged"),
        ("empty", Vec::new(), "it is empty"),
        ("not-a-snapshot", b"hello, world".repeat(4096), "not a snapshot"),
    ]
}
