//! Cgroups of a lab: one tree below every mounted hierarchy, which kubelets and containers live in.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{At, Error, Result};

const MOUNT: &str = "/sys/fs/cgroup";

/// Pods have a whole node in real life. Here all of them share two cores with whatever else runs, where every session weighs as
/// much as all pods of a lab together: on a busy machine etcd would lose its elections. So they weigh 16 times as much.
const WEIGHTS: [(&str, &str); 2] = [("cpu.shares", "16384"), ("cpu.weight", "1600")];

/// The roots of all hierarchies: one for each v1 controller, or the one of v2.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(MOUNT);
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.join("cgroup.procs").exists() && !p.is_symlink())
        .collect()
}

/// Makes `path` (a/b) in every hierarchy and lets children have what the parent has.
pub fn ensure(path: &str) -> Result<()> {
    for root in hierarchies() {
        let mut dir = root.clone();
        for part in path.split('/') {
            let parent = dir.clone();
            dir.push(part);
            fs::create_dir_all(&dir).at(&dir)?;
            inherit(&parent, &dir)?;
            if parent == root {
                weigh(&dir)?;
            }
        }
    }
    Ok(())
}

/// Where this hierarchy is the one of the processor.
fn weigh(group: &Path) -> Result<()> {
    for (file, weight) in WEIGHTS {
        let file = group.join(file);
        if file.exists() {
            fs::write(&file, weight).at(&file)?;
        }
    }
    Ok(())
}

/// A fresh v1 cpuset is empty and takes no process; a fresh v2 group has no controllers.
fn inherit(parent: &Path, child: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), child.join(file));
        if from.exists() && fs::read_to_string(&to).is_ok_and(|t| t.trim().is_empty()) {
            fs::write(&to, fs::read(&from).at(&from)?).at(&to)?;
        }
    }
    let available = parent.join("cgroup.controllers");
    if let Ok(controllers) = fs::read_to_string(&available) {
        for controller in controllers.split_whitespace() {
            // Threaded or unsupported controllers refuse; the kubelet names what it really misses.
            let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
        }
    }
    Ok(())
}

/// Pids in the group and below it, in any hierarchy.
pub fn pids(path: &str) -> Vec<i32> {
    let mut found: Vec<i32> = hierarchies().iter().flat_map(|root| pids_below(&root.join(path))).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Pids in this group and below it.
pub fn pids_below(dir: &Path) -> Vec<i32> {
    let own = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<i32> = own.split_whitespace().filter_map(|p| p.parse().ok()).collect();
    for child in subgroups(dir) {
        all.extend(pids_below(&child));
    }
    all
}

fn subgroups(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir())).map(|entry| entry.path()).collect()
}

/// The groups below `dir` whose name holds this, wherever the kubelet put them.
fn named(dir: &Path, part: &str) -> Vec<PathBuf> {
    let is_named = |group: &Path| group.file_name().is_some_and(|name| name.to_string_lossy().contains(part));
    let groups = subgroups(dir).into_iter();
    groups.flat_map(|group| if is_named(&group) { vec![group] } else { named(&group, part) }).collect()
}

/// The group of a pod, in one of the hierarchies, once the kubelet has made it.
pub fn of_pod(lab_cgroup: &str, uid: &str) -> Option<PathBuf> {
    let part = format!("pod{uid}");
    hierarchies().iter().find_map(|root| named(&root.join(lab_cgroup), &part).pop())
}

pub fn pids_of_container(lab_cgroup: &str, container_id: &str) -> Vec<i32> {
    let groups = hierarchies().into_iter().flat_map(|root| named(&root.join(lab_cgroup), container_id));
    let mut found: Vec<i32> = groups.flat_map(|group| pids_below(&group)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Ends every process in the group and removes it from all hierarchies.
pub fn remove(path: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        for pid in pids(path) {
            // It may be gone by now, which is what we want.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let left: Vec<PathBuf> =
            hierarchies().iter().map(|r| r.join(path)).filter(|d| !remove_tree(d)).collect();
        let Some(first) = left.first() else { return Ok(()) };
        if Instant::now() > end {
            return Err(Error::other(first.display().to_string(), "the cgroup is still in use after 20 s"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// True once the folder is gone; only empty groups can be removed, children first.
fn remove_tree(dir: &Path) -> bool {
    if !dir.exists() {
        return true;
    }
    for child in subgroups(dir) {
        remove_tree(&child);
    }
    fs::remove_dir(dir).is_ok() || !dir.exists()
}
