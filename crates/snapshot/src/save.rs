//! A backup: from an up-to-date member straight to the store, read back, and only then made to count.

use crate::inspect::{InspectError, Kind, inspect};
use crate::manifest::{self, Giver, Manifest};
use crate::members::{self, Candidate, Endpoints, FindError};
use crate::trailer::TrailerCheck;
use crate::upload::{Upload, sweep};
use crate::{Damage, Place, Progress, StoreError};
use etcd::Freshness;
use jiff::Timestamp;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Progress is reported this often, in bytes.
const STEP: u64 = 16 << 20;
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
    #[error("stopped before it was done; nothing is left of it")]
    Stopped,
}

/// Saves a snapshot, and gives its manifest once it counts. When `stop` is cancelled, or anything fails, the upload is
/// ended and nothing is left that could be taken for a backup.
pub async fn save(
    from: From,
    place: &Place,
    naming: Naming,
    meta: &Meta,
    stop: &CancellationToken,
    progress: impl Fn(Progress) + Send + Sync,
) -> Result<(Place, Manifest), SaveError> {
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
        Naming::Series => place.followed_by(&series(revision, started))?,
    };
    let mut upload = Upload::begin(&place, &meta.owner_uid).await?;
    let streamed = stoppable(stop, stream(&candidate, freshness, &mut upload, &progress)).await;
    if let Err(error) = streamed {
        // What was wrong first is what people need to know.
        if let Err(also) = upload.abort().await {
            tracing::warn!(%place, error = %also, "the upload was not ended; the next backup ends it");
        }
        return Err(error);
    }
    let counted = stoppable(stop, async {
        let contents = read_back(&place, &progress).await?;
        let giver =
            Giver { version: candidate.status.version, cluster: identity.cluster, member: identity.member };
        let manifest = Manifest::new(&place, meta, giver, &contents, started);
        manifest::write(&place, &manifest).await?;
        Ok(manifest)
    });
    let manifest = match counted.await {
        Ok(manifest) => manifest,
        Err(error) => {
            if let Err(also) = manifest::delete(&place).await {
                tracing::warn!(%place, error = %also, "is not deleted; the next backup deletes it");
                return Err(error);
            }
            upload.forget().await?;
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
) -> Result<(), SaveError> {
    let failed = |source| SaveError::Member { member: candidate.status.identity.member, source };
    let member = candidate.member.with_deadline(PIECE);
    let mut snapshot = member.snapshot(freshness).await.map_err(failed)?;
    let mut check = TrailerCheck::default();
    let mut told = 0;
    while let Some(piece) = snapshot.next().await.map_err(failed)? {
        check.update(&piece);
        upload.write(piece).await?;
        if check.bytes() - told >= STEP {
            told = check.bytes();
            progress(Progress::Moved { bytes: told, total: None });
        }
    }
    let checked = check.finish().ok_or(SaveError::Damaged(Damage::Empty))?;
    if !checked.holds() {
        return Err(SaveError::Damaged(Damage::of_sums(checked)));
    }
    Ok(upload.complete().await?)
}

async fn read_back(
    place: &Place,
    progress: &(impl Fn(Progress) + Send + Sync),
) -> Result<crate::Contents, SaveError> {
    progress(Progress::Verifying { bytes: place.size().await? });
    match inspect(place, Kind::Snapshot).await {
        Ok(contents) => Ok(contents),
        Err(InspectError::Damage(damage)) => Err(SaveError::ReadBack(damage)),
        Err(InspectError::Store(error)) => Err(error.into()),
    }
}

/// As coreos named them.
fn series(revision: i64, now: Timestamp) -> String {
    format!("_v{revision}_{}", now.strftime("%Y-%m-%d-%H:%M:%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_named_as_coreos_did() {
        let time: Timestamp = "2026-11-15T19:00:05Z".parse().unwrap();
        assert_eq!(series(42, time), "_v42_2026-11-15-19:00:05");
    }
}
