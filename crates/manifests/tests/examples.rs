//! Every manifest that we show is one that a real API server takes: files, and what stands in the pages.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::programs::Program;
use lab::{Lab, Options};
use manifests::olm::etcd;

/// What users replace in the roles, and with what.
const ROLES: [(&str, &str); 4] = [
    ("<ROLE_NAME>", "etcd-operator"),
    ("<ROLE_BINDING_NAME>", "etcd-operator"),
    ("<SERVICE_ACCOUNT>", "default"),
    ("<NAMESPACE>", "default"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![root().join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

struct Server(Lab);

impl Server {
    /// What kubectl says, or complains of.
    fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(self.0.programs.path(Program::Kubectl).unwrap());
        kubectl.args(arguments).arg("--kubeconfig").arg(self.0.kubeconfig());
        kubectl.arg("--cache-dir").arg(self.0.layout.root.join("kubectl"));
        let streams = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stderr)) }
    }

    fn takes(&self, what: &str, text: &str) {
        let filled = etcd::FILLED_IN
            .iter()
            .chain(&ROLES)
            .fold(text.to_owned(), |text, (gap, word)| text.replace(gap, word));
        let said = self.kubectl(&["apply", "--dry-run=server", "-f", "-"], &filled);
        assert!(said.is_ok(), "{what}: {said:?}");
    }

    fn install(&self, crds: &[&str]) {
        for crd in crds {
            self.kubectl(&["apply", "-f", root().join(crd).to_str().unwrap()], "").unwrap();
        }
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"], "").unwrap();
    }
}

#[tokio::test]
async fn every_manifest_is_taken_by_an_api_server() {
    let name = format!("{}docs", lab::kit::shared_name());
    let server = Server(Lab::up(&Options { quiet: true, ..Options::api_only(&name) }).await.unwrap());
    // Where the operator for all namespaces lives: a dry run makes none.
    let namespace = root().join("deploy/kustomize/overlays/cluster-wide/namespace.yaml");
    server.kubectl(&["apply", "-f", namespace.to_str().unwrap()], "").unwrap();

    let (first, others): (Vec<_>, Vec<_>) = files("example", "yaml")
        .into_iter()
        .partition(|path| path.parent().unwrap().ends_with("nginx/v1alpha1"));
    let ours =
        ["deploy/crds/etcdclusters.yaml", "deploy/crds/etcdbackups.yaml", "deploy/crds/etcdrestores.yaml"];
    server.install(&[&ours[..], &["example/nginx/v1alpha1/crd.yaml"]].concat());
    let mut taken = 0;
    let mut take = |path: &Path| {
        server.takes(&path.display().to_string(), &fs::read_to_string(path).unwrap());
        taken += 1;
    };
    first.iter().for_each(|path| take(path));
    server.install(&["example/nginx/crd.yaml"]);
    others.iter().for_each(|path| take(path));
    let not_ours = |path: &Path| {
        path.ends_with("kustomization.yaml") || path.starts_with(root().join("deploy/prometheus"))
    };
    files("deploy", "yaml").iter().filter(|path| !not_ours(path)).for_each(|path| take(path));
    assert!(taken > 20, "{taken}");
    for example in etcd::releases(&root()).unwrap().iter().flat_map(|release| &release.examples) {
        server.takes("a bundle's example", &example.to_string());
    }

    let mut pages = files("docs", "md");
    pages.extend(["README.md", "README.zh-CN.md"].map(|page| root().join(page)));
    let mut blocks = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            server.takes(&page.display().to_string(), block);
            blocks += 1;
        }
    }
    assert!(blocks >= 2, "{blocks}");
}
