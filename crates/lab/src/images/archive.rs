//! Images as single files: written in the OCI layout, read in that and in `docker save`'s.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Component, Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::json;
use tar::{Archive, Builder, EntryType, Header};

use super::{
    At, Descriptor, ImageError, Reference, Registry,
    image::{architecture, layer_type, store_manifest},
};

const NAME: &str = "io.containerd.image.name";
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Writes a stored image as an OCI layout, which `ctr images import` takes.
pub(super) fn write(
    registry: &Registry,
    digest: &str,
    names: &[Reference],
    to: &Path,
) -> Result<(), ImageError> {
    let manifest = registry.read_blob(digest)?;
    let index = json!({
        "schemaVersion": 2,
        "manifests": names.iter().map(|name| json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest,
            "size": manifest.len(),
            "annotations": { NAME: name.to_string(), REF_NAME: name.tag() },
        })).collect::<Vec<_>>(),
    });
    let mut tar = Builder::new(BufWriter::new(File::create(to).at(to)?));
    let mut add = |path: &str, size: u64, content: &mut dyn Read| {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(size);
        tar.append_data(&mut header, path, content).at(to)
    };
    let mut add_bytes = |path: &str, bytes: &[u8]| add(path, bytes.len() as u64, &mut &*bytes);
    add_bytes("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add_bytes("index.json", index.to_string().as_bytes())?;
    add_bytes(&blob_path(digest), &manifest)?;
    for blob in registry.manifest(digest)?.blobs() {
        let path = registry.blob(&blob.digest)?;
        add(&blob_path(&blob.digest), blob.size, &mut File::open(&path).at(&path)?)?;
    }
    tar.into_inner().and_then(|mut out| out.flush()).at(to)
}

/// Takes every image of an archive into the registry, and gives their names.
pub(super) fn read(registry: &Registry, from: &Path) -> Result<Vec<Reference>, ImageError> {
    let files = Files::open(from)?;
    let images = if files.has("manifest.json") {
        read_docker(registry, &files)?
    } else if files.has("index.json") {
        read_oci(registry, &files)?
    } else {
        return Err(files.bad("it has neither manifest.json nor index.json"));
    };
    let mut names = Vec::new();
    for (name, digest) in images {
        registry.tag(&name, &digest)?;
        names.push(name);
    }
    if names.is_empty() { Err(files.bad("no image in it has a name")) } else { Ok(names) }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

fn read_docker(registry: &Registry, files: &Files) -> Result<Vec<(Reference, String)>, ImageError> {
    let images: Vec<DockerImage> = files.json("manifest.json")?;
    let mut found = Vec::new();
    for image in images {
        let mut layers = Vec::new();
        for path in &image.layers {
            let mut start = Vec::new();
            files.reader(path)?.take(2).read_to_end(&mut start).at(&files.path)?;
            layers.push(registry.put_reader(layer_type(&start), files.reader(path)?)?);
        }
        let digest = store_manifest(registry, &files.bytes(&image.config)?, &layers)?;
        for name in image.repo_tags.unwrap_or_default() {
            found.push((name.parse()?, digest.clone()));
        }
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<IndexEntry>,
}

#[derive(Deserialize)]
struct IndexEntry {
    #[serde(flatten)]
    descriptor: Descriptor,
    #[serde(default)]
    annotations: HashMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl IndexEntry {
    /// A full name where the writer gave one; a bare tag names nothing.
    fn name(&self) -> Option<Reference> {
        let named = self
            .annotations
            .get(NAME)
            .or_else(|| self.annotations.get(REF_NAME).filter(|name| name.contains(['/', ':'])))?;
        named.parse().ok()
    }

    fn runs_here(&self) -> bool {
        self.platform
            .as_ref()
            .is_none_or(|platform| platform.os == "linux" && platform.architecture == architecture())
    }
}

fn read_oci(registry: &Registry, files: &Files) -> Result<Vec<(Reference, String)>, ImageError> {
    let index: Index = files.json("index.json")?;
    let mut found = Vec::new();
    for entry in index.manifests {
        let Some(name) = entry.name() else { continue };
        let mut manifest = entry.descriptor;
        while manifest.media_type.ends_with("index.v1+json")
            || manifest.media_type.ends_with("manifest.list.v2+json")
        {
            let inner: Index = files.json(&blob_path(&manifest.digest))?;
            let here = inner.manifests.into_iter().find(IndexEntry::runs_here);
            manifest =
                here.ok_or_else(|| files.bad(&format!("{name} has no image for this machine")))?.descriptor;
        }
        let bytes = files.bytes(&blob_path(&manifest.digest))?;
        let parts: super::registry::Manifest = serde_json::from_slice(&bytes)
            .map_err(|source| ImageError::Json { what: manifest.digest.clone(), source })?;
        for blob in parts.blobs() {
            let stored = registry.put_reader(&blob.media_type, files.reader(&blob_path(&blob.digest))?)?;
            if stored.digest != blob.digest {
                return Err(
                    files.bad(&format!("{} is damaged: it has the digest {}", blob.digest, stored.digest))
                );
            }
        }
        found.push((name, registry.put_bytes(&manifest.media_type, &bytes)?.digest));
    }
    Ok(found)
}

fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

/// The files of a tar, to be read in any order.
struct Files {
    path: PathBuf,
    tar: File,
    places: HashMap<PathBuf, Place>,
}

enum Place {
    Bytes {
        start: u64,
        size: u64,
    },
    /// Old Dockers store a layer that is there twice as a link.
    Link(PathBuf),
}

impl Files {
    fn open(path: &Path) -> Result<Self, ImageError> {
        let mut tar = File::open(path).at(path)?;
        let mut start = [0; 2];
        tar.read_exact(&mut start).at(path)?;
        tar.rewind().at(path)?;
        if start == [0x1f, 0x8b] {
            let mut plain = tempfile::tempfile().at(path)?;
            io::copy(&mut MultiGzDecoder::new(BufReader::new(tar)), &mut plain).at(path)?;
            plain.rewind().at(path)?;
            tar = plain;
        }
        let mut places = HashMap::new();
        for entry in Archive::new(&tar).entries_with_seek().at(path)? {
            let entry = entry.at(path)?;
            let name = clean(&entry.path().at(path)?);
            let place = match entry.header().entry_type() {
                EntryType::Symlink | EntryType::Link => {
                    let target = entry.link_name().at(path)?.unwrap_or_default().into_owned();
                    let hard = entry.header().entry_type() == EntryType::Link;
                    let base = if hard { None } else { name.parent() };
                    Place::Link(clean(&base.unwrap_or(Path::new("")).join(target)))
                }
                _ => Place::Bytes { start: entry.raw_file_position(), size: entry.size() },
            };
            places.insert(name, place);
        }
        Ok(Self { path: path.to_owned(), tar, places })
    }

    fn has(&self, name: &str) -> bool {
        self.places.contains_key(Path::new(name))
    }

    fn reader(&self, name: &str) -> Result<impl Read, ImageError> {
        let mut place = self.places.get(&clean(Path::new(name)));
        if let Some(Place::Link(target)) = place {
            place = self.places.get(target);
        }
        let Some(Place::Bytes { start, size }) = place else {
            return Err(self.bad(&format!("{name} is missing")));
        };
        (&self.tar).seek(SeekFrom::Start(*start)).at(&self.path)?;
        Ok(BufReader::new(&self.tar).take(*size))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        self.reader(name)?.read_to_end(&mut bytes).at(&self.path)?;
        Ok(bytes)
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, ImageError> {
        serde_json::from_slice(&self.bytes(name)?)
            .map_err(|source| ImageError::Json { what: name.to_owned(), source })
    }

    fn bad(&self, why: &str) -> ImageError {
        ImageError::Archive { path: self.path.clone(), why: why.to_owned() }
    }
}

/// The path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}
