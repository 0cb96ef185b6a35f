//! Uploads in parts: never visible before they are whole, and never left lying about.
//!
//! A note beside the object, written before the first part, names the upload. Whoever finds it later, because the
//! process that wrote it died, can end the upload and remove what it left.

use crate::{Place, StoreError, manifest};
use futures::future::BoxFuture;
use jiff::Timestamp;
use object_store::multipart::{MultipartStore, PartId};
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use prost::bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// What the note's name adds to that of its object.
pub(crate) const SUFFIX: &str = ".uploading.json";
/// The smallest that S3 takes, which allows for 50 GB in its 10,000 parts.
const PART: usize = 5 << 20;
/// Folders take any, and keep less in memory.
const FOLDER_PART: usize = 1 << 20;
/// Parts on their way while the next one fills.
const IN_FLIGHT: usize = 2;

/// What must be known to end an upload after its process died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    /// Folders have none: their parts go into a file beside the object.
    upload: Option<String>,
    owner_uid: String,
    started: Timestamp,
    /// There was an object of this name before, which the end of this upload replaces.
    replaces: bool,
}

pub(crate) struct Upload {
    place: Place,
    note: Place,
    told: Note,
    way: Way,
    next: usize,
    part: Vec<Bytes>,
    filled: usize,
    flying: JoinSet<Result<Option<(usize, PartId)>, object_store::Error>>,
    done: Vec<(usize, PartId)>,
}

/// How long parts under way may take to land when the upload is given up.
const LANDING: Duration = Duration::from_secs(10);

/// How parts get there.
enum Way {
    Cloud { store: Arc<dyn MultipartStore>, id: String },
    Folder(Box<dyn MultipartUpload>),
}

impl Upload {
    pub(crate) async fn begin(place: &Place, owner_uid: &str) -> Result<Self, StoreError> {
        let replaces = match place.size().await {
            // Without the right to list, S3 does not tell what is missing from what is forbidden.
            Ok(_) | Err(StoreError::Denied { .. }) => true,
            Err(error) if error.is_missing() => false,
            Err(error) => return Err(error),
        };
        let failed = |cause| place.error(&cause);
        let note = place.followed_by(SUFFIX)?;
        let started = Timestamp::now();
        let mut told = Note { upload: None, owner_uid: owner_uid.to_owned(), started, replaces };
        let tell = async |told: &Note| {
            let text = serde_json::to_vec(told)
                .map_err(|error| StoreError::Other { place: place.to_string(), why: error.to_string() })?;
            note.put(text).await
        };
        let way = if let Some(store) = place.parts() {
            // The upload first: only the store knows its ID.
            let id = store.create_multipart(place.location()).await.map_err(failed)?;
            told.upload = Some(id.clone());
            if let Err(error) = tell(&told).await {
                store.abort_multipart(place.location(), &id).await.map_err(failed)?;
                return Err(error);
            }
            Way::Cloud { store: store.clone(), id }
        } else {
            // The note first: whoever dies between the two leaves no file that nobody knows of.
            tell(&told).await?;
            match place.store().put_multipart(place.location()).await {
                Ok(file) => Way::Folder(file),
                Err(cause) => {
                    note.delete().await?;
                    return Err(failed(cause));
                }
            }
        };
        let (place, flying) = (place.clone(), JoinSet::new());
        Ok(Self { place, note, told, way, next: 0, part: Vec::new(), filled: 0, flying, done: Vec::new() })
    }

    /// Takes the next bytes, and waits while enough parts are on their way.
    pub(crate) async fn write(&mut self, mut piece: Bytes) -> Result<(), StoreError> {
        let size = match self.way {
            Way::Cloud { .. } => PART,
            Way::Folder(_) => FOLDER_PART,
        };
        while self.filled + piece.len() >= size {
            self.part.push(piece.split_to(size - self.filled));
            self.filled = size;
            self.send().await?;
        }
        self.filled += piece.len();
        if !piece.is_empty() {
            self.part.push(piece);
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), StoreError> {
        while self.flying.len() >= IN_FLIGHT {
            self.land().await?;
        }
        let payload = PutPayload::from_iter(std::mem::take(&mut self.part));
        self.filled = 0;
        let index = self.next;
        self.next += 1;
        let flight: BoxFuture<'static, _> = match &mut self.way {
            Way::Cloud { store, id } => {
                let (store, id, path) = (store.clone(), id.clone(), self.place.location().clone());
                Box::pin(async move {
                    let part = store.put_part(&path, &id, index, payload).await?;
                    Ok(Some((index, part)))
                })
            }
            Way::Folder(file) => {
                let written = file.put_part(payload);
                Box::pin(async move { written.await.map(|()| None) })
            }
        };
        self.flying.spawn(flight);
        Ok(())
    }

    async fn land(&mut self) -> Result<(), StoreError> {
        match self.flying.join_next().await {
            Some(Ok(Ok(part))) => self.done.extend(part),
            Some(Ok(Err(cause))) => return Err(self.place.error(&cause)),
            Some(Err(panic)) => return Err(self.broken(panic.to_string())),
            None => {}
        }
        Ok(())
    }

    fn broken(&self, why: String) -> StoreError {
        StoreError::Other { place: self.place.to_string(), why }
    }

    /// Makes the object visible. The note stays until the backup counts.
    pub(crate) async fn complete(&mut self) -> Result<(), StoreError> {
        if self.filled > 0 || self.next == 0 {
            self.send().await?;
        }
        while !self.flying.is_empty() {
            self.land().await?;
        }
        self.done.sort_by_key(|(index, _)| *index);
        let parts = std::mem::take(&mut self.done).into_iter().map(|(_, part)| part).collect();
        let completed = match &mut self.way {
            Way::Cloud { store, id } => store.complete_multipart(self.place.location(), id, parts).await,
            Way::Folder(file) => file.complete().await,
        };
        completed.map_err(|cause| self.place.error(&cause))?;
        Ok(())
    }

    /// Ends an upload that shall not become an object.
    pub(crate) async fn abort(&mut self) -> Result<(), StoreError> {
        // A part that is cut off may arrive after the upload was ended, and then stay: each is let land first.
        let landed = async { while self.flying.join_next().await.is_some() {} };
        if tokio::time::timeout(LANDING, landed).await.is_err() {
            self.flying.shutdown().await;
        }
        if let Way::Folder(file) = &mut self.way {
            // What it leaves is cleaned up all the same.
            drop(file.abort().await);
        }
        // It may have been completed by a request whose answer nobody waited for: then all of it is there.
        clean_up(&self.place, &self.told).await?;
        self.forget().await
    }

    /// Deletes the whole object, if that is the one that was uploaded here: `false` if somebody else has begun since.
    pub(crate) async fn undo(&mut self) -> Result<bool, StoreError> {
        let noted = self.note.get().await?.and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
        if noted.as_ref() != Some(&self.told) {
            return Ok(false);
        }
        manifest::undo(&self.place).await?;
        self.forget().await?;
        Ok(true)
    }

    /// Whether its end took the place of an object that was there before.
    pub(crate) fn replaces(&self) -> bool {
        self.told.replaces
    }

    /// The backup counts, or is gone: nobody need clean up after it.
    pub(crate) async fn forget(&mut self) -> Result<(), StoreError> {
        self.note.delete().await
    }
}

/// Ends uploads of this owner, under names that begin with that of `prefix`, whose process died; gives their number.
/// Only its owner's next run may call this: an upload under way looks the same.
pub async fn sweep(prefix: &Place, owner_uid: &str) -> Result<usize, StoreError> {
    let mut swept = 0;
    for place in prefix.siblings().await? {
        let Some(object) = place.path().strip_suffix(SUFFIX) else { continue };
        let object = place.at(object)?;
        let Some(bytes) = place.get().await? else { continue };
        let Ok(note) = serde_json::from_slice::<Note>(&bytes) else {
            tracing::warn!(%place, "is no note of an upload: passed over");
            continue;
        };
        if note.owner_uid != owner_uid {
            continue;
        }
        clean_up(&object, &note).await?;
        place.delete().await?;
        swept += 1;
    }
    Ok(swept)
}

async fn clean_up(object: &Place, note: &Note) -> Result<(), StoreError> {
    if let (Some(id), Some(store)) = (&note.upload, object.parts()) {
        match store.abort_multipart(object.location(), id).await.map_err(|cause| object.error(&cause)) {
            // It was completed or aborted before its process died.
            Err(StoreError::NoObject { .. }) | Ok(()) => {}
            Err(StoreError::Other { why, .. }) if why.contains("NoSuchUpload") => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(file) = object.on_disk() {
        remove_staged(&file).await.map_err(|source| StoreError::Folder { path: file, source })?;
    }
    // Whole, and never verified. One that replaced another stays: it may be that other.
    if !note.replaces && manifest::beside(object)?.get().await?.is_none() {
        object.delete().await?;
    }
    Ok(())
}

/// Parts are gathered in `name#1` beside `name`.
async fn remove_staged(file: &std::path::Path) -> std::io::Result<()> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let mut entries = tokio::fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let staged = entry.file_name().to_str().and_then(|other| {
            let number = other.strip_prefix(name)?.strip_prefix('#')?;
            number.parse::<u32>().ok()
        });
        if staged.is_some() {
            tokio::fs::remove_file(entry.path()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{self, Secret, StoreSource};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    /// Its process may die wherever it waits.
    #[tokio::test]
    async fn no_file_is_ever_without_its_note() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let source = StoreSource::Volume { root: folder.path().to_owned(), path: "b".into() };
            let place = store::open(&source, &Secret::new()).unwrap();
            let upload = async {
                let mut upload = Upload::begin(&place, "uid").await.unwrap();
                upload.write(Bytes::from_static(b"contents")).await.unwrap();
                upload.complete().await.unwrap();
            };
            let is_there = |name: &str| folder.path().join(name).exists();
            let mut upload = pin!(upload);
            poll_fn(|context| {
                let done = upload.as_mut().poll(context);
                assert!(!(is_there("b#1") || is_there("b")) || is_there("b.uploading.json"));
                done
            })
            .await;
            assert_eq!(sweep(&place, "uid").await.unwrap(), 1);
            assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        }
    }

    /// Whoever stops it does not hear whether its end got there.
    #[tokio::test]
    async fn nothing_is_left_of_an_end_that_was_stopped() {
        for polls in 1..8 {
            let folder = tempfile::tempdir().unwrap();
            let source = StoreSource::Volume { root: folder.path().to_owned(), path: "b".into() };
            let place = store::open(&source, &Secret::new()).unwrap();
            let mut upload = Upload::begin(&place, "uid").await.unwrap();
            upload.write(Bytes::from_static(b"contents")).await.unwrap();
            let (mut left, mut end) = (polls, Box::pin(upload.complete()));
            poll_fn(|context| {
                left -= 1;
                if left == 0 { Poll::Ready(()) } else { end.as_mut().poll(context).map(|done| done.unwrap()) }
            })
            .await;
            drop(end);
            upload.abort().await.unwrap();
            assert_eq!(folder.path().read_dir().unwrap().count(), 0, "after {polls} polls");
        }
    }
}
