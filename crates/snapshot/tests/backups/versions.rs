//! Every version: saved, read back, fetched, restored by etcd's own tool, compared, and served again.

use super::etcds::{Etcd, digest, restore};
use super::{folder, saved};
use etcd::process::Place;
use lab::programs::EtcdVersion::{
    self, V3_1_10, V3_2_13, V3_3_12, V3_4_15, V3_5_16, V3_5_35, V3_6_4, V3_6_16,
};
use rstest::rstest;
use snapshot::{Expect, Naming, fetch, manifest, verify_data_dir};

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_saved_comes_back(
    #[values(V3_1_10, V3_2_13, V3_3_12, V3_4_15, V3_5_16, V3_5_35, V3_6_4, V3_6_16)] version: EtcdVersion,
    #[values(0, 700)] changes: u32,
) {
    let etcd = Etcd::start(version, 1).await;
    etcd.history(changes).await;
    let (keys, revision) = (etcd.keys().await, etcd.member().revision().await.unwrap());

    let root = tempfile::tempdir().unwrap();
    let (place, manifest) =
        saved(&etcd.endpoints(), &folder(root.path(), "backups/etcd.backup"), Naming::AsGiven).await.unwrap();
    assert_eq!(manifest.etcd_version, version.to_string());
    assert_eq!((manifest.revision, manifest.keys), (revision, keys.len() as u64));
    assert_eq!(manifest.digest, digest(&keys));
    assert_eq!(manifest::read(&place).await.unwrap(), Some(manifest.clone()));

    let file = root.path().join("fetched");
    let expect = Expect { sha256: Some(manifest.sha256.clone()), digest: Some(manifest.digest.clone()) };
    let contents = fetch(&place, &file, &expect, |_| {}).await.unwrap();
    let minor = version.to_string();
    assert_eq!(contents.version.as_deref(), minor.rsplit_once('.').map(|(minor, _)| minor));

    let target = Place::new("restored").unwrap();
    let bump: &[&str] =
        if version >= V3_5_16 { &["--bump-revision=1000000000", "--mark-compacted"] } else { &[] };
    restore(version, &file, &target, bump);
    let expect = Expect { digest: Some(manifest.digest), sha256: None };
    let restored = verify_data_dir(&target.data(), &expect).await.unwrap();
    assert_eq!(restored.keys, manifest.keys);
    assert_eq!(restored.revision >= 1_000_000_000, !bump.is_empty());
    let again = Etcd::start_on(version, target).await;
    assert_eq!(again.keys().await, keys);
}

/// Compaction removes the last change, if it was a deletion; the revision stays.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_revision_outlives_the_keys(#[values(V3_1_10, V3_6_16)] version: EtcdVersion) {
    let etcd = Etcd::start(version, 1).await;
    let member = etcd.member();
    member.put("k", "v").await.unwrap();
    member.delete("k").await.unwrap();
    let revision = member.revision().await.unwrap();
    member.compact(revision).await.unwrap();
    let root = tempfile::tempdir().unwrap();
    let (_, manifest) = saved(&etcd.endpoints(), &folder(root.path(), "b"), Naming::AsGiven).await.unwrap();
    assert_eq!((manifest.revision, manifest.keys, manifest.digest), (revision, 0, "0".repeat(32)));
}
