//! A user's shell beside a copy of what we ship, with kubectl and helm on the path.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lab::kit::TestNamespace;
use lab::programs::Program;
use lab::wait::until;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{LIMIT, Outcome};

/// No command takes longer: the longest wait for a rollout or a restore.
const PATIENCE: Duration = Duration::from_mins(5);

pub struct Desk<'a> {
    test: &'a TestNamespace<'a>,
    folder: TempDir,
    path: String,
    /// What looked like ours before anything was installed.
    before: BTreeSet<String>,
}

/// Lines of a page's blocks.
fn fenced(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.flat_map(|block| block.lines().skip(1)).filter(|line| !line.is_empty())
}

impl<'a> Desk<'a> {
    /// The operator's image can be pulled, and nothing of it is installed.
    pub async fn new(test: &'a TestNamespace<'a>) -> Outcome<Self> {
        test.lab.publish(Path::new(env!("CARGO_BIN_EXE_etcd-operator")))?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let mut path = std::env::var("PATH")?;
        for program in [Program::Kubectl, Program::Helm] {
            let file = test.lab.programs.path(program)?;
            let folder = file.parent().ok_or("a program lies nowhere")?.display().to_string();
            path = format!("{folder}:{path}");
        }
        let mut desk = Self { test, folder: tempfile::tempdir()?, path, before: BTreeSet::new() };
        for ours in ["deploy", "charts", "docs/install.md", "docs/runbooks"] {
            desk.types(&format!("cp -r {} .", root.join(ours).display())).await?;
        }
        desk.types("kubectl delete --ignore-not-found -f deploy/etcd-operator-cluster-wide.yaml").await?;
        desk.before = desk.inventory().await?;
        Ok(desk)
    }

    /// Gives what was printed.
    pub async fn types(&self, line: &str) -> Outcome<String> {
        let (done, said) = self.run(line).await?;
        if done { Ok(said) } else { Err(format!("$ {line}\n{said}").into()) }
    }

    /// A line that must fail.
    pub async fn refused(&self, line: &str) -> Outcome<String> {
        let (done, said) = self.run(line).await?;
        if done { Err(format!("$ {line}\nwas not refused: {said}").into()) } else { Ok(said) }
    }

    async fn run(&self, line: &str) -> Outcome<(bool, String)> {
        let mut shell = Command::new("bash");
        shell
            .args(["-o", "pipefail", "-c", line])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.test.lab.kubeconfig())
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, shell.output())
            .await
            .map_err(|_| format!("$ {line}\nhangs"))??;
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((output.status.success(), said.concat()))
    }

    /// The operator is up in this namespace.
    pub async fn runs(&self, namespace: &str) -> Outcome {
        self.types(&format!("kubectl -n {namespace} rollout status deployment/etcd-operator --timeout=180s"))
            .await?;
        Ok(())
    }

    fn page(&self) -> Outcome<String> {
        Ok(fs::read_to_string(self.folder.path().join("install.md"))?)
    }

    /// A command of the install page for the test's namespace, with what a reader adds to it.
    pub async fn reads(&self, line: &str, added: &str) -> Outcome<String> {
        if !self.page()?.contains(line) {
            return Err(format!("the page does not say: {line}").into());
        }
        self.types(&format!(
            "{} {added}",
            line.replace("namespace: mine", &format!("namespace: {}", self.test.name))
        ))
        .await
    }

    /// What the install page has under a heading, for the test's namespace.
    pub async fn follows(&self, heading: &str) -> Outcome {
        let page = self.page()?;
        let (_, part) =
            page.split_once(&format!("### {heading}\n")).ok_or(format!("no {heading} on the page"))?;
        let part = part.split("\n### ").next().unwrap_or(part);
        for line in fenced(part) {
            self.types(&line.replace(" default", &format!(" {}", self.test.name))).await?;
        }
        Ok(())
    }

    /// What an operator has for itself, as its name or its namespace tells.
    async fn inventory(&self) -> Outcome<BTreeSet<String>> {
        let kinds = "deployments,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,leases";
        let words = r#"{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{"\n"}{end}"#;
        let shown =
            self.types(&format!("kubectl get --all-namespaces {kinds} -o jsonpath='{words}'")).await?;
        Ok(shown.lines().filter(|line| line.contains("etcd-")).map(str::to_owned).collect())
    }

    /// What was installed is gone: at once, but for Leases, which go with their Deployment.
    pub async fn left_nothing(&self) -> Outcome {
        until("nothing to be left of the operator", LIMIT, async || {
            let there = self.inventory().await.map_err(|error| lab::Error::other("inventory", error))?;
            let left: Vec<_> = there.difference(&self.before).collect();
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
        })
        .await?;
        Ok(())
    }

    /// What Kubernetes' own roles give on our kinds, once the API server knows who has them.
    pub async fn users_may(&self) -> Outcome {
        let namespace = &self.test.name;
        for role in ["view", "edit", "admin"] {
            let bind = format!("create rolebinding {role} --clusterrole={role} --user={role}");
            self.types(&format!("kubectl -n {namespace} {bind}")).await?;
        }
        let answers = [
            ("view", "get", "yes"),
            ("view", "create", "no"),
            ("edit", "create", "yes"),
            ("admin", "delete", "yes"),
        ];
        for (user, verb, answer) in answers {
            for kind in ["etcdclusters", "etcdbackups", "etcdrestores"] {
                let question = format!("kubectl -n {namespace} auth can-i {verb} {kind} --as={user}");
                until(&format!("{answer} to {question}"), LIMIT, async || {
                    let asked = self.run(&question).await;
                    let (_, said) = asked.map_err(|error| lab::Error::other("kubectl", error))?;
                    Ok(if said.starts_with(answer) { Ok(()) } else { Err(said) })
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Types every command of the runbooks, with the names that they leave open. What looks for trouble may find none.
    pub async fn follows_the_runbooks(&self, cluster: &str, backup: &str) -> Outcome {
        let mut commands = 0;
        for page in self.folder.path().join("runbooks").read_dir()? {
            let text = fs::read_to_string(page?.path())?;
            for line in fenced(&text) {
                let line = line
                    .replace("OPERATOR-NAMESPACE", "etcd-operator")
                    .replace("NAMESPACE", &self.test.name)
                    .replace("CLUSTER", cluster)
                    .replace("BACKUP", backup);
                let (done, said) = self.run(&line).await?;
                let nothing_found = said.is_empty() || said.contains("previous terminated container");
                if !done && !nothing_found {
                    return Err(format!("$ {line}\n{said}").into());
                }
                commands += 1;
            }
        }
        if commands == 0 { Err("the runbooks have no commands".into()) } else { Ok(()) }
    }

    /// An object of ours in the test's namespace.
    pub async fn creates(&self, kind: &str, name: &str, spec: Value) -> Outcome {
        let object = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": kind,
            "metadata": {"name": name, "namespace": self.test.name}, "spec": spec,
        });
        let file = self.folder.path().join("object.json");
        fs::write(&file, object.to_string())?;
        self.types(&format!("kubectl create -f {}", file.display())).await?;
        Ok(())
    }

    pub async fn waits(&self, until: &str, object: &str) -> Outcome {
        self.types(&format!("kubectl -n {} wait --for='{until}' {object} --timeout=240s", self.test.name))
            .await?;
        Ok(())
    }
}
