//! The commands of docs/lab.md, typed as they stand there.

#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use lab::kit::shared_name;

/// Somebody at a terminal, in the checkout, with `lab` on the path and a lab's name of their own.
struct Desk {
    root: PathBuf,
    name: String,
}

const LAB: &str = env!("CARGO_BIN_EXE_lab");

impl Desk {
    fn types(&self, line: &str) -> String {
        let programs = Path::new(LAB).parent().unwrap();
        let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
        let mut shell = Command::new("bash")
            .args(["-euc", line])
            .current_dir(&self.root)
            .env("PATH", path)
            .env("LAB_NAME", &self.name)
            .env("NAME", &self.name)
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // For the one line that opens a shell.
        shell.stdin.take().unwrap().write_all(b"kubectl get nodes\n").ok();
        let done = shell.wait_with_output().unwrap();
        let printed = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success(), "{line}: {printed}");
        println!("{line}: {} lines", printed.lines().count());
        printed
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // However the test ends; one that fails here too would hide why.
        drop(Command::new(LAB).args(["down", "--name", &self.name]).status());
    }
}

/// Lines of fenced blocks, without their comments.
fn blocks(page: &str) -> Vec<&str> {
    let fenced = page.split("```").skip(1).step_by(2).flat_map(str::lines);
    fenced
        .map(|line| line.split(" #").next().unwrap_or(line).trim())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Commands between words that a reader can type without filling in something, and that end by themselves.
fn between_words(page: &str) -> Vec<&str> {
    let prose: Vec<&str> = page.split("```").step_by(2).collect();
    let codes = prose.into_iter().flat_map(|text| text.split('`').skip(1).step_by(2));
    codes
        .filter(|code| code.starts_with("lab ") && !code.contains(" -f ") && !code.contains("IMAGE"))
        .collect()
}

#[test]
fn every_command_of_the_page_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let page = fs::read_to_string(root.join("docs/lab.md")).unwrap();
    let desk = Desk { root, name: format!("{}page", shared_name()) };
    let (mut seen, mut left) = (Vec::new(), Vec::new());
    for line in blocks(&page) {
        if line == "make lab-down" {
            left.push(line);
            continue;
        }
        let printed = desk.types(line);
        seen.push(line);
        // Each trouble is over before the next one comes.
        if let Some(["lab", "node", trouble, node]) = line.split(' ').collect::<Vec<_>>().first_chunk::<4>() {
            desk.types(&format!("lab node {} {node}", if *trouble == "cut" { "heal" } else { "start" }));
        }
        if line.ends_with("lab shell") {
            assert_eq!(printed.matches(" Ready ").count(), 3, "{printed}");
        }
    }
    for line in between_words(&page) {
        // A lab of another name, and what the other tests look at, is theirs.
        if !["lab up", "lab down"].iter().any(|other| line.starts_with(other)) {
            assert!(!desk.types(line).is_empty(), "{line} prints nothing");
            seen.push(line);
        }
    }
    assert!(seen.len() >= 10, "too little of the page was found: {seen:?}");
    for line in left {
        desk.types(line);
    }
    assert!(!desk.types("lab list").lines().any(|line| line.starts_with(&desk.name)));
}
