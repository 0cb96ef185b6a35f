//! What a release says of itself.

#![allow(clippy::unwrap_used, reason = "every line here is a test")]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use lab::images;
use serde_json::Value;

/// Every crate that is linked into the program, with version, licence and, where it comes from a registry, its hash.
#[test]
fn the_list_of_parts_is_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = Command::new(root.join("hack/sbom.sh")).arg("etcd-operator").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let list: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(list["metadata"]["component"]["version"], manifests::VERSION);
    let parts = list["components"].as_array().unwrap();
    for name in ["domain", "kube", "rustls", "tokio", "tonic"] {
        assert!(parts.iter().any(|part| part["name"] == name), "{name} is missing");
    }
    for part in parts {
        let ours = part["version"] == manifests::VERSION && part["licenses"][0]["expression"] == "Apache-2.0";
        let hashed = part["hashes"][0]["content"].as_str().is_some_and(|hash| hash.len() == 64);
        assert!(part["licenses"][0]["expression"].is_string() && (ours || hashed), "{part}");
    }
}

/// What is written by hand names the version that there is.
#[test]
fn pages_name_this_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let changes = fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
    let newest = changes.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(newest.split(' ').next(), Some(manifests::VERSION), "CHANGELOG.md");
    let install = fs::read_to_string(root.join("docs/install.md")).unwrap();
    let named: Vec<&str> =
        install.split("coreos/etcd-operator:v").skip(1).filter_map(|rest| rest.split('`').next()).collect();
    assert_eq!(named, [manifests::VERSION], "docs/install.md");
}

/// The same program gives the same file, byte by byte.
#[test]
fn images_are_deterministic() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = images::of_binary(&env::current_exe().unwrap()).unwrap();
    image.names = vec!["registry.example/program:v1".parse().unwrap()];
    let [one, two] = ["one", "two"].map(|name| {
        let path = folder.path().join(name);
        images::export(&image, &path).unwrap();
        fs::read(path).unwrap()
    });
    assert!(one == two, "{} and {} bytes", one.len(), two.len());
}
