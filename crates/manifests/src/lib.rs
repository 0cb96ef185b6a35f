//! Every file of this repository that is made, from one source each: CRDs from the types in `api`, rights from what the
//! operators ask for at start, the Deployment from one asset. `make generate` writes them, a test fails while one is stale.

pub mod chart;
pub mod install;
pub mod kustomize;
pub mod olm;
pub mod reference;

use std::path::{Path, PathBuf};

use nginx_operator::manifests::ManifestError;
use thiserror::Error;

/// The newest release, which is this workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file: its path in the repository, and its text.
pub type File = (String, String);

#[derive(Debug, Error)]
pub enum MadeError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is no YAML: {source}", path.display())]
    Yaml { path: PathBuf, source: Box<serde_saphyr::Error> },
    #[error("cannot write the CRD: {0}")]
    Definition(#[from] serde_json::Error),
    #[error("cannot write YAML: {0}")]
    Write(#[from] serde_saphyr::ser::Error),
    #[error("there is no {0} in any file under example/: write one, bundles show an example of every kind")]
    NoExample(String),
}

/// Every file that is made for the repository at `root`.
pub fn files(root: &Path) -> Result<Vec<File>, MadeError> {
    let mut files = Vec::new();
    for (path, crd) in api::crd::files() {
        files.push((path.to_owned(), serde_saphyr::to_string(&crd)?));
    }
    let nginx = nginx_operator::manifests::files()?;
    files.extend(nginx.map(|(path, text)| (path.to_owned(), text)));
    files.extend(install::files()?);
    files.extend(kustomize::files()?);
    files.extend(chart::files()?);
    files.extend(olm::files(root)?);
    files.extend(reference::files()?);
    Ok(files)
}
