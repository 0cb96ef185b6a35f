//! Snapshots with any bytes changed: never a panic, and never taken for whole. The same entry as the fuzzer's.

use super::damage::good;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use snapshot::fuzz;

#[test]
fn mutants_are_refused() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let good = runtime.block_on(good());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&(changes, any::<bool>(), any::<prop::sample::Index>()), |(changes, in_headers, cut)| {
            let mut bytes = good.clone();
            for (at, byte) in changes {
                // Most bytes are values: headers and elements are where a reader can go wrong.
                let at = if in_headers {
                    at.index(bytes.len() / 4096) * 4096 + at.index(96)
                } else {
                    at.index(bytes.len())
                };
                bytes[at] = byte;
            }
            if cut.index(10) == 0 {
                bytes.truncate(cut.index(bytes.len()));
            }
            fuzz::run(&runtime, &bytes);
            if bytes != good {
                prop_assert!(fuzz::is_refused(&runtime, &bytes));
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_lies_beside_a_backup_is_read_whatever_it_is() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let manifest = include_str!("../../../../fuzz/corpus/manifests/seed-manifest");
    let note = include_str!("../../../../fuzz/corpus/manifests/seed-note");
    assert!(fuzz::beside(&runtime, manifest.as_bytes()));
    assert!(!fuzz::beside(&runtime, note.as_bytes()));
    for cut in 0..manifest.len() {
        assert!(!fuzz::beside(&runtime, &manifest.as_bytes()[..cut]));
    }
}
