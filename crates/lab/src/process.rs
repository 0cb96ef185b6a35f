//! Long-lived processes of a lab: started so that they outlive us, known by pid and start time, ended by pid.

use std::fs;
use std::io::Write as _;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{At, Error, Result};

/// A process that cannot be mistaken for another one that got its pid later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    started_ticks: u64,
    /// What was started: another command line means that the running one is out of date.
    pub argv: Vec<String>,
}

impl Process {
    pub fn of_pid(pid: i32, argv: &[String]) -> Option<Self> {
        Some(Self { pid, started_ticks: started_ticks(pid)?, argv: argv.to_vec() })
    }

    pub fn is_alive(&self) -> bool {
        started_ticks(self.pid) == Some(self.started_ticks)
    }

    pub fn age(&self) -> Option<Duration> {
        let ticks_per_second = 100;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let boot: u64 = boot.lines().find_map(|l| l.strip_prefix("btime "))?.parse().ok()?;
        let started = UNIX_EPOCH + Duration::from_secs(boot + self.started_ticks / ticks_per_second);
        SystemTime::now().duration_since(started).ok()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) if signal == Signal::SIGSTOP => self.wait_stopped(),
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(Error::other(format!("{signal} to process {}", self.pid), error)),
        }
    }

    /// One thread takes the signal for all: on a busy machine the others go on until it has its turn.
    fn wait_stopped(&self) -> Result<()> {
        let runs = |task: &PathBuf| {
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|after| after.starts_with(['R', 'S', 'D']))
        };
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid));
        let end = Instant::now() + Duration::from_secs(30);
        while fs::read_dir(&tasks).into_iter().flatten().flatten().any(|task| runs(&task.path())) {
            if Instant::now() > end {
                return Err(Error::other(format!("process {}", self.pid), "still runs 30 s after SIGSTOP"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends it: politely first if `grace` is not zero, then for certain.
    pub fn end(&self, grace: Duration) -> Result<()> {
        if !grace.is_zero() {
            self.signal(Signal::SIGTERM)?;
            if self.wait_gone(grace) {
                return Ok(());
            }
        }
        self.signal(Signal::SIGKILL)?;
        if self.wait_gone(Duration::from_secs(10)) {
            return Ok(());
        }
        Err(Error::other(format!("process {}", self.pid), "still there 10 s after SIGKILL"))
    }

    /// Whether it has ended within the limit.
    pub fn wait_gone(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// Field 22 of /proc/PID/stat; a zombie counts as gone.
fn started_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// A folder of processes, one file each.
#[derive(Clone, Debug)]
pub struct Processes {
    pids: PathBuf,
    logs: PathBuf,
}

impl Processes {
    pub fn new(pids: PathBuf, logs: PathBuf) -> Self {
        Self { pids, logs }
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    pub fn get(&self, name: &str) -> Option<Process> {
        serde_json::from_slice(&fs::read(self.pids.join(name)).ok()?).ok()
    }

    pub fn alive(&self, name: &str) -> Option<Process> {
        self.get(name).filter(Process::is_alive)
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.pids)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        names
    }

    /// Starts `argv` unless the same command runs already. `inside` is the wrapper that enters the namespaces; when it
    /// forks (a PID namespace demands it), `forks` says so, and the child is the process we mean.
    pub fn ensure(&self, name: &str, inside: &[String], forks: bool, argv: &[String]) -> Result<Process> {
        if let Some(running) = self.alive(name) {
            if running.argv == argv {
                return Ok(running);
            }
            running.end(Duration::from_secs(5))?;
        }
        fs::create_dir_all(&self.pids).at(&self.pids)?;
        fs::create_dir_all(&self.logs).at(&self.logs)?;
        let log = self.log(name);
        let (pid, mut begin) = spawn_detached(inside, argv, &log)?;
        let pid = if forks { only_child(pid, name, &log)? } else { pid };
        let process = Process::of_pid(pid, argv).ok_or_else(|| died(name, &log))?;
        self.record(name, &process)?;
        // Whoever is gone by now has said why in its log, and `check` tells.
        let _ = begin.write_all(b"begin\n");
        Ok(process)
    }

    fn record(&self, name: &str, process: &Process) -> Result<()> {
        let (new, file) = (self.pids.join(format!(".{name}")), self.pids.join(name));
        fs::write(&new, serde_json::to_vec(process).map_err(|e| Error::other(name, e))?).at(&new)?;
        fs::rename(&new, &file).at(&file)
    }

    pub fn end(&self, name: &str, grace: Duration) -> Result<()> {
        if let Some(process) = self.get(name) {
            process.end(grace)?;
            let file = self.pids.join(name);
            fs::remove_file(&file).at(&file)?;
        }
        Ok(())
    }

    /// An error that shows the log, if the process is no more.
    pub fn check(&self, name: &str) -> Result<()> {
        if self.alive(name).is_some() { Ok(()) } else { Err(died(name, &self.log(name))) }
    }
}

fn died(name: &str, log: &Path) -> Error {
    Error::Died { what: name.to_owned(), log: log.to_owned(), tail: tail(log, 12) }
}

/// Waits for a word, and ends without one.
const GATE: &str = r#"read -r begin && exec "$@" </dev/null"#;

/// The shell in between ends at once, so that the process is nobody's child and never our zombie. `argv` begins only when a line
/// is written to the pipe: if we are killed before its pid is on record, it never does.
fn spawn_detached(inside: &[String], argv: &[String], log: &Path) -> Result<(i32, ChildStdin)> {
    let mut shell = Command::new("setsid")
        .args(["sh", "-c", r#"exec 3<&0; log=$1; shift; "$@" <&3 3<&- >>"$log" 2>&1 & echo $!"#, "sh"])
        .arg(log)
        .args(inside)
        .args(["sh", "-c", GATE, "sh"])
        .args(argv)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .at("setsid")?;
    let no_pid = |why: &str| Error::Command { command: argv.join(" "), message: format!("no pid: {why}") };
    let begin = shell.stdin.take().ok_or_else(|| no_pid("no pipe"))?;
    let output = shell.wait_with_output().at("setsid")?;
    let pid = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .map_err(|e: ParseIntError| no_pid(&e.to_string()))?;
    Ok((pid, begin))
}

fn only_child(parent: i32, name: &str, log: &Path) -> Result<i32> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        match children.ok().and_then(|c| c.split_whitespace().next().and_then(|c| c.parse().ok())) {
            Some(child) => return Ok(child),
            None if Instant::now() > end || started_ticks(parent).is_none() => return Err(died(name, log)),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// The last lines of a file, for error messages.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs a short command to its end and gives what it printed. It ends with us, so that a killed `up` leaves none behind.
pub fn run(argv: &[&str]) -> Result<String> {
    run_with_input(argv, "")
}

pub fn run_with_input(argv: &[&str], input: &str) -> Result<String> {
    let failed = |message: String| Error::Command { command: argv.join(" "), message };
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .args(argv)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that ends without reading its input says why by its exit code.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(dir: &Path) -> Processes {
        Processes::new(dir.join("pids"), dir.join("logs"))
    }

    fn argv(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_running_process_is_kept_and_a_changed_command_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let all = processes(dir.path());
        let first = all.ensure("a", &[], false, &argv(&["sleep", "600"])).unwrap();
        assert_eq!(all.ensure("a", &[], false, &argv(&["sleep", "600"])).unwrap(), first);
        let second = all.ensure("a", &[], false, &argv(&["sleep", "601"])).unwrap();
        assert!(!first.is_alive() && second.is_alive());
        assert!(second.age().unwrap() < Duration::from_mins(1));
        all.end("a", Duration::from_secs(1)).unwrap();
        assert!(!second.is_alive() && all.names().is_empty());
    }

    #[test]
    fn what_is_not_on_record_never_begins() {
        let dir = tempfile::tempdir().unwrap();
        let (log, made) = (dir.path().join("log"), dir.path().join("made"));
        let touch = argv(&["touch", made.to_str().unwrap()]);
        let ended = |pid| {
            let end = Instant::now() + Duration::from_secs(30);
            while started_ticks(pid).is_some() {
                assert!(Instant::now() < end, "it is still there");
                std::thread::yield_now();
            }
        };
        let (pid, begin) = spawn_detached(&[], &touch, &log).unwrap();
        assert!(started_ticks(pid).is_some(), "it waits");
        // As when we are killed.
        drop(begin);
        ended(pid);
        assert!(!made.exists());
        let (pid, mut begin) = spawn_detached(&[], &touch, &log).unwrap();
        begin.write_all(b"begin\n").unwrap();
        ended(pid);
        assert!(made.exists());
    }

    #[test]
    fn a_process_that_ends_at_once_is_an_error_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let all = processes(dir.path());
        // The process may or may not be seen alive before it ends; either way check() tells.
        let _ = all.ensure("bad", &[], false, &argv(&["sh", "-c", "echo cannot bind; exit 1"]));
        let end = Instant::now() + Duration::from_secs(5);
        while all.alive("bad").is_some() && Instant::now() < end {
            std::thread::yield_now();
        }
        let message = all.check("bad").unwrap_err().to_string();
        assert!(message.contains("cannot bind"), "{message}");
    }
}
