//! An operator process, outside the cluster, for one namespace.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use lab::kit::TestNamespace;
use tokio::process::{Child, Command};

use super::Result;

/// Ends with its owner.
pub struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    pub fn start(test: &TestNamespace<'_>) -> Result<Self> {
        Self::start_with(test, &[])
    }

    /// Logs go to a file of the namespace's name, one after the other.
    pub fn start_with(test: &TestNamespace<'_>, arguments: &[&str]) -> Result<Self> {
        let folder = std::env::temp_dir().join("etcd-operator-tests");
        std::fs::create_dir_all(&folder)?;
        let log = folder.join(format!("{}.log", test.name));
        let file = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(env!("CARGO_BIN_EXE_etcd-operator"))
            .args(["--listen-addr=127.0.0.1:0", "--log-level=info,kube_runtime=warn,etcd_operator=debug"])
            .args(arguments)
            .env("KUBECONFIG", test.lab.kubeconfig())
            .env("MY_POD_NAME", "test-operator")
            .env("MY_POD_NAMESPACE", &test.name)
            // One operator runs at a time: the next need not wait for the lease of the one before.
            .env("MY_POD_UID", &test.name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()?;
        eprintln!("{}: operator {:?} logs to {}", test.name, child.id(), log.display());
        Ok(Self { child, log })
    }

    /// At once, as a node that loses power does it.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }
}
