//! Labs come and go without a trace, side by side, after a kill in the middle; bad use is told in one line.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use lab::kit::shared_name;
use lab::{Lab, Options};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).env_remove("LAB_NAME").output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn succeed(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert!(output.status.success(), "lab {arguments:?}: {}", text(&output));
    text(&output)
}

/// A lab of this run, which `make test` also finds when the run was killed.
fn named(what: &str) -> String {
    format!("{}{what}", shared_name())
}

/// Removes a test's lab however the test ends.
struct Down<'a>(&'a str);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        lab(&["down", "--name", self.0]);
    }
}

/// Everything in the kernel and on the disk that carries the lab's name; other labs come and go beside this one.
fn traces(name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mark = format!("lab-{name}");
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        found.insert(format!("netns {}", entry.file_name().to_string_lossy()));
    }
    for line in fs::read_to_string("/proc/mounts").unwrap().lines() {
        found.insert(format!("mount {line}"));
    }
    for root in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        for group in fs::read_dir(root.path()).into_iter().flatten().flatten() {
            found.insert(format!("cgroup {}", group.path().display()));
        }
    }
    for link in fs::read_dir("/sys/class/net").unwrap().flatten() {
        found.insert(format!("link {}", link.file_name().to_string_lossy()));
    }
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        found.insert(format!("process {}", String::from_utf8_lossy(&command).replace('\0', " ")));
    }
    for command in [&["nft", "list", "ruleset"][..], &["ip", "route", "show", "table", "all"]] {
        let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
        found.extend(String::from_utf8_lossy(&output.stdout).lines().map(|l| format!("{} {l}", command[0])));
    }
    let state = lab::layout::state_dir(name);
    found.retain(|t| t.contains(&mark) || t.contains(&state.display().to_string()));
    if state.exists() {
        found.insert(format!("state {}", state.display()));
    }
    found
}

/// Brings a lab of two nodes up, and kills that after so many milliseconds.
fn up_and_kill(up: &[&str], milliseconds: u64) {
    let mut up = Command::new(env!("CARGO_BIN_EXE_lab")).args(up).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_millis(milliseconds);
    while Instant::now() < end && up.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    up.kill().unwrap();
    up.wait().unwrap();
}

#[test]
fn a_kill_in_the_middle_of_up_leaves_nothing_after_down_and_another_up_goes_on() {
    let name = &named("killed");
    let _down = Down(name);
    let up = ["up", "--name", name, "--nodes", "2", "--etcd", "3.5.16"];
    for milliseconds in [50, 400, 1500, 4000] {
        up_and_kill(&up, milliseconds);
        succeed(&["down", "--name", name]);
        assert_eq!(traces(name), BTreeSet::new(), "killed after {milliseconds} ms");
    }
    for milliseconds in [100, 200, 400, 800, 1600, 3200] {
        up_and_kill(&up, milliseconds);
    }
    succeed(&up);
    let rows = succeed(&["status", "--name", name]);
    assert!(rows.contains("node2-kubelet") && !rows.contains("stopped"), "{rows}");
    succeed(&["down", "--name", name]);
    assert_eq!(traces(name), BTreeSet::new(), "killed again and again");
}

fn kill(pid: i64) {
    let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn a_lab_whose_processes_are_gone_is_repaired_by_up_and_removed_by_down() {
    let name = &named("dead");
    let _down = Down(name);
    succeed(&["up", "--name", name, "--nodes", "1", "--etcd", "3.5.16"]);
    let pids = || {
        let json = succeed(&["status", "--name", name, "--output", "json"]);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        rows.iter()
            .map(|r| (r["component"].as_str().unwrap().to_owned(), r["pid"].as_i64()))
            .collect::<Vec<_>>()
    };
    let before = pids();
    let kubelet = before.iter().find(|(c, _)| c == "node1-kubelet").and_then(|(_, p)| *p).unwrap();
    kill(kubelet);
    succeed(&["up", "--name", name, "--nodes", "1", "--etcd", "3.5.16"]);
    for ((component, old), (_, new)) in before.iter().zip(pids()) {
        assert_eq!(
            *old == new,
            component != "node1-kubelet",
            "{component}: only what was missing is started"
        );
    }
    for (_, pid) in pids() {
        kill(pid.unwrap());
    }
    succeed(&["down", "--name", name]);
    assert_eq!(traces(name), BTreeSet::new());
}

#[tokio::test]
async fn two_labs_live_side_by_side_and_one_with_an_api_alone_is_up_in_seconds() {
    let (a, b) = (&named("left"), &named("right"));
    let _down = (Down(a), Down(b));
    let started = Instant::now();
    let left = Lab::up(&Options { quiet: true, ..Options::api_only(a) }).await.unwrap();
    println!("an API-only lab was up after {:.1} s", started.elapsed().as_secs_f64());
    let right = Lab::up(&Options { quiet: true, controllers: true, ..Options::api_only(b) }).await.unwrap();
    assert_ne!(left.layout.control_ip(), right.layout.control_ip());

    let namespaces = async |lab: &Lab| {
        let api: Api<Namespace> = Api::all(lab.client().await.unwrap());
        api.list(&ListParams::default()).await.unwrap().items.len()
    };
    let before = namespaces(&right).await;
    let api: Api<Namespace> = Api::all(left.client().await.unwrap());
    let only_left = serde_json::from_value(serde_json::json!({"metadata": {"name": "only-left"}})).unwrap();
    api.create(&kube::api::PostParams::default(), &only_left).await.unwrap();
    assert_eq!(namespaces(&right).await, before);

    lab::down(a).unwrap();
    assert_eq!(traces(a), BTreeSet::new());
    assert_eq!(namespaces(&right).await, before, "the other lab goes on");
}

#[test]
fn bad_use_gets_one_line_and_exit_code_2() {
    let (name, other) = (&named("refuse"), &named("other"));
    let _down = Down(name);
    succeed(&["up", "--name", name, "--api-only", "--subnet", "77"]);
    for (arguments, says) in [
        (&["up", "--name", "Bad-Name"][..], "no name for a lab"),
        (&["up", "--name", name, "--nodes", "2"], "in use"),
        (&["up", "--name", other, "--api-only", "--subnet", "77"], "subnet 77 is in use"),
        (&["up", "--name", other, "--api-only", "--subnet", "200"], "0 to 127"),
        (&["up", "--name", other, "--nodes", "0"], "--api-only"),
        (&["up", "--name", other, "--nodes", "12"], "1 to 9 nodes"),
        (&["up", "--name", other, "--etcd", "3.9.9"], "no etcd 3.9.9"),
        (&["node", "kill", "node7", "--name", name], "no node 'node7'"),
        (&["status", "--name", "nosuch"], "there is no lab 'nosuch'"),
        (&["logs", "nosuch", "--name", name], "no component 'nosuch'"),
        (&["aws-dir", "--name", name], "--api-only"),
        (&["frobnicate"], "unrecognized"),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "lab {arguments:?}: {}", text(&output));
        assert!(text(&output).contains(says), "lab {arguments:?}: {}", text(&output));
    }
    assert_eq!(traces(other), BTreeSet::new());
}

#[test]
fn only_root_may_and_a_full_disk_is_named() {
    // A copy where anybody may run it: the checkout may lie in a folder that is closed to others.
    let open = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let copy = open.path().join("lab");
    fs::copy(env!("CARGO_BIN_EXE_lab"), &copy).unwrap();
    let name = named("nobody");
    for arguments in
        [&["up"][..], &["down"], &["node", "kill", "node1"], &["load", "x.tar"], &["publish", "x"]]
    {
        let nobody = Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", copy.to_str().unwrap()])
            .args(arguments)
            .args(["--name", &name])
            .env("HOME", open.path())
            .output()
            .unwrap();
        assert_eq!(nobody.status.code(), Some(2), "{arguments:?}: {}", text(&nobody));
        assert!(text(&nobody).contains("run it as root"), "{arguments:?}: {}", text(&nobody));
        assert_eq!(text(&nobody).lines().count(), 1, "{arguments:?}: {}", text(&nobody));
    }

    let small = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs -o size=1m small /mnt && LAB_STATE=/mnt/lab \"$0\" up --name \"$1\"",
        ])
        .args([env!("CARGO_BIN_EXE_lab"), &named("full")])
        .output()
        .unwrap();
    assert_eq!(small.status.code(), Some(2), "{}", text(&small));
    assert!(text(&small).contains("no disk space"), "{}", text(&small));
}

#[test]
fn a_missing_kernel_feature_is_named() {
    // The list of file systems is read from the kernel; here it has no overlay, and no program can load one.
    let name = &named("lacking");
    let listed = fs::read_to_string("/proc/filesystems").unwrap();
    let kept = |line: &&str| !line.trim_end().ends_with("overlay");
    let without: String = listed.split_inclusive('\n').filter(kept).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), without).unwrap();
    let refused = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "mount --bind \"$1\" /proc/filesystems && PATH=/nowhere exec \"$0\" up --name \"$2\"",
        ])
        .args([env!("CARGO_BIN_EXE_lab").as_ref(), file.path().as_os_str(), name.as_ref()])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("this kernel lacks overlay"), "{}", text(&refused));
    // Nothing can be tried without programs: no network, and no module that would bring it.
    let refused = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["up", "--api-only", "--name", name])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("this kernel lacks"), "{}", text(&refused));
    assert_eq!(traces(name), BTreeSet::new());
    assert!(!succeed(&["list"]).contains(name.as_str()), "nothing was begun");
}
