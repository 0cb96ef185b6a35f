//! What the machine must offer, checked before anything is touched: one clear line for what is missing.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

use crate::error::{At, Error, Result};
use crate::layout::{self, MAX_NODES, state_root};
use crate::process::run;

const NEEDED_GIB: u64 = 8;

pub fn check(name: &str, nodes: u8, cache: &Path) -> Result<()> {
    layout::check_name(name)?;
    if nodes > MAX_NODES {
        return Err(Error::usage(format!("a lab has 1 to {MAX_NODES} nodes, not {nodes}")));
    }
    root()?;
    kernel()?;
    disk(&state_root())?;
    disk(cache)
}

pub fn root() -> Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    Err(Error::usage("the lab makes namespaces, mounts and cgroups: run it as root"))
}

/// Each feature is tried or read, never guessed from a kernel version.
fn kernel() -> Result<()> {
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    for (feature, why) in [("overlay", "container images"), ("tmpfs", "nodes of their own")] {
        let known = filesystems.lines().any(|l| l.split_whitespace().last() == Some(feature));
        if !known && run(&["modprobe", feature]).is_err() {
            return missing(feature, why);
        }
    }
    for (namespace, why) in [("net", "nodes"), ("mnt", "nodes"), ("pid", "nodes"), ("uts", "host names")] {
        if !Path::new("/proc/self/ns").join(namespace).exists() {
            return missing(&format!("{namespace} namespaces"), why);
        }
    }
    if !Path::new("/sys/fs/cgroup").join("cgroup.controllers").exists()
        && !Path::new("/sys/fs/cgroup/memory").exists()
    {
        return missing("cgroups", "resource limits of pods");
    }
    Ok(())
}

/// The same of the network, tried in a namespace that is gone a moment later; its tools are Debian's, and there by now.
pub fn network() -> Result<()> {
    for (feature, why, try_it) in [
        ("bridge", "the network between nodes", "ip link add probe type bridge"),
        ("veth", "links to nodes", "ip link add probe type veth"),
        ("nf_tables", "Services", "nft add table inet probe"),
    ] {
        let words: Vec<&str> = ["unshare", "--net"].into_iter().chain(try_it.split(' ')).collect();
        if run(&words).is_err() && run(&["modprobe", feature]).is_err() {
            return missing(feature, why);
        }
    }
    Ok(())
}

fn missing(feature: &str, why: &str) -> Result<()> {
    Err(Error::usage(format!("this kernel lacks {feature} ({why}); load its module or use another kernel")))
}

/// Every kubelet and containerd watches dozens of files; Debian's limit is met by three labs, and then containerd loses its CRI.
pub fn raise_limits() -> Result<()> {
    for (file, needed) in [("max_user_instances", 4096), ("max_user_watches", 524_288)] {
        let path = Path::new("/proc/sys/fs/inotify").join(file);
        let now: u64 = fs::read_to_string(&path).at(&path)?.trim().parse().unwrap_or(0);
        if now < needed {
            fs::write(&path, needed.to_string()).at(&path)?;
        }
    }
    Ok(())
}

fn disk(path: &Path) -> Result<()> {
    let existing = path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let stat = statvfs(existing).map_err(|e| Error::other(existing.display().to_string(), e))?;
    let free = stat.blocks_available() * stat.fragment_size() / (1 << 30);
    if free >= NEEDED_GIB {
        return Ok(());
    }
    Err(Error::usage(format!(
        "no disk space: {} has {free} GiB free, the lab needs {NEEDED_GIB}",
        existing.display()
    )))
}
