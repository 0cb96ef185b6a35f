//! The operator under test, as a process of this machine: quick to start, and to kill without mercy.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

use lab::kit::TestNamespace;

use super::Outcome;

/// Looks after the test's namespace; ends with the test.
pub struct Operator {
    child: Child,
    arguments: Vec<String>,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Operator {
    pub fn start(test: &TestNamespace<'_>) -> Outcome<Self> {
        Self::start_with(test, &[])
    }

    pub fn start_with(test: &TestNamespace<'_>, arguments: &[&str]) -> Outcome<Self> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (kubeconfig, namespace) = (test.lab.kubeconfig(), test.name.clone());
        let child = spawn(&arguments, &kubeconfig, &namespace)?;
        Ok(Self { child, arguments, kubeconfig, namespace })
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
        self.child = spawn(&self.arguments, &self.kubeconfig, &self.namespace)?;
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Its log is kept beside the bundles of failed tests, under the namespace's name.
fn spawn(arguments: &[String], kubeconfig: &PathBuf, namespace: &str) -> Outcome<Child> {
    let folder = lab::kit::bundle_root();
    fs::create_dir_all(&folder)?;
    let log =
        File::options().create(true).append(true).open(folder.join(format!("{namespace}.operator.log")))?;
    let child = Command::new(env!("CARGO_BIN_EXE_etcd-operator"))
        .args(["--listen-addr=127.0.0.1:0"])
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("MY_POD_NAMESPACE", namespace)
        .env("MY_POD_NAME", "operator-under-test")
        // As in a pod: the process that follows need not wait for the lease of the one before.
        .env("MY_POD_UID", namespace)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    Ok(child)
}
