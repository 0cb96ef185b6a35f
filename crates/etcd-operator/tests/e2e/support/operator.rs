//! The operator under test, as a process of this machine: quick to start, and to kill without mercy.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use lab::kit::TestNamespace;
use lab::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{LIMIT, Outcome};

/// Looks after the test's namespace; ends with the test.
pub struct Operator {
    child: Child,
    how: How,
}

/// How it is started, each time anew.
struct How {
    name: String,
    /// The network namespace that it lives in, if not this machine's.
    netns: Option<String>,
    arguments: Vec<String>,
    /// Steps after which it dies.
    dies_after: String,
    kubeconfig: PathBuf,
    namespace: String,
    listen: SocketAddr,
}

impl Operator {
    pub fn start(test: &TestNamespace<'_>) -> Outcome<Self> {
        Self::start_with(test, &[])
    }

    pub fn start_with(test: &TestNamespace<'_>, arguments: &[&str]) -> Outcome<Self> {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self::run(How::new(test, "operator-under-test", None, arguments)?)
    }

    /// One of several, under its own name; on a node it hears and is heard only while that node is.
    pub fn start_as(test: &TestNamespace<'_>, name: &str, node: Option<&str>) -> Outcome<Self> {
        let layout = &test.lab.layout;
        let netns =
            node.map(|node| Ok::<_, lab::Error>(layout.node_netns(layout.node(node)?))).transpose()?;
        Self::run(How::new(test, name, netns, Vec::new())?)
    }

    /// One that dies right after each of these steps.
    pub fn start_dying(test: &TestNamespace<'_>, after: &[&str]) -> Outcome<Self> {
        let how = How::new(test, "operator-under-test", None, Vec::new())?;
        Self::run(How { dies_after: after.join(","), ..how })
    }

    /// Does something, and starts the operator anew whenever it has died meanwhile: how often that was.
    pub async fn revived_during<T>(&mut self, something: impl Future<Output = Outcome<T>>) -> Outcome<usize> {
        let mut deaths = 0;
        tokio::pin!(something);
        loop {
            tokio::select! {
                done = &mut something => return done.map(|_| deaths),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
            if self.child.try_wait()?.is_some() {
                deaths += 1;
                self.child = self.how.spawn()?;
            }
        }
    }

    /// Waits until it has died that many times, started anew after each but the last.
    pub async fn dies(&mut self, times: usize) -> Outcome {
        for left in (0..times).rev() {
            let child = &mut self.child;
            until("the operator to die", LIMIT, async || {
                let gone = child.try_wait().map_err(|error| lab::Error::other("operator", error))?;
                Ok(gone.ok_or("it lives"))
            })
            .await?;
            if left > 0 {
                self.child = self.how.spawn()?;
            }
        }
        Ok(())
    }

    fn run(how: How) -> Outcome<Self> {
        Ok(Self { child: how.spawn()?, how })
    }

    /// SIGKILL, as when its node dies: nothing is released, nothing is finished.
    pub fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// A new process with the same arguments; what it knows it must find out anew.
    pub fn restart(&mut self) -> Outcome {
        self.kill()?;
        self.child = self.how.spawn()?;
        Ok(())
    }

    /// What it has logged so far, in all its lives.
    pub fn log(&self) -> Outcome<String> {
        Ok(fs::read_to_string(self.how.log())?)
    }

    /// The value of one of its metrics, by name and labels as `/metrics` prints them.
    pub async fn metric(&self, series: &str) -> Outcome<Option<f64>> {
        let mut connection = TcpStream::connect(self.how.listen).await?;
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        let value = answer.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        Ok(value)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

impl How {
    fn new(
        test: &TestNamespace<'_>,
        name: &str,
        netns: Option<String>,
        arguments: Vec<String>,
    ) -> Outcome<Self> {
        // Free a moment ago: good enough for a test, and stable over restarts.
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (kubeconfig, namespace) = (test.lab.kubeconfig(), test.name.clone());
        let (name, dies_after) = (name.to_owned(), String::new());
        Ok(Self { name, netns, arguments, dies_after, kubeconfig, namespace, listen })
    }

    /// Beside the bundles of failed tests.
    fn log(&self) -> PathBuf {
        lab::kit::bundle_root().join(format!("{}.{}.log", self.namespace, self.name))
    }

    fn spawn(&self) -> Outcome<Child> {
        fs::create_dir_all(lab::kit::bundle_root())?;
        let log = File::options().create(true).append(true).open(self.log())?;
        let program = env!("CARGO_BIN_EXE_etcd-operator");
        let mut command = match &self.netns {
            None => Command::new(program),
            Some(netns) => {
                let mut command = Command::new("nsenter");
                command.args([&format!("--net=/run/netns/{netns}"), program]);
                command
            }
        };
        let child = command
            .arg(format!("--listen-addr={}", self.listen))
            .args(&self.arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("ETCD_OPERATOR_DIES_AFTER", &self.dies_after)
            .env("MY_POD_NAMESPACE", &self.namespace)
            .env("MY_POD_NAME", &self.name)
            // As in a pod: the process that follows need not wait for the lease of the one before.
            .env("MY_POD_UID", format!("{}-{}", self.namespace, self.name))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(child)
    }
}
