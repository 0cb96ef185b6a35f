//! The small file beside a backup that makes it count.

use crate::trailer::TRAILER;
use crate::{Contents, Place, StoreError};
use domain::{ClusterId, MemberId, Version};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a manifest's name adds to that of its backup.
pub const SUFFIX: &str = ".manifest.json";
/// Of this file's own format; readers refuse a later one.
const FORMAT: u32 = 1;
const READ_AT_ONCE: usize = 8;

/// What is known of a backup that was read back and found whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub format: u32,
    /// The backup's path inside its store when it was made.
    pub object: String,
    /// Of the whole object, the trailer included.
    pub size: u64,
    /// Of the database, which the trailer repeats.
    pub sha256: String,
    pub revision: i64,
    /// Live keys.
    pub keys: u64,
    /// Of live keys and values, whatever their layout.
    pub digest: String,
    /// The version of the member that gave it.
    pub etcd_version: String,
    pub cluster_id: String,
    pub member_id: String,
    /// When the backup was due.
    pub slot: Timestamp,
    pub started: Timestamp,
    pub finished: Timestamp,
    /// The UID of the resource that asked for it.
    pub owner_uid: String,
    /// That resource, for people: `namespace/name`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The spec of the `EtcdCluster` at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_spec: Option<serde_json::Value>,
}

/// Who gave a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Giver {
    pub version: Version,
    pub cluster: ClusterId,
    pub member: MemberId,
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{place} is no manifest: {why}")]
    Unreadable { place: String, why: String },
    #[error("{place} has format {found}, and this program knows {FORMAT}: use a newer one")]
    Newer { place: String, found: u32 },
}

impl Manifest {
    pub(crate) fn new(
        place: &Place,
        meta: &crate::Meta,
        giver: Giver,
        contents: &Contents,
        started: Timestamp,
    ) -> Self {
        Self {
            format: FORMAT,
            object: place.path().to_owned(),
            size: contents.size,
            sha256: contents.sha256.clone(),
            revision: contents.revision,
            keys: contents.keys,
            digest: contents.digest.clone(),
            etcd_version: giver.version.to_string(),
            cluster_id: giver.cluster.to_string(),
            member_id: giver.member.to_string(),
            slot: meta.slot,
            started,
            finished: Timestamp::now(),
            owner_uid: meta.owner_uid.clone(),
            owner: meta.owner.clone(),
            cluster_name: meta.cluster_name.clone(),
            cluster_spec: meta.cluster_spec.clone(),
        }
    }
}

/// Where the manifest of a backup is.
pub fn beside(backup: &Place) -> Result<Place, StoreError> {
    backup.followed_by(SUFFIX)
}

/// The manifest of this backup. `None` if it has none, or one that speaks of an object that was here before:
/// the backup is read by its trailer then.
pub async fn read(backup: &Place) -> Result<Option<Manifest>, ManifestError> {
    let Some(manifest) = load(&beside(backup)?).await? else { return Ok(None) };
    let size = backup.size().await?;
    if size != manifest.size || size < TRAILER as u64 {
        return Ok(None);
    }
    let trailer = backup.read(size - TRAILER as u64..size).await?;
    Ok((hex::encode(&trailer) == manifest.sha256).then_some(manifest))
}

/// All that can be known of a manifest before its format is.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

async fn load(place: &Place) -> Result<Option<Manifest>, ManifestError> {
    let Some(bytes) = place.get().await? else { return Ok(None) };
    let unreadable =
        |why: serde_json::Error| ManifestError::Unreadable { place: place.to_string(), why: why.to_string() };
    let Format { format: found } = serde_json::from_slice(&bytes).map_err(unreadable)?;
    if found != FORMAT {
        return Err(ManifestError::Newer { place: place.to_string(), found });
    }
    serde_json::from_slice(&bytes).map_err(unreadable).map(Some)
}

/// Makes a backup count.
pub(crate) async fn write(backup: &Place, manifest: &Manifest) -> Result<(), StoreError> {
    let text = serde_json::to_vec_pretty(manifest)
        .map_err(|error| StoreError::Other { place: backup.to_string(), why: error.to_string() })?;
    beside(backup)?.put(text).await
}

/// All backups whose names begin with that of `prefix` and that have a manifest, the oldest slot first. One that
/// cannot be read is somebody else's: it is passed over, with a word in the log.
pub async fn list(prefix: &Place) -> Result<Vec<(Place, Manifest)>, StoreError> {
    let manifests = prefix.siblings().await?;
    let manifests = manifests.into_iter().filter_map(|place| {
        let backup = place.path().strip_suffix(SUFFIX)?.to_owned();
        Some((place, backup))
    });
    let read = stream::iter(manifests).map(|(place, backup)| async move {
        match load(&place).await {
            Ok(Some(manifest)) => Ok(Some((place.at(&backup)?, manifest))),
            // Deleted since it was listed.
            Ok(None) => Ok(None),
            Err(ManifestError::Store(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "passed over");
                Ok(None)
            }
        }
    });
    let mut found: Vec<(Place, Manifest)> =
        read.buffer_unordered(READ_AT_ONCE).try_filter_map(async |found| Ok(found)).try_collect().await?;
    found.sort_by_key(|(_, manifest)| (manifest.slot, manifest.finished));
    Ok(found)
}

/// Deletes a backup: the object, and only then its manifest. If it is cut short it is found and finished the next
/// time, where an object that lost its manifest would stay for ever.
pub async fn delete(backup: &Place) -> Result<(), StoreError> {
    backup.delete().await?;
    beside(backup)?.delete().await
}

/// Deletes what did not get to count: the manifest first, which may have got there unheard of, so that it never speaks
/// for an object that is gone. The note of the upload finds an object that stays.
pub(crate) async fn undo(backup: &Place) -> Result<(), StoreError> {
    beside(backup)?.delete().await?;
    backup.delete().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{self, Secret, StoreSource};

    /// A folder in place of a file is what cannot be deleted.
    #[tokio::test]
    async fn no_manifest_outlives_what_did_not_get_to_count() {
        let folder = tempfile::tempdir().unwrap();
        let source = StoreSource::Volume { root: folder.path().to_owned(), path: "b".into() };
        let place = store::open(&source, &Secret::new()).unwrap();
        let [object, manifest] = ["b", "b.manifest.json"].map(|name| folder.path().join(name));
        std::fs::write(&object, "whole").unwrap();
        std::fs::create_dir(&manifest).unwrap();
        undo(&place).await.unwrap_err();
        assert!(object.exists());
        std::fs::remove_dir(&manifest).unwrap();
        std::fs::write(&manifest, "{}").unwrap();
        undo(&place).await.unwrap();
        assert!(!object.exists() && !manifest.exists());
    }
}
