//! Nothing of a lab stays behind: found by name in the kernel, so that it works without state, too.

use std::fs;
use std::time::{Duration, Instant};

use crate::error::{At, Error, Result};
use crate::layout::{Layout, cgroup as cgroup_of, check_name, state_dir};
use crate::process::Process;
use crate::state::{self, Lock};
use crate::{cgroup, net, preflight};

/// Removes the lab; true if there was anything of it.
pub fn down(name: &str) -> Result<bool> {
    check_name(name)?;
    preflight::root()?;
    let lock = Lock::of_lab(name)?;
    let layout = state::load(name).ok().flatten();
    let existed = layout.is_some() || !net::namespaces(name).is_empty() || state_dir(name).exists();
    sweep(name, layout.as_ref())?;
    lock.remove();
    Ok(existed)
}

fn sweep(name: &str, layout: Option<&Layout>) -> Result<()> {
    end_processes(name)?;
    cgroup::remove(&cgroup_of(name))?;
    net::remove(name)?;
    if let Some(layout) = layout {
        net::remove_host_link(layout.number)?;
    }
    let dir = state_dir(name);
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).at(dir),
        _ => Ok(()),
    }
}

/// All processes in the lab's network namespaces and cgroups, recorded or not; a node's first process takes the rest along.
fn end_processes(name: &str) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let mut left = Vec::new();
        for netns in net::namespaces(name) {
            left.extend(net::pids_in(&netns)?);
        }
        left.extend(cgroup::pids(&cgroup_of(name)));
        let left: Vec<Process> = left.into_iter().filter_map(|pid| Process::of_pid(pid, &[])).collect();
        let Some(first) = left.first() else { return Ok(()) };
        if Instant::now() > end {
            return Err(Error::other(format!("process {}", first.pid), "still there after 30 s of SIGKILL"));
        }
        for process in &left {
            process.signal(nix::sys::signal::Signal::SIGKILL)?;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}
