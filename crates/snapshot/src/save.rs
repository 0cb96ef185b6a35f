//! A backup: from an up-to-date member straight to the store, read back, and only then made to count.

use crate::aside::Aside;
use crate::body::Sent;
use crate::inspect::{self, InspectError};
use crate::manifest::{self, Giver, Manifest};
use crate::members::{self, Candidate, Endpoints, FindError};
use crate::trailer::TrailerCheck;
use crate::turn::turn;
use crate::upload::{Upload, sweep};
use crate::{Damage, Place, Progress, StoreError};
use etcd::Freshness;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Progress is reported this often, in bytes.
const STEP: u64 = 16 << 20;
/// Pieces that wait to be hashed; etcd's have 32 KiB.
const QUEUED: usize = 64;
/// For each piece of a snapshot: the store may take its time, and the member waits meanwhile.
const PIECE: Duration = Duration::from_secs(30);

/// Who is asked for the snapshot.
#[derive(Clone, Debug)]
pub enum From {
    /// The best of a cluster that has quorum: every write acknowledged before is in it.
    Cluster(Endpoints),
    /// This one, as it is: all that can be saved when quorum is lost.
    Survivor(Box<Candidate>),
}

/// What a backup is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As the path says.
    AsGiven,
    /// With revision and time added, so that one does not replace another.
    Series,
}

/// What is noted beside a backup.
#[derive(Clone, Debug)]
pub struct Meta {
    /// When it was due.
    pub slot: Timestamp,
    /// The UID of the resource that asks for it.
    pub owner_uid: String,
    /// That resource, for people: `namespace/name`.
    pub owner: String,
    pub cluster_name: Option<String>,
    pub cluster_spec: Option<serde_json::Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("member {member} gave no snapshot: {source}")]
    Member { member: domain::MemberId, source: etcd::Error },
    #[error("the snapshot arrived damaged from the member: {0}")]
    Damaged(Damage),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store gave back a damaged backup, which was deleted: {0}")]
    ReadBack(Damage),
    #[error("stopped before it was done")]
    Stopped,
}

/// Saves a snapshot, and gives its manifest once it counts. When `stop` is cancelled, or anything fails, the upload is
/// ended and nothing is left that could be taken for a backup; but a whole object that has taken the place of another
/// is all there is, and goes only if it was read back and found damaged.
pub async fn save(
    from: From,
    place: &Place,
    naming: Naming,
    meta: &Meta,
    stop: &CancellationToken,
    progress: impl Fn(Progress) + Send + Sync,
) -> Result<(Place, Manifest), SaveError> {
    let _turn = stoppable(stop, async { Ok(turn(place).await) }).await?;
    let started = Timestamp::now();
    match sweep(place, &meta.owner_uid).await {
        Ok(0) => {}
        Ok(swept) => tracing::info!(%place, swept, "uploads that were cut short are cleaned up"),
        // A backup needs no right to list.
        Err(error @ StoreError::Denied { .. }) => {
            tracing::warn!(%error, "uploads that were cut short cannot be looked for");
        }
        Err(error) => return Err(error.into()),
    }
    let (candidate, revision, freshness) = match from {
        From::Cluster(endpoints) => {
            let found = stoppable(stop, async { Ok(members::find(&endpoints).await?) }).await?;
            let (chosen, revision) = stoppable(stop, async { Ok(members::choose(found).await?) }).await?;
            (chosen, revision, Freshness::Proven)
        }
        From::Survivor(candidate) => (*candidate, 0, Freshness::AsIs),
    };
    let identity = candidate.status.identity;
    progress(Progress::Chosen { member: identity.member, leader: candidate.is_leader() });
    let place = match naming {
        Naming::AsGiven => place.clone(),
        Naming::Series => next_of_series(place, revision, started).await?,
    };
    let mut upload = Upload::begin(&place, &meta.owner_uid).await?;
    let streamed = stoppable(stop, stream(&candidate, freshness, &mut upload, &progress)).await;
    let sent = match streamed {
        Ok(sent) => sent,
        Err(error) => {
            // What was wrong first is what people need to know.
            if let Err(also) = upload.abort().await {
                tracing::warn!(%place, error = %also, "the upload was not ended; the next backup ends it");
            }
            return Err(error);
        }
    };
    let counted = stoppable(stop, async {
        let contents = read_back(&place, sent, &progress).await?;
        let giver =
            Giver { version: candidate.status.version, cluster: identity.cluster, member: identity.member };
        let manifest = Manifest::new(&place, meta, giver, &contents, started);
        manifest::write(&place, &manifest).await?;
        Ok(manifest)
    });
    let manifest = match counted.await {
        Ok(manifest) => manifest,
        Err(error) => {
            if upload.replaces() && !matches!(error, SaveError::ReadBack(_)) {
                tracing::warn!(%place, "was not read back, and stays: what was there before is gone");
                return Err(error);
            }
            match upload.undo().await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(%place, "somebody else writes there, too: what is there stays"),
                Err(also) => {
                    tracing::warn!(%place, error = %also, "is not deleted; the next backup deletes it");
                }
            }
            return Err(error);
        }
    };
    upload.forget().await?;
    progress(Progress::Done { revision: manifest.revision, keys: manifest.keys });
    Ok((place, manifest))
}

async fn stoppable<T>(
    stop: &CancellationToken,
    work: impl Future<Output = Result<T, SaveError>>,
) -> Result<T, SaveError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(SaveError::Stopped),
        done = work => done,
    }
}

/// The whole snapshot into the store; it becomes visible only if its trailer holds.
async fn stream(
    candidate: &Candidate,
    freshness: Freshness,
    upload: &mut Upload,
    progress: &(impl Fn(Progress) + Send + Sync),
) -> Result<Sent, SaveError> {
    let failed = |source| SaveError::Member { member: candidate.status.identity.member, source };
    let member = candidate.member.with_deadline(PIECE);
    let mut snapshot = member.snapshot(freshness).await.map_err(failed)?;
    let check = Aside::start(TrailerCheck::default(), QUEUED, TrailerCheck::update);
    let (mut moved, mut told) = (0, 0);
    while let Some(piece) = snapshot.next().await.map_err(failed)? {
        moved += piece.len() as u64;
        check.update(piece.clone()).await;
        upload.write(piece).await?;
        if moved - told >= STEP {
            told = moved;
            progress(Progress::Moved { bytes: told, total: None });
        }
    }
    let (checked, sent) =
        check.finish().await.and_then(TrailerCheck::finish).ok_or(SaveError::Damaged(Damage::Empty))?;
    if !checked.holds() {
        return Err(SaveError::Damaged(Damage::of_sums(checked)));
    }
    upload.complete().await?;
    Ok(sent)
}

async fn read_back(
    place: &Place,
    sent: Sent,
    progress: &(impl Fn(Progress) + Send + Sync),
) -> Result<crate::Contents, SaveError> {
    progress(Progress::Verifying { bytes: place.size().await? });
    match inspect::read_back(place, sent).await {
        Ok(contents) => Ok(contents),
        Err(InspectError::Damage(damage)) => Err(SaveError::ReadBack(damage)),
        Err(InspectError::Store(error)) => Err(error.into()),
    }
}

/// The first name that nobody has taken: another EtcdBackup may save the same revision in the same second.
async fn next_of_series(place: &Place, revision: i64, started: Timestamp) -> Result<Place, StoreError> {
    let taken = match place.siblings().await {
        Ok(taken) => taken,
        // A backup needs no right to list.
        Err(StoreError::Denied { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut second = started;
    loop {
        let next = place.followed_by(&series(revision, second))?;
        if !taken.iter().any(|taken| taken.path().starts_with(next.path())) {
            return Ok(next);
        }
        second = second.saturating_add(SignedDuration::from_secs(1)).unwrap_or(second);
    }
}

/// As coreos named them.
fn series(revision: i64, now: Timestamp) -> String {
    format!("_v{revision}_{}", now.strftime("%Y-%m-%d-%H:%M:%S"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{self, Secret, StoreSource};
    use etcd::fake::{Beliefs, Fake};
    use rstest::rstest;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn a_series_is_named_as_coreos_did() {
        let time: Timestamp = "2026-11-15T19:00:05Z".parse().unwrap();
        assert_eq!(series(42, time), "_v42_2026-11-15-19:00:05");
    }

    const FIRST: &[u8] = include_bytes!("../../../fuzz/corpus/inspect/etcd-3.1.10.db");
    const SECOND: &[u8] = include_bytes!("../../../fuzz/corpus/inspect/etcd-3.6.16.db");

    async fn member() -> Fake {
        let beliefs =
            Beliefs { snapshot: vec![FIRST.into()], ..Beliefs::single(domain::Version::new(3, 5, 16)) };
        Fake::start(beliefs).await.unwrap()
    }

    fn place(folder: &Path) -> Place {
        let source = StoreSource::Volume { root: folder.to_owned(), path: "b".into() };
        store::open(&source, &Secret::new()).unwrap()
    }

    fn meta(owner: &str) -> Meta {
        Meta {
            slot: Timestamp::now(),
            owner_uid: owner.into(),
            owner: format!("test/{owner}"),
            cluster_name: None,
            cluster_spec: None,
        }
    }

    /// Saves what the member gives to `b` in this folder; `then` happens when all of it is there.
    async fn save_to(
        folder: &Path,
        member: &Fake,
        then: impl Fn(&CancellationToken) + Send + Sync,
    ) -> Result<(), SaveError> {
        let from = From::Cluster(Endpoints::new([member.address().to_string()]));
        let stop = CancellationToken::new();
        let told = |progress| {
            if matches!(progress, Progress::Verifying { .. }) {
                then(&stop);
            }
        };
        save(from, &place(folder), Naming::AsGiven, &meta("uid"), &stop, told).await.map(drop)
    }

    fn stop(stop: &CancellationToken, _: &Path) {
        stop.cancel();
    }

    fn refuse_the_manifest(_: &CancellationToken, folder: &Path) {
        let manifest = folder.join("b.manifest.json");
        if manifest.exists() {
            std::fs::remove_file(&manifest).unwrap();
        }
        std::fs::create_dir(manifest).unwrap();
    }

    /// Another process that gives its backup the same name.
    fn overwrite(_: &CancellationToken, folder: &Path) {
        let note = r#"{"ownerUid":"another","started":"2026-11-15T00:00:00Z","replaces":true}"#;
        std::fs::write(folder.join("b.uploading.json"), note).unwrap();
        damage(&CancellationToken::new(), folder);
    }

    fn damage(_: &CancellationToken, folder: &Path) {
        let mut bytes = std::fs::read(folder.join("b")).unwrap();
        bytes[5000] ^= 1;
        std::fs::write(folder.join("b"), bytes).unwrap();
    }

    /// What has taken the place of the only backup is all there is; what is damaged goes all the same.
    #[rstest]
    #[case::stopped(stop, true)]
    #[case::store_error(refuse_the_manifest, true)]
    #[case::damaged(damage, false)]
    #[tokio::test]
    async fn a_second_backup_that_does_not_get_to_count(
        #[case] trouble: fn(&CancellationToken, &Path),
        #[case] stays: bool,
    ) {
        let (member, folder) = (member().await, tempfile::tempdir().unwrap());
        save_to(folder.path(), &member, |stop| trouble(stop, folder.path())).await.unwrap_err();
        if folder.path().join("b.manifest.json").is_dir() {
            std::fs::remove_dir(folder.path().join("b.manifest.json")).unwrap();
            sweep(&place(folder.path()), "uid").await.unwrap();
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "of the first nothing is left");
        save_to(folder.path(), &member, |_| {}).await.unwrap();
        member.set(|beliefs| beliefs.snapshot = vec![SECOND.into()]);
        save_to(folder.path(), &member, |stop| trouble(stop, folder.path())).await.unwrap_err();
        assert_eq!(std::fs::read(folder.path().join("b")).ok().as_deref(), stays.then_some(SECOND));
    }

    #[tokio::test]
    async fn what_somebody_else_wrote_meanwhile_stays() {
        let (member, folder) = (member().await, tempfile::tempdir().unwrap());
        save_to(folder.path(), &member, |stop| overwrite(stop, folder.path())).await.unwrap_err();
        assert!(folder.path().join("b").exists() && folder.path().join("b.uploading.json").exists());
    }

    /// Of one revision, in one second.
    #[tokio::test]
    async fn no_two_of_a_series_have_one_name() {
        let (member, folder) = (member().await, tempfile::tempdir().unwrap());
        let (from, place) = (Endpoints::new([member.address().to_string()]), place(folder.path()));
        let saved = futures::future::join_all(["a", "b", "c"].map(async |owner| {
            let (from, stop) = (From::Cluster(from.clone()), CancellationToken::new());
            save(from, &place, Naming::Series, &meta(owner), &stop, |_| {}).await.unwrap()
        }));
        let names: BTreeSet<_> = saved.await.iter().map(|(place, _)| place.path().to_owned()).collect();
        assert_eq!((names.len(), manifest::list(&place).await.unwrap().len()), (3, 3), "{names:?}");
    }
}
