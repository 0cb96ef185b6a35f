//! An image as it is meant to be, before it is written.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Descriptor, ImageError, Layer, Reference, Registry};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(super) const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The same input gives the same bytes, and with it the same digest: no times, owners or compression in it.
#[derive(Clone, Debug)]
pub struct Image {
    /// All its names; the first one is the one it is known by.
    pub names: Vec<Reference>,
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    pub environment: Vec<String>,
    pub user: String,
    pub folder: String,
    pub stop_signal: Option<String>,
    /// Lowest first.
    pub layers: Vec<Layer>,
}

impl Image {
    pub fn new(names: Vec<Reference>, layers: Vec<Layer>) -> Self {
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        Self {
            names,
            entrypoint: Vec::new(),
            command: Vec::new(),
            environment: vec![path.to_owned()],
            user: String::new(),
            folder: String::new(),
            stop_signal: None,
            layers,
        }
    }

    #[must_use]
    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.entrypoint = words.iter().map(ToString::to_string).collect();
        self
    }

    #[must_use]
    pub fn command(mut self, words: &[&str]) -> Self {
        self.command = words.iter().map(ToString::to_string).collect();
        self
    }

    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// What the image is made of, in one hash.
    pub(super) fn key(&self) -> Result<String, ImageError> {
        let mut key = Sha256::new();
        key.update(self.config(&[]).to_string());
        for layer in &self.layers {
            layer.add_to_key(&mut key)?;
        }
        Ok(hex::encode(key.finalize()))
    }

    /// Writes the image's blobs and gives its manifest's digest.
    pub(super) fn store(&self, registry: &Registry) -> Result<String, ImageError> {
        let layers = self
            .layers
            .iter()
            .map(|layer| registry.put(LAYER, |out| layer.write(out)))
            .collect::<Result<Vec<_>, _>>()?;
        let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
        let config = self.config(&diff_ids).to_string();
        store_manifest(registry, config.as_bytes(), &layers)
    }

    fn config(&self, diff_ids: &[&str]) -> Value {
        let mut config = json!({ "Env": self.environment });
        let mut set = |name: &str, value: Value| config[name] = value;
        if !self.entrypoint.is_empty() {
            set("Entrypoint", json!(self.entrypoint));
        }
        if !self.command.is_empty() {
            set("Cmd", json!(self.command));
        }
        if !self.user.is_empty() {
            set("User", json!(self.user));
        }
        if !self.folder.is_empty() {
            set("WorkingDir", json!(self.folder));
        }
        if let Some(signal) = &self.stop_signal {
            set("StopSignal", json!(signal));
        }
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        })
    }
}

/// Stores a configuration and the manifest that ties it to stored layers.
pub(super) fn store_manifest(
    registry: &Registry,
    config: &[u8],
    layers: &[Descriptor],
) -> Result<String, ImageError> {
    let config = registry.put_bytes(CONFIG, config)?;
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    Ok(registry.put_bytes(MANIFEST, manifest.to_string().as_bytes())?.digest)
}

/// The layer's media type, by its first bytes.
pub(super) fn layer_type(start: &[u8]) -> &'static str {
    if start.starts_with(&[0x1f, 0x8b]) { LAYER_GZIP } else { LAYER }
}

/// Go's name for this machine's processor, which images use.
pub(super) const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}
