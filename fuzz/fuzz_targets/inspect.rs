//! The reader of snapshots, on any bytes: it may refuse them, and nothing else.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().max_blocking_threads(2).build().expect("a runtime"));

fuzz_target!(|bytes: &[u8]| snapshot::fuzz::run(&RUNTIME, bytes));
