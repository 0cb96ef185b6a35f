//! The releases of the etcd operator.

use std::path::{Path, PathBuf};
use std::{fs, io};

use runtime::client::MINIMUM_VERSION;
use serde_json::Value;

use super::{Package, Release, text};
use crate::install::{self, NAME, REPOSITORY, Scope, definitions};
use crate::{MadeError, VERSION};

/// A blue circle with three members in it.
const ICON: &str = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCA2NCA2NCI+PGNpcmNsZSBjeD0iMzIiIGN5PSIzMiIgcj0iMzAiIGZpbGw9IiMyZjZmYTgiLz48ZyBmaWxsPSIjZmZmIiBzdHJva2U9IiNmZmYiIHN0cm9rZS13aWR0aD0iMyI+PHBhdGggZD0iTTMyIDE4TDE5IDQyaDI2eiIgZmlsbD0ibm9uZSIvPjxjaXJjbGUgY3g9IjMyIiBjeT0iMTgiIHI9IjYiLz48Y2lyY2xlIGN4PSIxOSIgY3k9IjQyIiByPSI2Ii8+PGNpcmNsZSBjeD0iNDUiIGN5PSI0MiIgcj0iNiIvPjwvZz48L3N2Zz4=";

const DESCRIPTION: &str = "\
An SRE for etcd in software. Declare a cluster as an `EtcdCluster`, by its size and version: the operator makes it, scales
it, replaces members that are lost and upgrades it member by member, while clients keep reading and writing. An `EtcdBackup`
saves it, once or by a schedule, to S3, GCS, Azure or a volume, and reads back what was saved; an `EtcdRestore` makes a cluster from
that, or brings one back that lost its quorum.";

/// What the examples leave to their users, filled in as the tutorial does.
pub const FILLED_IN: [(&str, &str); 3] = [
    ("<full-s3-path>", "mybucket/etcd.backup"),
    ("<aws-secret>", "aws"),
    ("<etcd-cluster-endpoints>", "\"http://example-etcd-cluster-client:2379\""),
];

/// The first release, as the book installs it.
const BOOK: [&str; 4] = [
    "example/ch03/etcd-operator-sa.yaml",
    "example/ch03/etcd-operator-role.yaml",
    "example/ch03/etcd-operator-rolebinding.yaml",
    "example/ch03/etcd-operator-deployment.yaml",
];

pub fn package() -> Package {
    Package {
        name: NAME,
        title: "etcd operator",
        summary: "Creates, scales, heals, upgrades, backs up and restores etcd clusters",
        description: DESCRIPTION,
        categories: "Database",
        keywords: &["etcd", "key value", "database", "backup", "coreos"],
        icon: ICON,
        namespace: NAME,
        minimum_kubernetes: format!("{MINIMUM_VERSION}.0"),
    }
}

/// The first one knew clusters alone; the second knows every kind that there is.
pub fn releases(root: &Path) -> Result<Vec<Release>, MadeError> {
    let all = definitions()?;
    let clusters: Vec<Value> =
        all.iter().filter(|crd| text(crd, "/spec/names/kind") == "EtcdCluster").cloned().collect();
    let mut book = Vec::new();
    for path in BOOK {
        book.extend(documents(&root.join(path))?);
    }
    let image = |version| format!("{REPOSITORY}:v{version}");
    Ok(vec![
        Release {
            version: "0.9.4",
            replaces: None,
            capabilities: "Seamless Upgrades",
            image: image("0.9.4"),
            objects: book,
            examples: examples(root, &clusters)?,
            crds: clusters,
        },
        Release {
            version: VERSION,
            replaces: Some("0.9.4"),
            capabilities: "Full Lifecycle",
            image: image(VERSION),
            objects: install::operator(Scope::Namespaced(NAME))?,
            examples: examples(root, &all)?,
            crds: all,
        },
    ])
}

/// One for each kind, from the files that users try: what an API server takes as it is.
fn examples(root: &Path, crds: &[Value]) -> Result<Vec<Value>, MadeError> {
    let mut objects = Vec::new();
    for path in yaml_files(&root.join("example"))? {
        objects.extend(documents(&path)?);
    }
    let of_kind = |crd: &Value| {
        let (group, kind) = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
        let fits = |object: &&Value| object["kind"] == kind && text(object, "/apiVersion").starts_with(group);
        objects.iter().find(fits).cloned().ok_or_else(|| MadeError::NoExample(kind.to_owned()))
    };
    crds.iter().map(of_kind).collect()
}

fn documents(path: &Path) -> Result<Vec<Value>, MadeError> {
    let text = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    let text = FILLED_IN.iter().fold(text, |text, (gap, word)| text.replace(gap, word));
    serde_saphyr::from_multiple(&text)
        .map_err(|source| MadeError::Yaml { path: path.to_owned(), source: Box::new(source) })
}

/// In the order of their names, so that the same files give the same bundle everywhere.
fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>, MadeError> {
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

fn unreadable(path: &Path, source: io::Error) -> MadeError {
    MadeError::Read { path: path.to_owned(), source }
}
