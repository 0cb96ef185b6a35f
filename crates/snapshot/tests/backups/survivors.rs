//! Who gives the snapshot.

use super::etcds::Etcd;
use super::{SOON, folder, meta};
use etcd::process::eventually;
use lab::programs::EtcdVersion::{self, V3_1_10, V3_6_16};
use rstest::rstest;
use snapshot::{Endpoints, FindError, From, Naming, Progress, SaveError, find, save};
use std::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Saves, and tells who was chosen.
async fn chosen(from: From, root: &std::path::Path) -> Result<(Progress, snapshot::Manifest), SaveError> {
    let seen = Mutex::new(Vec::new());
    let stop = CancellationToken::new();
    let (place, meta) = (folder(root, "b"), meta("uid"));
    let note = |progress| seen.lock().unwrap().push(progress);
    let (_, manifest) = save(from, &place, Naming::AsGiven, &meta, &stop, note).await?;
    Ok((seen.into_inner().unwrap()[0], manifest))
}

/// Any one endpoint will do; a follower gives it, also if the leader is the one that is named.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gives_it(#[values(V3_1_10, V3_6_16)] version: EtcdVersion) {
    let mut etcd = Etcd::start(version, 3).await;
    let revision = etcd.member().put("k", "v").await.unwrap();
    let root = tempfile::tempdir().unwrap();
    let all = find(&etcd.endpoints()).await.unwrap();
    assert_eq!(all.len(), 3);
    let (progress, manifest) = chosen(From::Cluster(etcd.endpoints()), root.path()).await.unwrap();
    assert!(matches!(progress, Progress::Chosen { leader: false, .. }), "{progress:?}");
    assert_eq!(manifest.revision, revision);

    // Without quorum nobody proves that he is up to date; what there is can be saved all the same.
    etcd.places[1].kill().unwrap();
    etcd.places[2].kill().unwrap();
    let alone = eventually("quorum is lost", SOON, async || {
        match chosen(From::Cluster(etcd.endpoints()), root.path()).await {
            Err(SaveError::Find(FindError::NobodyUpToDate(_))) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    alone.await.unwrap();
    let survivors = find(&etcd.endpoints()).await.unwrap();
    assert_eq!(survivors.len(), 1);
    let survivor = From::Survivor(Box::new(survivors.into_iter().next().unwrap()));
    assert_eq!(chosen(survivor, root.path()).await.unwrap().1.revision, revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_member_gives_it_itself() {
    let etcd = Etcd::start(V3_6_16, 1).await;
    let root = tempfile::tempdir().unwrap();
    let (progress, _) = chosen(From::Cluster(etcd.endpoints()), root.path()).await.unwrap();
    assert!(matches!(progress, Progress::Chosen { leader: true, .. }), "{progress:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_are_no_cluster() {
    let (one, other) = (Etcd::start(V3_6_16, 1).await, Etcd::start(V3_1_10, 1).await);
    let both = Endpoints::new([one.places[0].client().to_string(), other.places[0].client().to_string()]);
    assert!(matches!(find(&both).await, Err(FindError::TwoClusters(..))));
    let nobody = Endpoints::new(["127.0.0.1:1"]);
    assert!(matches!(find(&nobody).await, Err(FindError::NobodyAnswers(_))));
}
