//! Azure Blob Storage, as its own emulator plays it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod azurite;

use azurite::{ACCOUNT, Azurite, KEY};
use etcd::process::{Bootstrap, Place as Member};
use jiff::Timestamp;
use lab::programs::{EtcdVersion, Program, Programs, default_cache};
use snapshot::store::Secret;
use snapshot::{
    Endpoints, Expect, From, Meta, Naming, StoreError, StoreSource, fetch, manifest, save, store,
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

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
