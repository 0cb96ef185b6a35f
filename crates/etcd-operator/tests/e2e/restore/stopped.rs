//! A process of a pod, stopped in the middle of its work.

use std::fs;
use std::time::{Duration, Instant};

use lab::Lab;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{LIMIT, Outcome};

/// How often a machine that is too busy to stop a process in time is given another try.
pub const TRIES: usize = 4;

/// It goes on when this is dropped, if it still lives.
pub struct Stopped(Pid);

impl Stopped {
    /// Stops the first process of the pod with this UID whose command line is the right one, as soon as it is there.
    /// Containers live for moments: there is no time to wait until the API tells of them. Nothing if it was over before
    /// it could be stopped: etcd runs by then, the last that a pod starts.
    pub fn at(lab: &Lab, uid: &str, right: impl Fn(&[&str]) -> bool) -> Outcome<Option<Self>> {
        let pids = spin(|| lab.pod_processes(uid)).ok_or("the pod has never run")?;
        let seen = spin(|| {
            let all = pids();
            let found = all.iter().find(|pid| runs(**pid, &right)).copied();
            let over = all.iter().any(|pid| runs(*pid, is_etcd));
            if found.is_none() && !over { None } else { Some(found) }
        });
        match seen.ok_or("the process was never seen")? {
            Some(pid) => Self(Pid::from_raw(pid)).send(Signal::SIGSTOP),
            None => Ok(None),
        }
    }

    /// Lets it go on until this holds, and stops it there. Nothing if it ended first.
    pub fn until(self, holds: impl Fn() -> bool) -> Outcome<Option<Self>> {
        let Some(goes_on) = self.send(Signal::SIGCONT)? else { return Ok(None) };
        spin(|| holds().then_some(())).ok_or("it never came that far")?;
        goes_on.send(Signal::SIGSTOP)
    }

    fn send(self, signal: Signal) -> Outcome<Option<Self>> {
        match kill(self.0, signal) {
            Ok(()) => Ok(Some(self)),
            Err(Errno::ESRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends it where it stands.
    pub fn end(self) -> Outcome {
        Ok(kill(self.0, Signal::SIGKILL)?)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may be gone.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Looks so often that nothing is missed that lasts for milliseconds.
pub fn spin<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    tokio::task::block_in_place(|| {
        let end = Instant::now() + LIMIT;
        loop {
            let found = look();
            if found.is_some() || Instant::now() > end {
                return found;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    })
}

pub fn is_etcd(line: &[&str]) -> bool {
    line.first().is_some_and(|program| program.ends_with("/etcd"))
}

fn runs(pid: i32, right: impl Fn(&[&str]) -> bool) -> bool {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    right(&line.trim_end_matches('\0').split('\0').collect::<Vec<_>>())
}
