//! Every mutant still fits the rules, says what it breaks, and asks a question that there is. `hack/mutants.sh` runs them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use model::questions::{self, Bounds};

#[test]
fn every_mutant_applies() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names: Vec<_> = questions::all(Bounds::Standard).into_iter().map(|question| question.name).collect();
    let page = fs::read_to_string(here.join("../../docs/reliability.md")).unwrap();
    let mut count = 0;
    for entry in fs::read_dir(here.join("mutants")).unwrap() {
        let file = entry.unwrap().path();
        let patch = fs::read_to_string(&file).unwrap();
        let header = |key: &str| patch.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        assert!(!header("Breaks: ").is_empty() && !header("Whose: ").is_empty(), "{}", file.display());
        let question = header("Question: ");
        assert!(names.iter().any(|name| name == question), "{}: no question {question:?}", file.display());
        let row = format!("| {} | {} |", file.file_stem().unwrap().display(), header("Breaks: "));
        assert!(page.contains(&row), "docs/reliability.md has no row {row:?}");
        let tried = Command::new("patch")
            .args(["--dry-run", "--silent", "-p1", "-i"])
            .arg(&file)
            .arg("-d")
            .arg(here.join("../.."))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&tried.stdout);
        assert!(tried.status.success(), "{} does not apply: {said}", file.display());
        count += 1;
    }
    assert!(count >= 30, "only {count} mutants");
}

/// The page's own question, asked as it stands there, and cut short.
#[test]
fn the_pages_question_is_understood() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reliability.md");
    let page = fs::read_to_string(page).unwrap();
    let typed = page.lines().find_map(|line| line.strip_prefix("target/debug/prove ")).unwrap();
    let line = format!("{} {} --at-most 1000", env!("CARGO_BIN_EXE_prove"), typed.split('#').next().unwrap());
    let asked = Command::new("sh").args(["-c", &line]).output().unwrap();
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(said.contains("life of 3"), "{line}: {said}");
    assert!(asked.status.success(), "{line}: {said}");
}
