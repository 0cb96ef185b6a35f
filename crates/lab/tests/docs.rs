//! What the pages promise is there: links lead somewhere, files and make targets exist, and somebody types the commands.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pages whose commands a test types as they stand, and which.
const TYPED: [(&str, &str); 5] = [
    ("docs/tutorial.md", "hack/demo.sh"),
    ("docs/lab.md", "crates/lab/tests/page.rs"),
    ("docs/install.md", "crates/etcd-operator/tests/e2e/install/desk.rs"),
    ("docs/runbooks", "crates/etcd-operator/tests/e2e/install/desk.rs"),
    // As far as it does not compile a second operator.
    ("docs/build-your-own.md", "crates/lab/tests/docs.rs"),
];

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

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// A page's text, for what its commands call: an operator of your own has what the one has that it is a copy of.
fn original(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    text.replace("example/my/", "example/nginx/").replace("my-operator", "nginx-operator")
}

/// Commands of fenced blocks, without their comments. A block of something else says of what, such as `yaml` or `text`.
fn commands(text: &str) -> Vec<String> {
    let (mut commands, mut inside): (Vec<String>, Option<bool>) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            inside = if inside.is_some() { None } else { Some(["", "sh"].contains(&language)) };
        } else if inside == Some(true) && !line.is_empty() {
            let line = line.split(" #").next().unwrap_or(line).trim();
            match commands.last_mut().filter(|last| last.ends_with('\\')) {
                Some(begun) => *begun = format!("{} {line}", begun.trim_end_matches('\\')),
                None => commands.push(line.to_owned()),
            }
        }
    }
    commands
}

/// Commands of ours between words.
fn between_words(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).flat_map(|part| part.split('`').skip(1).step_by(2));
    let ours = |code: &&str| ["make ", "hack/", "cargo test "].iter().any(|word| code.contains(word));
    prose.filter(ours).map(str::to_owned).collect()
}

/// Of every crate: its folder, and its manifest.
fn crates() -> Vec<(PathBuf, String)> {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    folders.map(|path| (path.clone(), fs::read_to_string(path.join("Cargo.toml")).unwrap())).collect()
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
        let text = original(&page);
        for command in commands(&text).into_iter().chain(between_words(&text)) {
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

/// Whether there is what a command calls: a make target has a test of its own.
fn there(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().skip_while(|word| word.contains('=')).collect();
    let crates = crates();
    let named = |name: &str| crates.iter().any(|(_, text)| text.contains(&format!("name = \"{name}\"")));
    let tested = |test: &str| {
        let files = [format!("tests/{test}.rs"), format!("tests/{test}/main.rs")];
        crates.iter().any(|(path, _)| files.iter().any(|file| path.join(file).exists()))
    };
    match words[..] {
        ["make", ..] => true,
        ["cargo", "test", ..] => words.windows(2).all(|pair| match pair {
            ["-p", name] => named(name),
            ["--test", test] => tested(test),
            _ => true,
        }),
        [script, ..] if script.starts_with("hack/") => root().join(script).exists(),
        [program, ..] => named(program.trim_start_matches("target/debug/")),
        [] => false,
    }
}

#[test]
fn every_command_is_typed_by_a_test_or_calls_what_is_there() {
    for (page, test) in TYPED {
        let name = page.rsplit('/').next().unwrap();
        assert!(read(test).contains(name), "{test} does not type {page}");
    }
    let typed = ["docs/tutorial.md", "crates/etcd-operator/tests/e2e/tutorial.rs"].map(read).concat();
    let mut unknown = Vec::new();
    for page in pages() {
        let text = original(&page);
        let mut asked = between_words(&text);
        if !TYPED.iter().any(|(typed, _)| page.starts_with(root().join(typed))) {
            asked.extend(commands(&text));
        }
        asked.retain(|command| !there(command) && !typed.contains(command.as_str()));
        unknown.extend(asked.into_iter().map(|command| format!("{}: {command}", page.display())));
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Each way to uninstall has a heading, and a test that follows it.
#[test]
fn every_way_to_uninstall_is_followed() {
    let (page, tests) = (read("docs/install.md"), read("crates/etcd-operator/tests/e2e/install.rs"));
    let ways: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(ways.len() > 3, "{ways:?}");
    for way in ways {
        assert!(tests.contains(&format!("follows(\"{way}\")")), "nobody follows: {way}");
    }
}

/// What the copy is made with is typed; compiling it takes minutes, so it is read by rustfmt and cargo alone.
#[test]
fn an_operator_of_your_own_is_a_crate() {
    let page = commands(&read("docs/build-your-own.md"));
    let steps: Vec<String> =
        page.into_iter().take_while(|command| !command.starts_with("cargo run")).collect();
    assert_eq!(steps.last().map(String::as_str), Some("cargo fmt"), "{steps:#?}");
    let copy = tempfile::tempdir().unwrap();
    let types = |line: &str| {
        let done = Command::new("bash").args(["-euc", line]).current_dir(copy.path()).output().unwrap();
        let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(done.status.success(), "{line}: {}", said[1]);
        said[0].clone()
    };
    types(&format!(
        "cd {} && cp -r Cargo.toml Cargo.lock rustfmt.toml crates example \"$OLDPWD\"",
        root().display()
    ));
    types(&steps.join("\n"));
    let metadata = types("cargo metadata --offline --no-deps --format-version 1");
    // What is typed next runs the example, and later the program.
    for name in ["my-operator", "my-files"] {
        assert!(metadata.contains(&format!("\"name\":\"{name}\"")), "{name}: {metadata}");
    }
    assert!(copy.path().join("example/my/v1alpha1/instance.yaml").exists());
    let left =
        types("grep -rniE 'nginx[-_]?operator' crates/my-operator crates/api/src/my example/my || true");
    assert!(left.is_empty(), "{left}");
}

/// The demo made its picture of the tutorial that there is. Long lines are cut.
#[test]
fn the_picture_shows_the_tutorial() {
    let shown = read("docs/demo.svg").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    for command in commands(&read("docs/tutorial.md")) {
        let line: String = format!("$ {command}").chars().take(130).collect();
        assert!(
            shown.contains(&line),
            "make it anew, PICTURE=docs/demo.svg FAST=1 make demo, for it lacks: {line}"
        );
    }
}

/// Options of the operator that the pages speak of.
#[test]
fn every_option_exists() {
    let options = read("crates/etcd-operator/src/cli.rs");
    for page in ["docs/operations.md", "docs/migrate-from-coreos.md", "docs/security.md"] {
        for option in read(page).split("`--").skip(1) {
            let name: String = option.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            assert!(options.contains(&format!("pub {}:", name.replace('-', "_"))), "{page}: --{name}");
        }
    }
}

/// The small operator's own metrics; the other's are held against its page beside their code.
#[test]
fn the_nginx_operators_metrics_are_explained() {
    let (source, page) = (read("crates/nginx-operator/src/metrics.rs"), read("docs/metrics.md"));
    let gauges: Vec<Vec<&str>> = source
        .lines()
        .filter(|line| line.starts_with("    (\""))
        .map(|line| line.split('"').collect())
        .collect();
    assert_eq!(gauges.len(), 3, "{gauges:?}");
    for gauge in gauges {
        let row = format!("| `nginx_operator_{}` | namespace, name | {} |", gauge[1], gauge[3]);
        assert!(page.contains(&row), "docs/metrics.md lacks {row}");
    }
}

/// What contributors are told to type, settings apart, is what `make test` or `make prove` runs.
#[test]
fn what_contributors_type_is_run() {
    let scripts = ["hack/test.sh", "Makefile"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let scripts = scripts.concat().replace("$tests", "cargo test --workspace");
    let words = |line: &str| -> BTreeSet<String> {
        line.split_whitespace().filter(|word| !word.contains('=')).map(str::to_owned).collect()
    };
    let run: Vec<BTreeSet<String>> = scripts.lines().map(words).collect();
    let mut count = 0;
    for page in ["docs/reliability.md", "docs/contributing.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let ours = |line: &&str| line.contains("cargo test") || line.starts_with("hack/");
        for command in commands(&text).iter().map(String::as_str).filter(ours) {
            let typed = words(command);
            assert!(run.iter().any(|line| line.is_superset(&typed)), "{page}: nobody runs {command}");
            count += 1;
        }
    }
    assert!(count > 3, "only {count} commands");
}

/// Both READMEs lead to the same pages and show the same commands, in the same order; only their words differ.
#[test]
fn the_readmes_say_the_same() {
    let [english, chinese] =
        ["README.md", "README.zh-CN.md"].map(|page| fs::read_to_string(root().join(page)).unwrap());
    let pages = |text: &str| -> Vec<String> {
        links(text).iter().filter(|link| !link.starts_with("README")).map(ToString::to_string).collect()
    };
    assert_eq!(pages(&english), pages(&chinese));
    let typed = |text: &str| -> Vec<String> {
        let ours = |line: &&str| line.starts_with("make ") || line.starts_with("kubectl ");
        commands(text).into_iter().filter(|line| ours(&line.as_str())).collect()
    };
    assert_eq!(typed(&english), typed(&chinese));
    let rows = |text: &str| text.lines().filter(|line| line.starts_with('|')).count();
    assert_eq!(rows(&english), rows(&chinese));
}
