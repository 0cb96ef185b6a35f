//! Layers: folders of files as tars that come out the same every time.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::{At, ImageError};

/// What a layer puts at one path. Everything belongs to root and is as old as time.
#[derive(Clone, Debug)]
enum Content {
    Folder,
    Link(String),
    Bytes(Vec<u8>),
    /// A file of this machine, read when the layer is written.
    File(PathBuf),
}

#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// By path without the leading slash; sorted, so that a folder comes before what is in it.
    entries: BTreeMap<String, (u32, Content)>,
}

impl Layer {
    #[must_use]
    pub fn folder(self, path: &str, mode: u32) -> Self {
        self.with(path, mode, Content::Folder)
    }

    #[must_use]
    pub fn link(self, path: &str, target: &str) -> Self {
        self.with(path, 0o777, Content::Link(target.to_owned()))
    }

    #[must_use]
    pub fn text(self, path: &str, text: impl Into<Vec<u8>>) -> Self {
        self.with(path, 0o644, Content::Bytes(text.into()))
    }

    /// A copy of the file `source`; a link is followed.
    #[must_use]
    pub fn file(self, path: &str, mode: u32, source: impl Into<PathBuf>) -> Self {
        self.with(path, mode, Content::File(source.into()))
    }

    #[must_use]
    pub fn program(self, path: &str, source: impl Into<PathBuf>) -> Self {
        self.file(path, 0o755, source)
    }

    fn with(mut self, path: &str, mode: u32, content: Content) -> Self {
        let path = path.trim_matches('/');
        for (slash, _) in path.match_indices('/') {
            self.entries.entry(path[..slash].to_owned()).or_insert((0o755, Content::Folder));
        }
        self.entries.insert(path.to_owned(), (mode, content));
        self
    }

    /// Writes the layer as a tar.
    pub(super) fn write(&self, out: impl Write) -> Result<(), ImageError> {
        let mut tar = Builder::new(out);
        for (path, (mode, content)) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_mode(*mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(0);
            let written = match content {
                Content::Folder => {
                    header.set_entry_type(EntryType::Directory);
                    tar.append_data(&mut header, format!("{path}/"), io::empty())
                }
                Content::Link(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    tar.append_link(&mut header, path, target)
                }
                Content::Bytes(bytes) => {
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, path, bytes.as_slice())
                }
                Content::File(source) => {
                    let file = File::open(source).at(source)?;
                    header.set_size(file.metadata().at(source)?.len());
                    tar.append_data(&mut header, path, file)
                }
            };
            written.at(Path::new(path))?;
        }
        tar.finish().at(Path::new("layer"))
    }

    /// Adds to `key` what the layer is made of. Files count by name, size and time, as in make: reading them all
    /// would take longer than the rest of a start.
    pub(super) fn add_to_key(&self, key: &mut Sha256) -> Result<(), ImageError> {
        let mut add = |bytes: &[u8]| {
            key.update((bytes.len() as u64).to_le_bytes());
            key.update(bytes);
        };
        add(&(self.entries.len() as u64).to_le_bytes());
        for (path, (mode, content)) in &self.entries {
            add(path.as_bytes());
            add(&mode.to_le_bytes());
            match content {
                Content::Folder => add(b"folder"),
                Content::Link(target) => add(format!("link {target}").as_bytes()),
                Content::Bytes(bytes) => add(bytes),
                Content::File(source) => {
                    let found = fs::metadata(source).at(source)?;
                    let stamp = (found.len(), found.mtime(), found.mtime_nsec(), found.ino());
                    add(format!("file {} {stamp:?}", source.display()).as_bytes());
                }
            }
        }
        Ok(())
    }
}
