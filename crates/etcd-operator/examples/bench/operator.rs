//! The operator as a process of this machine, as it would run in a pod.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use lab::kit::TestNamespace;

use crate::Outcome;

pub struct Operator {
    child: Child,
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Operator {
    pub fn start(program: &Path, test: &TestNamespace<'_>) -> Outcome<Self> {
        let (kubeconfig, namespace) = (test.lab.kubeconfig(), test.name.clone());
        let child = spawn(program, &kubeconfig, &namespace, &[])?;
        Ok(Self { child, program: program.to_owned(), kubeconfig, namespace })
    }

    pub fn restart(&mut self) -> Outcome {
        self.restart_with(&[])
    }

    pub fn restart_with(&mut self, arguments: &[&str]) -> Outcome {
        self.end()?;
        self.child = spawn(&self.program, &self.kubeconfig, &self.namespace, arguments)?;
        Ok(())
    }

    fn end(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// `VmRSS`.
    pub fn resident_mib(&self) -> Outcome<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 = line.and_then(|l| l.split_whitespace().next()).ok_or("no VmRSS")?.parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("the operator could not be ended: {error}");
        }
    }
}

fn spawn(program: &Path, kubeconfig: &Path, namespace: &str, arguments: &[&str]) -> Outcome<Child> {
    let folder = lab::kit::bundle_root();
    fs::create_dir_all(&folder)?;
    let log = folder.join(format!("{namespace}.operator.log"));
    let log = File::options().create(true).append(true).open(log)?;
    Ok(Command::new(program)
        .arg("--listen-addr=127.0.0.1:0")
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("MY_POD_NAMESPACE", namespace)
        .env("MY_POD_NAME", "operator-under-test")
        .env("MY_POD_UID", namespace)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?)
}
