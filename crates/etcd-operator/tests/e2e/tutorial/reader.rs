//! The reader of the book: a shell in a copy of the examples, with kubectl on the path and a namespace to work in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use lab::kit::{TestNamespace, wait_for};
use lab::programs::Program;
use lab::wait::until;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::support::{LIMIT, Outcome};

/// No command of the book takes longer, the last one least of all.
const PATIENCE: Duration = Duration::from_mins(2);

pub struct Reader<'a> {
    pub test: &'a TestNamespace<'a>,
    desk: TempDir,
    path: String,
}

impl<'a> Reader<'a> {
    /// Works on copies, since the book edits its files.
    pub async fn new(test: &'a TestNamespace<'a>) -> Outcome<Self> {
        let desk = tempfile::tempdir()?;
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../example");
        let kubectl = test.lab.programs.path(Program::Kubectl)?;
        let tools = kubectl.parent().ok_or("kubectl lies nowhere")?.display().to_string();
        let path = format!("{tools}:{}", std::env::var("PATH")?);
        let reader = Self { test, desk, path };
        fs::copy(test.lab.kubeconfig(), reader.kubeconfig())?;
        reader.types(&format!("cp -r {} example", examples.display())).await?;
        reader.types(&format!("kubectl config set-context --current --namespace={}", test.name)).await?;
        // "The namespace in this RoleBinding must be the one that you work in."
        reader.edits(
            "etcd-operator-rolebinding.yaml",
            "namespace: default",
            &format!("namespace: {}", test.name),
        )?;
        Ok(reader)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.desk.path().join("kubeconfig")
    }

    fn shell(&self, folder: &str, line: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-o", "pipefail", "-c", line])
            .current_dir(self.desk.path().join(folder))
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.kubeconfig())
            .env("TERM", "dumb")
            .kill_on_drop(true);
        shell
    }

    /// A line typed in the folder of the notes, which name `example/…`; gives all that was printed.
    pub async fn types(&self, line: &str) -> Outcome<String> {
        self.typed("", line).await
    }

    /// A line typed in the book's folder.
    pub async fn reads(&self, line: &str) -> Outcome<String> {
        self.typed("example/ch03", line).await
    }

    async fn typed(&self, folder: &str, line: &str) -> Outcome<String> {
        let (output, text) = self.ends(self.shell(folder, line), line, "").await?;
        if output.status.success() { Ok(text) } else { Err(format!("$ {line}\n{text}").into()) }
    }

    /// Waits until objects of that kind can be made. `kubectl wait` gives up on a definition without a status.
    pub async fn served(&self, crd: &str) -> Outcome {
        let api: Api<CustomResourceDefinition> = Api::all(self.test.client.clone());
        wait_for(&api, crd, LIMIT, "to be served", |crd| {
            let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_deref());
            conditions.unwrap_or_default().iter().any(|c| c.type_ == "Established" && c.status == "True")
        })
        .await?;
        Ok(())
    }

    /// A line that must fail, and what it said.
    pub async fn reads_refused(&self, line: &str) -> Outcome<String> {
        let (output, text) = self.ends(self.shell("example/ch03", line), line, "").await?;
        if output.status.success() {
            Err(format!("$ {line}\nwas not refused: {text}").into())
        } else {
            Ok(text)
        }
    }

    /// A command with a terminal, and what is typed at its prompt.
    pub async fn at_prompt(&self, command: &str, typed: &[&str]) -> Outcome<String> {
        let line = format!("script --quiet --return --command '{command}' /dev/null");
        let keys = typed.join("\n") + "\n";
        let (output, text) = self.ends(self.shell("", &line), command, &keys).await?;
        let text = text.replace('\r', "");
        if output.status.success() { Ok(text) } else { Err(format!("$ {command}\n{text}").into()) }
    }

    async fn ends(&self, mut shell: Command, line: &str, keys: &str) -> Outcome<(Output, String)> {
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(keys.as_bytes()).await?;
        }
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output());
        let output = output.await.map_err(|_| format!("$ {line}\nhangs"))??;
        let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        Ok((output, text.concat()))
    }

    /// Changes a file of the book, as the book says.
    pub fn edits(&self, file: &str, old: &str, new: &str) -> Outcome {
        let text = fs::read_to_string(self.file(file))?;
        if !text.contains(old) {
            return Err(format!("{file} has no {old}").into());
        }
        self.writes(file, &text.replace(old, new))
    }

    pub fn writes(&self, file: &str, text: &str) -> Outcome {
        Ok(fs::write(self.file(file), text)?)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.desk.path().join("example/ch03").join(name)
    }

    /// Types the line again and again until it shows what is waited for.
    pub async fn sees(&self, line: &str, shown: impl Fn(&str) -> bool) -> Outcome<String> {
        let seen = until(line, LIMIT, async || {
            let text = self.reads(line).await.unwrap_or_else(|error| error.to_string());
            Ok(if shown(&text) { Ok(text) } else { Err(text) })
        });
        Ok(seen.await?)
    }

    /// `kubectl get pods -w` in another window.
    pub fn watches_pods(&self) -> Outcome<Window> {
        let file = self.desk.path().join("watched");
        let out = fs::File::create(&file)?;
        let child = self.shell("", "exec kubectl get pods -w").stdout(out).stdin(Stdio::null()).spawn()?;
        Ok(Window { child, file })
    }
}

/// A command that goes on until Ctrl-C.
pub struct Window {
    child: Child,
    file: PathBuf,
}

impl Window {
    /// Ends it, and gives what it printed: for each member in the order of appearance, the states it went through.
    pub async fn closed(mut self) -> Outcome<Vec<(String, Vec<String>)>> {
        self.child.kill().await?;
        let mut pods: Vec<(String, Vec<String>)> = Vec::new();
        for line in fs::read_to_string(&self.file)?.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, ready, status, ..] = words[..] else { continue };
            if !name.starts_with("example-etcd-cluster-") {
                continue;
            }
            let state = format!("{ready} {status}");
            if let Some((_, seen)) = pods.iter_mut().find(|(known, _)| known == name) {
                seen.push(state);
                continue;
            }
            // Whoever came before runs by now.
            if let Some((before, seen)) = pods.last()
                && !seen.iter().any(|state| state.ends_with("Running"))
            {
                return Err(format!("{name} came before {before} ran").into());
            }
            pods.push((name.to_owned(), vec![state]));
        }
        Ok(pods)
    }
}
