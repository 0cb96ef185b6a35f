//! A machine that had labs is as it was before. Whole listings are compared, so nothing else may make or remove labs
//! meanwhile: this is a test program of its own.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// A lab of this run, which `make test` also finds when the run was killed.
fn name() -> String {
    format!("{}over", lab::kit::shared_name())
}

fn lab(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "lab {arguments:?}: {said}");
}

struct Down;

impl Drop for Down {
    fn drop(&mut self) {
        lab(&["down", "--name", &name()]);
    }
}

fn printed(command: &[&str]) -> Vec<String> {
    let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The network namespaces that some process of ours lives in; pods of other labs and the machine's services come and go as
/// they please, in groups of their own.
fn inhabited() -> BTreeSet<String> {
    let (ours, labs) = (fs::read_to_string("/proc/self/cgroup").unwrap(), format!("/lab-{}", name()));
    let of = |process: fs::DirEntry| {
        let groups = fs::read_to_string(process.path().join("cgroup")).ok()?;
        if groups != ours && !groups.contains(&labs) {
            return None;
        }
        fs::read_link(process.path().join("ns/net")).ok()
    };
    entries(Path::new("/proc")).filter_map(of).map(|ns| ns.display().to_string()).collect()
}

/// What is left of a line without how long it holds, which changes by itself: `valid_lft 86353sec`.
fn timeless(line: &str) -> String {
    let counts = |word: &&str| word.strip_suffix("sec").is_some_and(|time| time.parse::<u64>().is_ok());
    line.split_whitespace().filter(|word| !counts(word)).collect::<Vec<_>>().join(" ")
}

/// What systemd mounts for sessions and services, as they come and go.
fn of_systemd(mount: &str) -> bool {
    let place = mount.split(' ').nth(1).unwrap_or_default();
    ["/run/user/", "/run/credentials/", "/proc/sys/fs/binfmt_misc"].iter().any(|its| place.starts_with(its))
}

/// All that a lab could leave in the kernel and on the disk.
fn machine() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (kind, command) in [
        ("link", &["ip", "-o", "link"][..]),
        ("address", &["ip", "-o", "address"]),
        ("route", &["ip", "route", "show", "table", "all"]),
        ("rule", &["ip", "rule"]),
        ("nft", &["nft", "--stateless", "list", "ruleset"]),
        ("netns", &["ip", "netns"]),
    ] {
        found.extend(printed(command).iter().map(|line| format!("{kind} {}", timeless(line))));
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| !of_systemd(line)).map(|line| format!("mount {line}")));
    found.extend(inhabited().into_iter().map(|ns| format!("processes in {ns}")));
    let mut folders = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(folder) = folders.pop() {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if [".slice", ".scope", ".service"].iter().any(|systemd| name.ends_with(systemd)) {
            continue;
        }
        // Pods of other labs come and go below their lab's own group.
        let below = name.starts_with("lab-");
        let groups = entries(&folder).filter(|entry| !below && entry.file_type().is_ok_and(|t| t.is_dir()));
        folders.extend(groups.map(|entry| entry.path()));
        found.insert(format!("cgroup {}", folder.display()));
    }
    found
        .extend(entries(&lab::layout::state_root()).map(|entry| format!("state {}", entry.path().display())));
    found
}

/// What was built, and when.
fn built() -> BTreeSet<(String, SystemTime)> {
    let cache = lab::programs::default_cache().unwrap();
    let kept = ["programs", "images/keys"].map(|folder| cache.join(folder));
    let stamped = |entry: fs::DirEntry| {
        (entry.path().display().to_string(), entry.metadata().unwrap().modified().unwrap())
    };
    kept.iter().flat_map(|folder| entries(folder)).map(stamped).collect()
}

#[test]
fn ten_times_up_and_down_leaves_the_machine_as_it_was_and_builds_nothing_twice() {
    let _down = Down;
    let name = &name();
    let up = ["up", "--name", name, "--nodes", "2", "--etcd", "3.5.16"];
    lab(&up);
    lab(&["down", "--name", name]);
    let (before, programs) = (machine(), built());
    for round in 1..=10 {
        lab(&up);
        assert_ne!(machine(), before, "a lab that leaves no trace while it is up was not looked for");
        lab(&["down", "--name", name]);
        let after = machine();
        let left: Vec<_> = after.difference(&before).collect();
        let gone: Vec<_> = before.difference(&after).collect();
        assert!(left.is_empty() && gone.is_empty(), "round {round}: left {left:#?}, gone {gone:#?}");
    }
    assert_eq!(built(), programs, "what did not change was built again");
}

#[test]
fn what_the_machine_does_by_itself_is_not_counted() {
    let address =
        |left| format!("2: eth0 inet 10.0.0.2/24 scope global valid_lft {left}sec preferred_lft {left}sec");
    assert_eq!(timeless(&address(86_353)), timeless(&address(86_352)));
    assert_ne!(
        timeless("inet 10.0.0.2/24 valid_lft forever"),
        timeless("inet 10.0.0.3/24 valid_lft forever")
    );
    assert!(of_systemd("tmpfs /run/user/0 tmpfs rw 0 0") && !of_systemd("nsfs /run/netns/lab-x nsfs rw 0 0"));
}
