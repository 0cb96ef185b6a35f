//! `etcd-operator snapshot inspect` and `verify`, as people and scripts run them: the real program on real snapshots.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use rstest::rstest;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NAMES: [&str; 2] = ["etcd-3.1.10.db", "etcd-3.6.16.db"];

fn good(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/inspect");
    folder.canonicalize().unwrap().join(name)
}

/// One bit of one page is another.
fn damaged(folder: &Path) -> PathBuf {
    let mut bytes = std::fs::read(good(NAMES[1])).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let file = folder.join("damaged.db");
    std::fs::write(&file, bytes).unwrap();
    file
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_etcd-operator")).arg("snapshot").args(args).output().unwrap()
}

#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Says why in one line, and nothing else that a script could take for an answer.
#[track_caller]
fn fails(args: &[&str], words: &str) {
    let output = run(args);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), b"".as_slice()), "{output:?}");
    assert!(said.starts_with("etcd-operator: ") && said.lines().count() == 1, "{said}");
    assert!(said.contains(words), "{said}");
}

#[rstest]
fn a_good_one(#[values("inspect", "verify")] command: &str, #[values(NAMES[0], NAMES[1])] name: &str) {
    let file = good(name);
    let (file, url) = (file.to_str().unwrap(), format!("file://{}", file.display()));
    let text = succeeds(&[command, file]);
    assert!(text.lines().next().unwrap().ends_with("is whole"), "{text}");
    for place in [file, &url] {
        let told: Value = serde_json::from_str(&succeeds(&[command, place, "--json"])).unwrap();
        assert!(told["revision"].as_i64().unwrap() > 0 && told["keys"].is_u64(), "{told}");
        assert!(text.contains(told["digest"].as_str().unwrap()), "{text}");
    }
}

#[rstest]
fn a_damaged_one(#[values("inspect", "verify")] command: &str, #[values(&[], &["--json"])] more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = damaged(folder.path());
    let (file, url) = (file.to_str().unwrap(), format!("file://{}", file.display()));
    for place in [file, &url] {
        fails(&[&[command, place][..], more].concat(), "damaged.db is damaged: ");
    }
}

#[test]
fn another_than_the_expected_one() {
    let file = good(NAMES[0]);
    let file = file.to_str().unwrap();
    let told: Value = serde_json::from_str(&succeeds(&["inspect", file, "--json"])).unwrap();
    let (sha256, digest) = (told["sha256"].as_str().unwrap(), told["digest"].as_str().unwrap());
    succeeds(&["verify", file, "--expect-sha256", sha256, "--expect-digest", digest]);
    fails(&["verify", file, "--expect-sha256", "00"], "expected 00");
    fails(&["verify", file, "--expect-digest", "00"], "expected 00");
}

#[test]
fn what_is_not_there_or_not_asked_for() {
    fails(&["inspect", "nowhere.db"], "nowhere.db");
    assert_eq!(run(&["inspect"]).status.code(), Some(2));
}
