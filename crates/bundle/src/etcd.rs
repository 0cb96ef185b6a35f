//! The releases of the etcd operator.

use std::path::{Path, PathBuf};
use std::{fs, io};

use runtime::client::MINIMUM_VERSION;
use serde_json::{Value, json};

use crate::BundleError;
use crate::olm::{Package, Release, text};

const NAME: &str = "etcd-operator";
const IMAGE: &str = "quay.io/coreos/etcd-operator";

/// A blue circle with three members in it.
const ICON: &str = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCA2NCA2NCI+PGNpcmNsZSBjeD0iMzIiIGN5PSIzMiIgcj0iMzAiIGZpbGw9IiMyZjZmYTgiLz48ZyBmaWxsPSIjZmZmIiBzdHJva2U9IiNmZmYiIHN0cm9rZS13aWR0aD0iMyI+PHBhdGggZD0iTTMyIDE4TDE5IDQyaDI2eiIgZmlsbD0ibm9uZSIvPjxjaXJjbGUgY3g9IjMyIiBjeT0iMTgiIHI9IjYiLz48Y2lyY2xlIGN4PSIxOSIgY3k9IjQyIiByPSI2Ii8+PGNpcmNsZSBjeD0iNDUiIGN5PSI0MiIgcj0iNiIvPjwvZz48L3N2Zz4=";

const DESCRIPTION: &str = "\
An SRE for etcd in software. Declare a cluster as an `EtcdCluster`, by its size and version: the operator makes it, scales
it, replaces members that are lost and upgrades it member by member, while clients keep reading and writing.";

/// As users apply them by hand.
const MANIFESTS: [&str; 4] = [
    "example/ch03/etcd-operator-sa.yaml",
    "example/ch03/etcd-operator-role.yaml",
    "example/ch03/etcd-operator-rolebinding.yaml",
    "example/ch03/etcd-operator-deployment.yaml",
];

pub fn package() -> Package {
    Package {
        name: NAME,
        title: "etcd operator",
        summary: "Creates, scales, heals and upgrades etcd clusters",
        description: DESCRIPTION,
        categories: "Database",
        keywords: &["etcd", "key value", "database", "coreos"],
        icon: ICON,
        namespace: NAME,
        minimum_kubernetes: format!("{MINIMUM_VERSION}.0"),
    }
}

/// The first one knew clusters alone; the second knows every kind that there is.
pub fn releases(root: &Path) -> Result<Vec<Release>, BundleError> {
    let all = definitions()?;
    let clusters = all.iter().filter(|crd| text(crd, "/spec/names/kind") == "EtcdCluster").cloned().collect();
    Ok(vec![release(root, "0.9.4", None, clusters)?, release(root, "0.10.0", Some("0.9.4"), all)?])
}

fn release(
    root: &Path,
    version: &'static str,
    replaces: Option<&'static str>,
    crds: Vec<Value>,
) -> Result<Release, BundleError> {
    let mut objects = Vec::new();
    for path in MANIFESTS {
        objects.extend(documents(&root.join(path))?);
    }
    for deployment in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        if let Some(command) = container["command"].as_array_mut() {
            command.push(json!(format!("--controllers={}", controllers(&crds))));
        }
    }
    let examples = examples(root, &crds)?;
    let backups = crds.iter().any(|crd| text(crd, "/spec/names/kind") == "EtcdBackup");
    let capabilities = if backups { "Full Lifecycle" } else { "Seamless Upgrades" };
    let image = format!("{IMAGE}:v{version}");
    Ok(Release { version, replaces, capabilities, image, objects, crds, examples })
}

/// What is installed as a CRD, made from the types.
fn definitions() -> Result<Vec<Value>, serde_json::Error> {
    let files = api::crd::files().into_iter().filter(|(path, _)| path.starts_with("deploy/crds/"));
    files.map(|(_, crd)| serde_json::to_value(crd)).collect()
}

/// `EtcdCluster` is looked after by the controller `cluster`, and so on.
fn controllers(crds: &[Value]) -> String {
    let kinds = crds.iter().map(|crd| text(crd, "/spec/names/kind"));
    kinds.map(|kind| kind.trim_start_matches("Etcd").to_lowercase()).collect::<Vec<_>>().join(",")
}

/// One for each kind, from the files that users try.
fn examples(root: &Path, crds: &[Value]) -> Result<Vec<Value>, BundleError> {
    let mut objects = Vec::new();
    for path in yaml_files(&root.join("example"))? {
        objects.extend(documents(&path)?);
    }
    let of_kind = |crd: &Value| {
        let (group, kind) = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
        let fits = |object: &&Value| object["kind"] == kind && text(object, "/apiVersion").starts_with(group);
        objects.iter().find(fits).cloned().ok_or_else(|| BundleError::NoExample(kind.to_owned()))
    };
    crds.iter().map(of_kind).collect()
}

fn documents(path: &Path) -> Result<Vec<Value>, BundleError> {
    let text = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    serde_saphyr::from_multiple(&text)
        .map_err(|source| BundleError::Yaml { path: path.to_owned(), source: Box::new(source) })
}

/// In the order of their names, so that the same files give the same bundle everywhere.
fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>, BundleError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries: Vec<PathBuf> =
        entries.map_err(|source| unreadable(folder, source))?.iter().map(fs::DirEntry::path).collect();
    entries.sort();
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            files.extend(yaml_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(files)
}

fn unreadable(path: &Path, source: io::Error) -> BundleError {
    BundleError::Read { path: path.to_owned(), source }
}
