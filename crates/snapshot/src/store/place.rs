//! One object of one opened store.

use super::StoreError;
use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutPayload};
use prost::bytes::Bytes;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a backup is. Shown without secrets.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn ObjectStore>,
    /// How parts are uploaded under an ID that outlives this process; folders need none.
    parts: Option<Arc<dyn MultipartStore>>,
    path: Path,
    base: String,
    folder: Option<PathBuf>,
}

impl Place {
    pub(super) fn cloud<S: ObjectStore + MultipartStore>(
        store: Arc<S>,
        key: &str,
        base: String,
    ) -> Result<Self, StoreError> {
        let path = parse(key)?;
        Ok(Self { store: store.clone(), parts: Some(store), path, base, folder: None })
    }

    pub(super) fn folder(store: Arc<LocalFileSystem>, root: PathBuf, path: &str) -> Result<Self, StoreError> {
        let path = parse(path)?;
        let base = format!("file://{}", root.display());
        Ok(Self { store, parts: None, path, base, folder: Some(root) })
    }

    /// A file by its name, which must exist.
    pub fn file(name: &std::path::Path) -> Result<Self, StoreError> {
        let missing = |source| StoreError::Folder { path: name.to_owned(), source };
        let full = name.canonicalize().map_err(missing)?;
        let path =
            Path::from_absolute_path(&full).map_err(|_| StoreError::BadPath(full.display().to_string()))?;
        Ok(Self {
            store: Arc::new(LocalFileSystem::new()),
            parts: None,
            path,
            base: "file://".into(),
            folder: Some("/".into()),
        })
    }

    /// Bytes in memory: for tests and fuzzing.
    pub async fn memory(contents: impl Into<Bytes>) -> Result<Self, StoreError> {
        let store = Arc::new(InMemory::new());
        let place = Self::cloud(store, "snapshot", "memory:".into())?;
        place.put(contents.into()).await?;
        Ok(place)
    }

    /// The object's path inside its store.
    pub fn path(&self) -> &str {
        self.path.as_ref()
    }

    /// Another object of the same store.
    pub fn at(&self, path: &str) -> Result<Self, StoreError> {
        Ok(Self { path: parse(path)?, ..self.clone() })
    }

    /// The object whose name goes on with `suffix`.
    pub fn followed_by(&self, suffix: &str) -> Result<Self, StoreError> {
        self.at(&format!("{}{suffix}", self.path))
    }

    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    pub(crate) fn parts(&self) -> Option<&Arc<dyn MultipartStore>> {
        self.parts.as_ref()
    }

    pub(crate) fn location(&self) -> &Path {
        &self.path
    }

    /// The file, where the store is a folder.
    pub(crate) fn on_disk(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(self.path.as_ref()))
    }

    pub(crate) fn error(&self, cause: &object_store::Error) -> StoreError {
        StoreError::of(self, cause)
    }

    /// How large the object is.
    pub async fn size(&self) -> Result<u64, StoreError> {
        match self.store.head(&self.path).await {
            Ok(meta) => Ok(meta.size),
            // A HEAD has no body to say what is missing: the object, or its bucket.
            Err(object_store::Error::NotFound { .. }) => {
                let got = self.store.get_opts(&self.path, GetOptions::default()).await;
                got.map(|got| got.meta.size).map_err(|cause| self.error(&cause))
            }
            Err(cause) => Err(self.error(&cause)),
        }
    }

    pub async fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.store.get_range(&self.path, range).await.map_err(|cause| self.error(&cause))
    }

    /// All of a small object; `None` if there is none.
    pub async fn get(&self) -> Result<Option<Bytes>, StoreError> {
        let got = match self.store.get(&self.path).await {
            Ok(got) => got.bytes().await,
            Err(cause) => Err(cause),
        };
        match got.map_err(|cause| self.error(&cause)) {
            Err(error) if error.is_missing() => Ok(None),
            got => got.map(Some),
        }
    }

    /// Writes a small object, whole or not at all.
    pub async fn put(&self, contents: impl Into<PutPayload>) -> Result<(), StoreError> {
        self.store.put(&self.path, contents.into()).await.map_err(|cause| self.error(&cause))?;
        Ok(())
    }

    /// Deletes the object, if it is there.
    pub async fn delete(&self) -> Result<(), StoreError> {
        match self.store.delete(&self.path).await.map_err(|cause| self.error(&cause)) {
            Err(error) if error.is_missing() => Ok(()),
            done => done,
        }
    }

    /// The objects beside this one whose names begin with its own.
    pub async fn siblings(&self) -> Result<Vec<Self>, StoreError> {
        let folder = self.path.as_ref().rsplit_once('/').map(|(folder, _)| folder.to_owned());
        let folder = folder.map(|folder| parse(&folder)).transpose()?;
        let listed = self.store.list_with_offset(folder.as_ref(), &self.path);
        let listed: Vec<Path> = listed
            .map_ok(|meta| meta.location)
            .try_filter(|path| {
                let rest = path.as_ref().strip_prefix(self.path.as_ref());
                std::future::ready(rest.is_some_and(|rest| !rest.contains('/')))
            })
            .try_collect()
            .await
            .map_err(|cause| self.error(&cause))?;
        Ok(listed.into_iter().map(|path| Self { path, ..self.clone() }).collect())
    }
}

fn parse(path: &str) -> Result<Path, StoreError> {
    match Path::parse(path) {
        Ok(parsed) if !parsed.as_ref().is_empty() => Ok(parsed),
        _ => Err(StoreError::BadPath(path.to_owned())),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.path)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}
