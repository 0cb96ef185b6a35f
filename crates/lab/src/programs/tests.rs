use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{BuildError, EtcdVersion, Program, Programs, Toolchain, entry, program::Recipe};

/// A lab folder with one tiny module, a cache, and a stand-in for `go` that follows `script` when it builds to `$out`.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new(script: &str) -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        let module = fixture.module();
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("go.mod"), "module tiny\n\ngo 1.26\n").unwrap();
        fs::write(module.join("main.go"), "package main\n\nfunc main() { println(\"tiny\") }\n").unwrap();
        fixture.go(&format!(
            "case $1 in version) echo go version go1.26.1;; list) {{ :; {script_list}; }};; build) echo build >>{log}; while [ \"$1\" != -o ]; do shift; done; out=$2; {script};; esac",
            script_list = format_args!("[ ! -e {0} ] || sh {0}", fixture.at("list.sh").display()),
            log = fixture.at("log").display(),
        ));
        fixture
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn module(&self) -> PathBuf {
        self.at("lab/go/coredns")
    }

    fn go(&self, script: &str) {
        let go = self.at("go");
        fs::write(&go, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn programs(&self) -> Programs {
        self.programs_with(&self.at("go"))
    }

    fn programs_with(&self, go: &Path) -> Programs {
        Programs::with_toolchain(&self.at("cache"), self.toolchain(go), &self.at("lab"))
    }

    /// Without a way to fetch another.
    fn toolchain(&self, go: &Path) -> Toolchain {
        Toolchain::with(go, &self.at("cache"), "file:///no/such/proxy", "0000000000")
    }

    fn builds(&self) -> usize {
        fs::read_to_string(self.at("log")).unwrap_or_default().lines().count()
    }

    fn cached(&self) -> Vec<String> {
        let Ok(found) = fs::read_dir(self.at("cache/programs")) else { return Vec::new() };
        found
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "locks")
            .collect()
    }
}

const TINY: Program = Program::CoreDns;

#[test]
fn builds_once() {
    let fixture = Fixture::new("echo made >$out");
    assert!(!fixture.programs().is_built(TINY).unwrap());
    let path = fixture.programs().path(TINY).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "made\n");
    assert_eq!(path.file_name().unwrap(), "coredns");
    fixture.programs().ensure(&[TINY, TINY]).unwrap();
    assert_eq!(fixture.programs().path(TINY).unwrap(), path);
    assert_eq!(fixture.builds(), 1);
}

#[test]
fn what_a_program_is_made_from_is_in_its_key() {
    let fixture = Fixture::new("echo made >$out");
    let key = || fixture.programs().entry_name(TINY).unwrap();
    let mut keys = vec![key()];
    assert_eq!(key(), keys[0]);
    fs::write(fixture.module().join("go.sum"), "sum").unwrap();
    keys.push(key());
    fs::write(fixture.module().join("main.go"), "package main").unwrap();
    keys.push(key());
    fs::create_dir(fixture.module().join("etcd")).unwrap();
    fs::write(fixture.module().join("etcd/main.go"), "package main").unwrap();
    keys.push(key());
    fixture.go("echo go version go1.26.2");
    keys.push(key());
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), count);
}

#[test]
fn a_failed_build_leaves_nothing_and_says_why() {
    let fixture = Fixture::new("echo half >$out; echo 'main.go:1: no good' >&2; exit 3");
    let error = fixture.programs().path(TINY).unwrap_err().to_string();
    assert!(error.contains("coredns did not build") && error.contains("main.go:1: no good"), "{error}");
    assert_eq!(fixture.cached(), Vec::<String>::new());
}

#[test]
fn a_killed_builder_leaves_no_entry_and_the_next_one_clears_up() {
    let fixture = Fixture::new("echo made >$out");
    let name = fixture.programs().entry_name(TINY).unwrap();
    for left in [format!(".{name}.killed"), ".other-program.killed".to_owned()] {
        let left = fixture.at("cache/programs").join(left);
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("coredns"), "hal").unwrap();
    }
    assert!(!fixture.programs().is_built(TINY).unwrap());
    let path = fixture.programs().path(TINY).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "made\n");
    assert_eq!(fixture.cached(), [name]);
}

#[test]
fn builders_at_once_build_once() {
    let fixture = Fixture::new("sleep 0.2; echo made >$out");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(fixture.programs().path(TINY).unwrap().exists()));
        }
    });
    assert_eq!(fixture.builds(), 1);
}

#[test]
fn a_killed_lab_takes_its_compiler_along() {
    let fixture = Fixture::new("exec sleep 30");
    let builder = fixture.programs().builder;
    let Ok(Recipe::Go(build)) = TINY.recipe() else { unreachable!() };
    // For the kernel, the thread that started the compiler is its parent.
    let mut child = thread::scope(|scope| {
        let parent = scope.spawn(|| {
            let child = builder
                .go_command(&build, "build")
                .unwrap()
                .arg("-o")
                .arg(fixture.at("out"))
                .spawn()
                .unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            while fixture.builds() == 0 {
                assert!(Instant::now() < deadline, "the compiler does not start");
                thread::sleep(Duration::from_millis(5));
            }
            child
        });
        parent.join().unwrap()
    });
    assert!(!child.wait().unwrap().success());
}

#[test]
fn other_entries_are_not_held_up() {
    let folder = tempfile::tempdir().unwrap();
    let make = |out: &Path| fs::write(out.join("file"), "x");
    entry(folder.path(), "one", |out| {
        make(out)?;
        entry(folder.path(), "two", make).map(drop)
    })
    .unwrap();
    assert!(folder.path().join("one/file").exists() && folder.path().join("two/file").exists());
}

#[test]
fn a_download_that_fails_by_chance_is_tried_again() {
    let fixture = Fixture::new("echo made >$out");
    let count = fixture.at("count");
    let fail_twice = format!(
        "echo x >>{0}; [ $(wc -l <{0}) -gt 2 ] || {{ echo 'dial tcp: i/o timeout' >&2; exit 1; }}",
        count.display()
    );
    fs::write(fixture.at("list.sh"), fail_twice).unwrap();
    fixture.programs().path(TINY).unwrap();
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 3);

    fs::write(fixture.at("list.sh"), "echo 'no such host' >&2; exit 1").unwrap();
    fs::write(fixture.module().join("go.sum"), "new").unwrap();
    let error = fixture.programs().path(TINY).unwrap_err();
    assert!(matches!(&error, BuildError::Failed { output, .. } if output == "no such host"), "{error}");
}

#[test]
fn real_go_and_real_gcc() {
    let fixture = Fixture::new("");
    // The one that labs are built with: a machine may have none, or one that is too old.
    let toolchain = Toolchain::new(&super::default_cache().unwrap());
    let path = fixture.programs_with(&toolchain.go().unwrap().command).path(TINY).unwrap();
    assert_eq!(Command::new(path).output().unwrap().stderr, b"tiny\n");

    let cache = tempfile::tempdir().unwrap();
    let pause = Programs::new(cache.path()).path(Program::Pause).unwrap();
    let linked = Command::new("ldd").arg(pause).output().unwrap();
    assert!(!linked.status.success(), "pause must be static: {}", String::from_utf8_lossy(&linked.stdout));
}

#[test]
fn a_missing_go_is_named() {
    let fixture = Fixture::new("");
    let error = fixture.programs_with(Path::new("/no/such/go")).path(TINY).unwrap_err().to_string();
    assert!(error.contains("there is no Go 1.26") && error.contains("/no/such/proxy"), "{error}");
    fixture.go("echo go version go1.19.8 linux/amd64");
    let error = fixture.programs().path(TINY).unwrap_err().to_string();
    assert!(error.contains("there is no Go 1.26"), "{error}");
}

#[test]
fn etcd_versions() {
    for version in EtcdVersion::ALL {
        assert_eq!(version.as_str().parse::<EtcdVersion>().unwrap(), version);
        for program in version.programs() {
            assert!(program.recipe().is_ok());
        }
    }
    assert!(matches!(Program::Etcdutl(EtcdVersion::V3_4_15).recipe(), Err(BuildError::NoEtcdutl(_))));
    assert!("3.7.0".parse::<EtcdVersion>().unwrap_err().to_string().contains("3.6.16"));
}
