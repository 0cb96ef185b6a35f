//! What tests on a lab are written with: a lab to join, a namespace of one's own, waits with deadlines, a bundle on failure.

mod bundle;
mod namespace;
mod watch;

pub use namespace::TestNamespace;
pub use watch::{gone, wait_for};

use crate::{Lab, Options, Result};

/// The lab that all tests of a run share; `make test` brings it up and takes it down.
pub async fn shared_lab() -> Result<Lab> {
    Lab::up(&Options { quiet: true, ..Options::full(&shared_name()) }).await
}

/// `LAB_TEST_NAME`, or `test`: never the name of a lab that a person made for themselves.
pub fn shared_name() -> String {
    std::env::var("LAB_TEST_NAME").unwrap_or_else(|_| "test".into())
}
