//! The committed CRDs are the ones that the types make.
#![allow(clippy::unwrap_used, clippy::expect_used)] // every line here is a test

use std::{fs, path::Path};

#[test]
fn committed_crds_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, crd) in api::crd::files() {
        let committed = fs::read_to_string(root.join(path)).unwrap_or_default();
        let made = serde_saphyr::to_string(&crd).unwrap();
        assert!(
            committed == made,
            "{path} is stale: run `cargo run -p api --example crds -- .` and commit it"
        );
    }
}
