//! Container images, written by us from files of this machine, and the registry folder that serves them.
//!
//! Everything here blocks, for a few seconds where images are written for the first time.

mod archive;
mod image;
mod layer;
mod recipes;
mod reference;
mod registry;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

pub use image::Image;
pub use layer::Layer;
pub use recipes::{Recipe, etcd_operator, nginx_operator, of_binary, own_program, program};
pub use reference::Reference;
pub use registry::{Descriptor, Listed, Registry};

use crate::programs::BuildError;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("'{0}' is not an image's name, like quay.io/coreos/etcd:v3.5.16")]
    Reference(String),
    #[error("'{0}' is not a SHA-256 digest")]
    Digest(String),
    #[error("{what} is not what it should be: {source}")]
    Json { what: String, source: serde_json::Error },
    #[error("{path} is not an image that can be read: {why}", path = path.display())]
    Archive { path: PathBuf, why: String },
    #[error("{command} failed: {output}")]
    Command { command: String, output: String },
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Adds the path to an I/O error.
trait At<T> {
    fn at(self, path: &Path) -> Result<T, ImageError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, ImageError> {
        self.map_err(|source| ImageError::Io { path: path.to_owned(), source })
    }
}

/// The images that were written once and are kept in the cache, for every lab to link to.
pub struct Images {
    folder: PathBuf,
    store: Registry,
}

impl Images {
    pub fn new(cache: &Path) -> Self {
        let folder = cache.join("images");
        Self { store: Registry::new(&folder), folder }
    }

    /// Puts `images` into a lab's registry under all their names, writing those that are new or changed.
    pub fn publish(&self, images: &[Image], registry: &Registry) -> Result<(), ImageError> {
        let _lock = self.lock()?;
        let mut changed = false;
        for image in images {
            let digest = self.ensure(image, &mut changed)?;
            registry.link_from(&self.store, &digest)?;
            for name in &image.names {
                registry.tag(name, &digest)?;
            }
        }
        if changed { self.store.prune() } else { Ok(()) }
    }

    /// Writes `image` as a file that `ctr images import` takes.
    pub fn export(&self, image: &Image, to: &Path) -> Result<(), ImageError> {
        let _lock = self.lock()?;
        let digest = self.ensure(image, &mut false)?;
        archive::write(&self.store, &digest, &image.names, to)
    }

    /// The image's digest in the store, which is written only if what the image is made of has changed.
    fn ensure(&self, image: &Image, changed: &mut bool) -> Result<String, ImageError> {
        let Some(name) = image.names.first() else { return Err(ImageError::Reference(String::new())) };
        let key = image.key()?;
        let known = self.folder.join("keys").join(name.to_string().replace('/', "_"));
        if let Ok(text) = fs::read_to_string(&known)
            && let Some((written, digest)) = text.split_once(' ')
            && written == key
            && self.store.resolve(name)?.as_deref() == Some(digest)
        {
            return Ok(digest.to_owned());
        }
        let digest = image.store(&self.store)?;
        self.store.tag(name, &digest)?;
        registry::write_text(&known, &format!("{key} {digest}"))?;
        *changed = true;
        Ok(digest)
    }

    /// One at a time: a second lab must not clear away what the first is about to link to.
    fn lock(&self) -> Result<File, ImageError> {
        fs::create_dir_all(&self.folder).at(&self.folder)?;
        let path = self.folder.join("lock");
        let lock = File::create(&path).at(&path)?;
        lock.lock().at(&path)?;
        Ok(lock)
    }
}

/// Makes `image` anew and writes it as a file; nothing is kept of it.
pub fn export(image: &Image, to: &Path) -> Result<(), ImageError> {
    let folder = tempfile::tempdir().at(Path::new("a folder for temporary files"))?;
    Images::new(folder.path()).export(image, to)
}

/// Takes the images of an archive, as `docker save` or `buildah push` write it, into a lab's registry.
pub fn load(archive: &Path, registry: &Registry) -> Result<Vec<Reference>, ImageError> {
    archive::read(registry, archive)
}
