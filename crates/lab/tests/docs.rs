//! What the pages promise is there: links lead somewhere, files and make targets exist.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages() -> Vec<PathBuf> {
    let mut folders = vec![root().join("docs"), root().join("example")];
    let mut pages: Vec<PathBuf> = Vec::new();
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(top.filter(|path| path.extension().is_some_and(|end| end == "md")));
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 5, "{pages:?}");
    pages
}

/// What stands between `](` and `)`, without an anchor; addresses of other sites are not ours to check.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter_map(|target| target.split('#').next());
    files.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

/// Lines of fenced blocks, without their comments.
fn commands(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    blocks.flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or(line).trim())
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let from = page.parent().unwrap();
        let missing = links(&text).into_iter().filter(|target| !from.join(target).exists());
        dead.extend(missing.map(|target| format!("{}: {target}", page.display())));
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn every_make_target_and_file_in_a_command_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(':').map(|(name, _)| name))
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .collect();
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for command in commands(&text) {
            let words: Vec<&str> = command.split(|c: char| c.is_whitespace() || "$()".contains(c)).collect();
            if let Some(make) = words.iter().position(|word| *word == "make") {
                let target =
                    words[make + 1..].iter().find(|word| !word.starts_with('-') && !word.contains('='));
                if let Some(target) = target.filter(|target| !targets.contains(**target)) {
                    wrong.push(format!("{}: make {target}", page.display()));
                }
            }
            let files = words.windows(2).filter(|pair| pair[0] == "-f").map(|pair| pair[1]);
            let ours = files.filter(|file| file.starts_with("example/") || file.starts_with("deploy/"));
            let missing = ours.filter(|file| !root().join(file).exists());
            wrong.extend(missing.map(|file| format!("{}: {file}", page.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
