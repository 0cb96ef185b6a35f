//! The bundles are what the Operator Lifecycle Manager takes, in the words
//! of its own checker.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::programs::{Program, Programs, default_cache};
use manifests::olm::{self, Release, etcd, nginx};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

#[test]
fn every_bundle_is_valid() {
    let verify = Programs::new(&default_cache().unwrap()).path(Program::OperatorVerify).unwrap();
    for (package, releases) in
        [(etcd::package(), etcd::releases(&root()).unwrap()), (nginx::package(), nginx::releases().unwrap())]
    {
        let bundles = folders(&root().join("bundle").join(package.name));
        assert_eq!(bundles.len(), releases.len(), "{bundles:?}");
        for bundle in bundles {
            let mut command = Command::new(&verify);
            command.args(["manifests", "--operatorhub_validate", "--object_validate"]).arg(&bundle);
            let done = command.output().unwrap();
            let said =
                format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            // It reports errors and exits with success. Its warnings are about itself, and about the word
            // poddisruptionbudgets, whatever the version.
            let faultless = done.status.success() && !said.contains("level=error");
            assert!(faultless, "{}: {said}", bundle.display());
        }
    }
}

/// For every kind there is one, each in a version that is served, with fields that there are and nothing left to fill in.
#[test]
fn every_example_can_be_applied() {
    for Release { version, crds, examples, .. } in
        etcd::releases(&root()).unwrap().iter().chain(&nginx::releases().unwrap())
    {
        let of_kind = |crd: &Value, example: &Value| example["kind"] == crd["spec"]["names"]["kind"];
        assert!(crds.iter().all(|crd| examples.iter().any(|one| of_kind(crd, one))), "{version}");
        for example in examples {
            assert!(!example.to_string().contains('<'), "{example}");
            let crd = crds.iter().find(|crd| of_kind(crd, example)).unwrap();
            let versions = crd["spec"]["versions"].as_array().unwrap();
            let asked = example["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
            let served = versions.iter().find(|one| one["name"] == asked && one["served"] == true).unwrap();
            let spec = &served["schema"]["openAPIV3Schema"]["properties"]["spec"];
            let said = example["spec"].as_object().unwrap();
            assert!(said.keys().all(|field| spec["properties"].get(field).is_some()), "{example}");
            let required = spec["required"].as_array().into_iter().flatten();
            assert!(
                required.into_iter().all(|field| said.contains_key(field.as_str().unwrap())),
                "{example}"
            );
        }
    }
}

/// From every release there is a way to the newest, and each says what it owns.
#[test]
fn the_catalog_is_one_path_of_upgrades() {
    for (package, releases) in
        [(etcd::package(), etcd::releases(&root()).unwrap()), (nginx::package(), nginx::releases().unwrap())]
    {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&olm::catalog(&package, &releases).unwrap()).unwrap();
        let of = |schema: &'static str| documents.iter().filter(move |one| one["schema"] == schema);
        let entries = of("olm.channel").next().unwrap()["entries"].as_array().unwrap();
        let mut at = entries.last().unwrap();
        let mut steps = 1;
        while let Some(before) = at.get("replaces") {
            at = entries.iter().find(|entry| entry["name"] == *before).unwrap();
            steps += 1;
        }
        assert_eq!(steps, releases.len(), "{entries:?}");
        for (entry, bundle) in entries.iter().zip(of("olm.bundle")) {
            assert_eq!(entry["name"], bundle["name"]);
            let properties = bundle["properties"].as_array().unwrap();
            assert!(properties.iter().any(|property| property["type"] == "olm.gvk"), "{bundle}");
        }
    }
}
