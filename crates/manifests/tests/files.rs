//! The committed files are the ones that are made, and every install path installs the same.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::programs::{Program, Programs, default_cache};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What the program printed, or what it complained of.
fn run(program: Program, arguments: &[&str]) -> Result<String, String> {
    let program = Programs::new(&default_cache().unwrap()).path(program).unwrap();
    let done = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stdout) + &said(&done.stderr)) }
}

/// Objects, in an order of their own. What Helm alone says of a CRD is left out.
fn objects(text: &str) -> Vec<String> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    objects.retain(|object| !object.is_null());
    for object in &mut objects {
        if object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    let mut objects: Vec<String> = objects
        .iter()
        .map(|object| format!("{} {} {object}", object["kind"], object["metadata"]["name"]))
        .collect();
    objects.sort();
    objects
}

fn installed(file: &str) -> Vec<String> {
    objects(&fs::read_to_string(root().join(file)).unwrap())
}

#[track_caller]
fn same(made: Vec<String>, expected: Vec<String>) {
    for (made, expected) in made.iter().zip(&expected) {
        assert_eq!(made, expected);
    }
    assert_eq!(made.len(), expected.len());
}

#[test]
fn nothing_is_stale() {
    for (path, made) in manifests::files(&root()).unwrap() {
        let committed = fs::read_to_string(root().join(&path)).unwrap_or_default();
        assert!(committed == made, "{path} is stale: run `make generate`");
    }
}

/// In folders where everything is made, nothing is left of what was made once.
#[test]
fn nothing_is_left_over() {
    let made: BTreeSet<PathBuf> =
        manifests::files(&root()).unwrap().into_iter().map(|(path, _)| root().join(path)).collect();
    let mut folders: Vec<PathBuf> =
        ["bundle", "charts/etcd-operator/files", "deploy/crds", "deploy/kustomize", "docs/reference"]
            .map(|folder| root().join(folder))
            .into();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                assert!(made.contains(&path), "{} is made by nothing: delete it", path.display());
            }
        }
    }
}

#[test]
fn kustomize_makes_the_same() {
    let overlay = |name: &str| {
        objects(&run(Program::Kubectl, &["kustomize", &format!("deploy/kustomize/overlays/{name}")]).unwrap())
    };
    same(overlay("namespaced"), installed("deploy/etcd-operator.yaml"));
    same(overlay("cluster-wide"), installed("deploy/etcd-operator-cluster-wide.yaml"));
}

#[test]
fn the_chart_makes_the_same() {
    let render = |more: &[&str]| {
        let mut arguments = vec!["template", "etcd-operator", "charts/etcd-operator"];
        arguments.extend(more);
        run(Program::Helm, &arguments)
    };
    let namespaced = render(&["--namespace=default"]).unwrap();
    assert_eq!(namespaced.matches("helm.sh/resource-policy: keep").count(), 3);
    same(objects(&namespaced), installed("deploy/etcd-operator.yaml"));
    let wide = render(&["--namespace=etcd-operator", "--set=clusterWide=true"]).unwrap();
    // Helm makes the namespace itself, if asked to.
    let mut expected = installed("deploy/etcd-operator-cluster-wide.yaml");
    expected.retain(|object| !object.starts_with("\"Namespace\""));
    same(objects(&wide), expected);

    let mortal = render(&["--set=crds.keep=false"]).unwrap();
    assert!(mortal.contains("kind: CustomResourceDefinition") && !mortal.contains("resource-policy"));
    assert!(!render(&["--set=crds.install=false"]).unwrap().contains("kind: CustomResourceDefinition"));
    let backups = render(&["--set=controllers={backup}", "--set=backupClaims={etcd.backups}"]).unwrap();
    assert!(!backups.contains("poddisruptionbudgets\n"), "{backups}");
    assert!(backups.contains("mountPath: /var/lib/etcd-backups/etcd.backups"), "{backups}");
}

#[test]
fn the_chart_is_sound_and_refuses_what_it_does_not_know() {
    run(Program::Helm, &["lint", "--strict", "charts/etcd-operator"]).unwrap();
    for (wrong, named) in
        [("clusterWide=maybe", "clusterWide"), ("controllers={pods}", "controllers"), ("sizes=3", "sizes")]
    {
        let said = run(Program::Helm, &["template", "charts/etcd-operator", "--set", wrong]).unwrap_err();
        assert!(said.contains(named), "{wrong}: {said}");
    }
}
