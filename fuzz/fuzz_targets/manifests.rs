//! What lies beside a backup in somebody's store: its manifest, and notes of uploads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().max_blocking_threads(2).build().expect("a runtime"));

fuzz_target!(|bytes: &[u8]| {
    snapshot::fuzz::beside(&RUNTIME, bytes);
});
