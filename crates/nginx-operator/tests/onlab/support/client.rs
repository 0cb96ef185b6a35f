//! A client that asks a Service again and again, from every node in turn, and counts.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Service;
use lab::kit::TestNamespace;
use lab::wait::until;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{LIMIT, Outcome};

pub struct Client {
    name: String,
    counts: Arc<Mutex<Counts>>,
    /// Ends with us.
    _process: Child,
}

#[derive(Clone, Default)]
struct Counts {
    answers: usize,
    failures: Vec<String>,
}

impl Client {
    /// Asks the Service on this port from now on, each time over a new connection, and gives once it has an answer.
    pub async fn start(test: &TestNamespace<'_>, service: &str, port: u16) -> Outcome<Self> {
        let found: Service = test.api::<Service>().get(service).await?;
        let ip = found.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
        let netns =
            |node| Path::new("/run/netns").join(test.lab.layout.node_netns(node)).display().to_string();
        let nodes = (1..=test.lab.layout.nodes).map(netns).collect::<Vec<_>>().join(" ");
        let script = format!(
            "ask() {{ nsenter --net=$1 curl -sSf -m 5 -o /dev/null http://{ip}:{port}/ 2>&1; }}
             for node in {nodes}; do until ask $node > /dev/null; do sleep 0.1; done; done
             while true; do for node in {nodes}; do sleep 0.05; ask $node && echo OK || echo FAILED from $node; done; done"
        );
        let mut process =
            Command::new("bash").args(["-c", &script]).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let counts = Arc::new(Mutex::new(Counts::default()));
        let mut lines = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
        let counted = counts.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut counts = counted.lock().unwrap();
                if line == "OK" { counts.answers += 1 } else { counts.failures.push(line) }
            }
        });
        let client = Self { name: format!("client of {service}:{port}"), counts, _process: process };
        client.answers_more(1).await?;
        Ok(client)
    }

    async fn answers_more(&self, more: usize) -> Outcome {
        let enough = self.counts().answers + more;
        until(&self.name, LIMIT, async || {
            let answers = self.counts().answers;
            Ok(if answers >= enough { Ok(()) } else { Err(format!("{answers} answers")) })
        })
        .await?;
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.counts.lock().unwrap().clone()
    }

    /// No question since the first answer was left without one.
    pub async fn saw_no_failure(&self) -> Outcome {
        self.answers_more(5).await?;
        let Counts { answers, failures } = self.counts();
        println!("{}: {answers} answers, {} failures", self.name, failures.len());
        assert!(failures.is_empty(), "{} saw {failures:?} and {answers} answers", self.name);
        Ok(())
    }
}
