//! The bundles are what the Operator Lifecycle Manager takes, in the words of its own checker.

use std::path::Path;
use std::process::Command;

use lab::programs::{Program, Programs, default_cache};

#[test]
fn every_bundle_is_valid() {
    let verify = Programs::new(&default_cache().unwrap()).path(Program::OperatorVerify).unwrap();
    let bundles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundle/nginx-operator");
    let mut checked = 0;
    for bundle in std::fs::read_dir(bundles).unwrap() {
        let mut command = Command::new(&verify);
        command
            .args(["manifests", "--operatorhub_validate", "--object_validate"])
            .arg(bundle.unwrap().path());
        let done = command.output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        // It reports errors and exits with success.
        assert!(done.status.success() && !said.contains("level=error"), "{said}");
        checked += 1;
    }
    assert_eq!(checked, 2);
}
