//! A backup brought to a disk, and what is on a disk compared with its backup.

use crate::inspect::{Contents, Damage, InspectError, Kind, inspect};
use crate::{Place, Progress, StoreError};
use futures::{StreamExt, TryStreamExt, stream};
use std::io;
use std::path::{Path, PathBuf};
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

const CHUNK: u64 = 4 << 20;
const AHEAD: usize = 3;

/// What must be found, where it is known.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    pub sha256: Option<String>,
    pub digest: Option<String>,
}

/// It is whole, and not what was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("its SHA-256 is {found}, expected {expected}: this is another backup")]
    Sha256 { expected: String, found: String },
    #[error(
        "its live keys and values have digest {found}, expected {expected}: the data is not the backup's"
    )]
    Digest { expected: String, found: String },
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{place} is damaged: {damage}")]
    Damage { place: String, damage: Damage },
    #[error("{place}: {mismatch}")]
    Mismatch { place: String, mismatch: Mismatch },
    #[error("the disk is full: {} needs {needed} bytes", path.display())]
    DiskFull { path: PathBuf, needed: u64 },
    #[error("{} cannot be written: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl Expect {
    /// Whether this is what was asked for.
    pub fn check(&self, contents: &Contents) -> Result<(), Mismatch> {
        let differs = |expected: &Option<String>, found: &str| {
            expected.clone().filter(|expected| !expected.eq_ignore_ascii_case(found))
        };
        if let Some(expected) = differs(&self.sha256, &contents.sha256) {
            return Err(Mismatch::Sha256 { expected, found: contents.sha256.clone() });
        }
        if let Some(expected) = differs(&self.digest, &contents.digest) {
            return Err(Mismatch::Digest { expected, found: contents.digest.clone() });
        }
        Ok(())
    }
}

/// Downloads a backup into a file and verifies what arrived. On failure nothing is left at `to`.
pub async fn fetch(
    from: &Place,
    to: &Path,
    expect: &Expect,
    progress: impl Fn(Progress) + Send + Sync,
) -> Result<Contents, FetchError> {
    let fetched = match download(from, to, &progress).await {
        Ok(()) => verify(&Place::file(to)?, Kind::Snapshot, from, expect).await,
        Err(error) => Err(error),
    };
    if fetched.is_err()
        && let Err(source) = fs::remove_file(to).await
        && source.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %to.display(), error = %source, "was not removed");
    }
    fetched
}

async fn download(
    from: &Place,
    to: &Path,
    progress: &(impl Fn(Progress) + Send + Sync),
) -> Result<(), FetchError> {
    let size = from.size().await?;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            FetchError::DiskFull { path: to.to_owned(), needed: size }
        }
        _ => FetchError::File { path: to.to_owned(), source },
    };
    let mut file = File::create(to).await.map_err(failed)?;
    let ranges = (0..size.div_ceil(CHUNK)).map(|number| number * CHUNK..((number + 1) * CHUNK).min(size));
    let mut chunks = stream::iter(ranges).map(|range| from.read(range)).buffered(AHEAD);
    let mut bytes = 0;
    while let Some(chunk) = chunks.try_next().await? {
        file.write_all(&chunk).await.map_err(failed)?;
        bytes += chunk.len() as u64;
        progress(Progress::Moved { bytes, total: Some(size) });
    }
    file.flush().await.map_err(failed)?;
    file.sync_all().await.map_err(failed)
}

async fn verify(place: &Place, kind: Kind, shown: &Place, expect: &Expect) -> Result<Contents, FetchError> {
    let contents = match inspect(place, kind).await {
        Ok(contents) => contents,
        Err(InspectError::Damage(damage)) => {
            return Err(FetchError::Damage { place: shown.to_string(), damage });
        }
        Err(InspectError::Store(error)) => return Err(error.into()),
    };
    match expect.check(&contents) {
        Ok(()) => Ok(contents),
        Err(mismatch) => Err(FetchError::Mismatch { place: shown.to_string(), mismatch }),
    }
}

/// Reads the database of a member that does not run, such as one that was just restored.
pub async fn verify_data_dir(data_dir: &Path, expect: &Expect) -> Result<Contents, FetchError> {
    let place = Place::file(&data_dir.join("member").join("snap").join("db"))?;
    verify(&place, Kind::Database, &place, expect).await
}
