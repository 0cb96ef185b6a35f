//! Real etcd processes on loopback, for tests.
//!
//! Every member has a loopback address of its own with etcd's usual ports, as a pod has, so that tests running
//! side by side never meet.

use crate::{Expect, Member, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const POLL: Duration = Duration::from_millis(50);
const LOG_TAIL: usize = 4000;

/// A place for one member: its name, address, data and log. Whatever runs there is killed on drop, and if a
/// test fails, the end of its log is printed.
#[derive(Debug)]
pub struct Place {
    name: String,
    ip: Ipv4Addr,
    folder: TempDir,
    child: Option<Child>,
}

/// How a member starts that has no data yet.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// `--initial-cluster`.
    pub peers: String,
    /// `--initial-cluster-state`: joins a cluster that runs already.
    pub existing: bool,
    /// `--initial-cluster-token`.
    pub token: String,
    /// More arguments.
    pub flags: Vec<String>,
}

impl Bootstrap {
    /// A new cluster of these places.
    pub fn new_cluster<'a>(places: impl IntoIterator<Item = &'a Place>) -> Self {
        Self { peers: peers(places), existing: false, token: "test".into(), flags: Vec::new() }
    }

    /// A cluster that runs already and has just been told of the last of these places.
    pub fn join<'a>(places: impl IntoIterator<Item = &'a Place>) -> Self {
        Self { existing: true, ..Self::new_cluster(places) }
    }

    #[must_use]
    pub fn with_flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }
}

fn peers<'a>(places: impl IntoIterator<Item = &'a Place>) -> String {
    let peers: Vec<String> =
        places.into_iter().map(|place| format!("{}={}", place.name, place.peer_url())).collect();
    peers.join(",")
}

impl Place {
    pub fn new(name: &str) -> io::Result<Self> {
        Ok(Self { name: name.into(), ip: free_address()?, folder: TempDir::new()?, child: None })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn client(&self) -> SocketAddr {
        (self.ip, CLIENT_PORT).into()
    }

    pub fn peer(&self) -> SocketAddr {
        (self.ip, PEER_PORT).into()
    }

    pub fn peer_url(&self) -> String {
        format!("http://{}", self.peer())
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// What the processes of this place have printed so far.
    pub fn log(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.log_file())?).into_owned())
    }

    /// Starts etcd here; what ran here before is killed. Etcd ignores `bootstrap` if there is data.
    pub fn start(&mut self, etcd: &Path, bootstrap: &Bootstrap) -> io::Result<()> {
        self.kill()?;
        let client = format!("http://{}", self.client());
        let log = File::options().create(true).append(true).open(self.log_file())?;
        let mut command = Command::new(etcd);
        command
            .env_clear()
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={}", self.peer_url()))
            .arg(format!("--initial-advertise-peer-urls={}", self.peer_url()))
            .arg(format!("--initial-cluster={}", bootstrap.peers))
            .arg(format!("--initial-cluster-token={}", bootstrap.token))
            .arg(format!("--initial-cluster-state={}", if bootstrap.existing { "existing" } else { "new" }))
            .args(&bootstrap.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Ends it without a chance to say goodbye, as a lost node does. The data stays.
    pub fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks it to end, as the kubelet does. Does not wait.
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Stops it without closing anything: connections stay open and nobody answers.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let child = self.child.as_ref().ok_or_else(|| io::Error::other("nothing runs here"))?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    }

    /// Deletes all data of a member that does not run.
    pub fn wipe(&self) -> io::Result<()> {
        fs::remove_dir_all(self.data())
    }

    /// How it ended, if it did.
    pub fn exit(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.as_mut().map_or(Ok(None), Child::try_wait)
    }

    /// Whoever answers here.
    pub fn member(&self) -> crate::Result<Member> {
        Member::connect(self.client(), Expect::default())
    }

    /// Waits until the member takes part in a cluster that has quorum.
    pub async fn healthy(&self, within: Duration) -> io::Result<Status> {
        let member = self.member().map_err(io::Error::other)?.with_deadline(Duration::from_secs(1));
        let what = format!("{} is healthy", self.name);
        eventually(&what, within, async || {
            member.health().await?;
            member.status().await
        })
        .await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(log) = self.log()
        {
            let tail = log.char_indices().rev().nth(LOG_TAIL).map_or(0, |(start, _)| start);
            eprintln!("--- end of the log of {} ---\n{}", self.name, &log[tail..]);
        }
        if let Err(error) = self.kill() {
            eprintln!("{} was not killed: {error}", self.name);
        }
    }
}

/// Tries until it works; the last error tells what was missing.
pub async fn eventually<T, E: Display>(
    what: &str,
    within: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> io::Result<T> {
    let end = Instant::now() + within;
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > end => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("waited {within:?} until {what}: {error}"),
                ));
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// A loopback address on which nobody listens: one of four million, so two tests hardly ever take the same.
fn free_address() -> io::Result<Ipv4Addr> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        let [_, a, b, c] = rand::random::<u32>().to_be_bytes();
        let ip = Ipv4Addr::new(127, a | 0b1100_0000, b, c);
        if c != 0
            && c != 255
            && [CLIENT_PORT, PEER_PORT].iter().all(|&port| TcpListener::bind((ip, port)).is_ok())
        {
            return Ok(ip);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free loopback address"))
}
