//! Bundles and catalogs of both operators for the Operator Lifecycle Manager.
//!
//! Nothing here is written twice: CRDs come from the types in `api`, rights and Deployments from the manifests that
//! users apply by hand, examples from `example/`. A new release is one more entry in [`etcd`] or [`nginx`] that names
//! the one it replaces.

pub mod etcd;
pub mod nginx;
pub mod olm;

use std::path::{Path, PathBuf};

use nginx_operator::manifests::ManifestError;
use olm::{File, Package, Release};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum BundleError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is no YAML: {source}", path.display())]
    Yaml { path: PathBuf, source: Box<serde_saphyr::Error> },
    #[error("cannot write the CRD: {0}")]
    Definition(#[from] serde_json::Error),
    #[error("there is no {0} in any file under example/: write one, bundles show an example of every kind")]
    NoExample(String),
}

/// Every file of the bundles and catalogs of the repository at `root`, with the path of each.
pub fn files(root: &Path) -> Result<Vec<File>, BundleError> {
    let mut files = package(&etcd::package(), &etcd::releases(root)?)?;
    files.extend(package(&nginx::package(), &nginx::releases()?)?);
    Ok(files)
}

fn package(package: &Package, releases: &[Release]) -> Result<Vec<File>, ManifestError> {
    let mut files = Vec::new();
    for release in releases {
        files.extend(olm::bundle(package, release, &format!("bundle/{}", package.name))?);
    }
    let catalog = format!("bundle/catalog/{}/catalog.yaml", package.name);
    files.push((catalog, olm::catalog(package, releases)?));
    Ok(files)
}
