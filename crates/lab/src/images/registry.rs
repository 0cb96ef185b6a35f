//! The folder that docker-registry serves, in its documented layout (version 2 of its storage).
//!
//! Written directly, so that filling a lab's registry is a matter of hard links, needs no server,
//! and works while one is running: docker-registry looks at the files for every request.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{At, ImageError, Reference};

/// A blob, in the words of the OCI image specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    pub digest: String,
    pub size: u64,
}

/// What of a manifest, Docker's or OCI's, matters for keeping it.
#[derive(Deserialize)]
pub(super) struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

impl Manifest {
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}

/// An image in a registry, as `lab images` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    pub repository: String,
    pub tag: String,
    pub digest: String,
    /// Of all layers together, as they are stored.
    pub size: u64,
}

#[derive(Clone, Debug)]
pub struct Registry {
    root: PathBuf,
}

impl Registry {
    /// The registry whose `rootdirectory` is `folder`; it need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self { root: folder.join("docker/registry/v2") }
    }

    /// The images, by name.
    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let mut found = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(name) = folders.pop() {
            for child in names(&self.root.join("repositories").join(&name))? {
                let path = if name.is_empty() { child.clone() } else { format!("{name}/{child}") };
                if child == "_manifests" {
                    for tag in names(&self.root.join("repositories").join(path).join("tags"))? {
                        found.push(self.describe(&name, tag)?);
                    }
                } else if !child.starts_with('_') {
                    folders.push(path);
                }
            }
        }
        found.sort_by(|a, b| (&a.repository, &a.tag).cmp(&(&b.repository, &b.tag)));
        Ok(found)
    }

    fn describe(&self, repository: &str, tag: String) -> Result<Listed, ImageError> {
        let digest = read_text(&self.tag_path(repository, &tag).join("current/link"))?;
        let size = self.manifest(&digest)?.layers.iter().map(|layer| layer.size).sum();
        Ok(Listed { repository: repository.to_owned(), tag, digest, size })
    }

    /// The digest of the manifest that `reference` names, if it is there.
    pub fn resolve(&self, reference: &Reference) -> Result<Option<String>, ImageError> {
        let path = self.tag_path(reference.repository(), reference.tag()).join("current/link");
        if path.exists() { read_text(&path).map(Some) } else { Ok(None) }
    }

    pub(super) fn manifest(&self, digest: &str) -> Result<Manifest, ImageError> {
        serde_json::from_slice(&self.read_blob(digest)?)
            .map_err(|source| ImageError::Json { what: digest.to_owned(), source })
    }

    pub(super) fn read_blob(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let path = self.blob(digest)?;
        fs::read(&path).at(&path)
    }

    /// Where the blob is, or would be.
    pub(super) fn blob(&self, digest: &str) -> Result<PathBuf, ImageError> {
        let hex = digest
            .strip_prefix("sha256:")
            .filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let hex = hex.ok_or_else(|| ImageError::Digest(digest.to_owned()))?;
        Ok(self.root.join("blobs/sha256").join(&hex[..2]).join(hex).join("data"))
    }

    /// Stores what `write` writes, under its own digest.
    pub(super) fn put(
        &self,
        media_type: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), ImageError>,
    ) -> Result<Descriptor, ImageError> {
        let blobs = self.root.join("blobs/sha256");
        fs::create_dir_all(&blobs).at(&blobs)?;
        let file = tempfile::NamedTempFile::new_in(&blobs).at(&blobs)?;
        let (hash, size) = {
            let mut out = Hashing {
                out: BufWriter::with_capacity(1 << 20, file.as_file()),
                hash: Sha256::new(),
                size: 0,
            };
            write(&mut out)?;
            out.flush().at(&blobs)?;
            (out.hash.finalize(), out.size)
        };
        let descriptor = Descriptor {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{}", hex::encode(hash)),
            size,
        };
        let path = self.blob(&descriptor.digest)?;
        // Labs share blobs by hard links, so nobody may write to one.
        file.as_file().set_permissions(fs::Permissions::from_mode(0o444)).at(&path)?;
        file.as_file().sync_all().at(&path)?;
        make_parent(&path)?;
        file.persist(&path).map_err(|error| error.error).at(&path)?;
        Ok(descriptor)
    }

    pub(super) fn put_bytes(&self, media_type: &str, bytes: &[u8]) -> Result<Descriptor, ImageError> {
        self.put(media_type, |out| out.write_all(bytes).at(&self.root))
    }

    pub(super) fn put_reader(
        &self,
        media_type: &str,
        mut reader: impl Read,
    ) -> Result<Descriptor, ImageError> {
        self.put(media_type, |mut out| io::copy(&mut reader, &mut out).map(drop).at(&self.root))
    }

    /// Names a stored manifest, whose blobs are stored too.
    pub(super) fn tag(&self, reference: &Reference, digest: &str) -> Result<(), ImageError> {
        let repository = self.root.join("repositories").join(reference.repository());
        for blob in self.manifest(digest)?.blobs() {
            write_link(&repository.join("_layers"), &blob.digest)?;
        }
        write_link(&repository.join("_manifests/revisions"), digest)?;
        let tag = self.tag_path(reference.repository(), reference.tag());
        write_link(&tag.join("index"), digest)?;
        write_text(&tag.join("current/link"), digest)
    }

    /// Takes over a manifest and its blobs from another registry on this machine, by hard links where they can be.
    pub(super) fn link_from(&self, other: &Self, digest: &str) -> Result<(), ImageError> {
        let manifest = other.manifest(digest)?;
        for digest in manifest.blobs().map(|blob| blob.digest.as_str()).chain([digest]) {
            let (from, to) = (other.blob(digest)?, self.blob(digest)?);
            if to.exists() {
                continue;
            }
            make_parent(&to)?;
            match fs::hard_link(&from, &to) {
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                    self.put_reader("", File::open(&from).at(&from)?).map(drop)?;
                }
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error).at(&from),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the blobs that no tag leads to. Only while nobody else writes.
    pub(super) fn prune(&self) -> Result<(), ImageError> {
        let mut kept = std::collections::HashSet::new();
        for image in self.list()? {
            kept.extend(self.manifest(&image.digest)?.blobs().map(|blob| blob.digest.clone()));
            kept.insert(image.digest);
        }
        let blobs = self.root.join("blobs/sha256");
        for start in names(&blobs)? {
            if start.starts_with('.') {
                // Half a blob, left by a writer that was killed.
                fs::remove_file(blobs.join(&start)).at(&blobs)?;
            }
            for hex in names(&blobs.join(&start))? {
                let folder = blobs.join(&start).join(&hex);
                if !kept.contains(&format!("sha256:{hex}")) {
                    fs::remove_dir_all(&folder).at(&folder)?;
                }
            }
        }
        Ok(())
    }

    fn tag_path(&self, repository: &str, tag: &str) -> PathBuf {
        self.root.join("repositories").join(repository).join("_manifests/tags").join(tag)
    }
}

struct Hashing<W> {
    out: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The names in a folder; none if there is no folder.
fn names(folder: &Path) -> Result<Vec<String>, ImageError> {
    let found = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        found => found.at(folder)?,
    };
    found.map(|entry| Ok(entry.at(folder)?.file_name().to_string_lossy().into_owned())).collect()
}

fn write_link(folder: &Path, digest: &str) -> Result<(), ImageError> {
    let path = folder.join(digest.replacen(':', "/", 1)).join("link");
    if path.exists() { Ok(()) } else { write_text(&path, digest) }
}

/// Writes a file in one step: a registry that looks meanwhile sees the old text or the new.
pub(super) fn write_text(path: &Path, text: &str) -> Result<(), ImageError> {
    let folder = make_parent(path)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).at(folder)?;
    file.write_all(text.as_bytes()).at(path)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).at(path)?;
    file.persist(path).map_err(|error| error.error).at(path)?;
    Ok(())
}

fn make_parent(path: &Path) -> Result<&Path, ImageError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).at(parent)?;
    Ok(parent)
}

fn read_text(path: &Path) -> Result<String, ImageError> {
    fs::read_to_string(path).at(path)
}
