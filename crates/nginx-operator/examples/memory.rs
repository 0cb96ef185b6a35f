//! Measures the operator's memory and speed with 1 and with 1,000 instances on an API-only lab:
//! `cargo run -p nginx-operator --example memory -- target/release/nginx-operator`.

use std::error::Error;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::nginx::conditions::READY;
use api::nginx::crd::{Stage, crd};
use api::nginx::v1alpha1::{NginxOperator, NginxOperatorSpec};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use lab::{Lab, Options};

/// How many instances, and how much memory the operator may take with them.
const BUDGETS: [(usize, f64); 2] = [(1, 15.0), (1000, 30.0)];
const LIMIT: Duration = Duration::from_mins(15);
/// Long enough for a burst's memory to be given back, if it ever is.
const REST: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let binary = std::env::args().nth(1).ok_or("name the operator's binary")?;
    let lab = Lab::up(&Options { controllers: true, ..Options::api_only("nginxbench") }).await?;
    let done = measure(&lab, &binary).await;
    lab::down("nginxbench")?;
    done
}

async fn measure(lab: &Lab, binary: &str) -> Result<(), Box<dyn Error>> {
    let client = lab.client().await?;
    let namespace: Namespace =
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "bench" } }))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = crd(Stage::First, "bench");
    crds.patch(api::nginx::CRD_NAME, &PatchParams::apply("bench"), &Patch::Apply(&definition)).await?;
    let operator = Running(
        Command::new(binary)
            .args(["run", "--home=bench", "--listen-addr=127.0.0.1:0", "--webhook-addr=127.0.0.1:0"])
            .env("KUBECONFIG", lab.kubeconfig())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let (mut made, mut within) = (0, true);
    println!("{:<42} {:>8} {:>8}", "MEASURE", "SEEN", "LIMIT");
    for (count, limit) in BUDGETS {
        let began = Instant::now();
        make(&client, made..count).await?;
        made = count;
        all_ready(&client, count).await?;
        let took = began.elapsed();
        tokio::time::sleep(REST).await;
        let seen = operator.resident_mib()?;
        within &= seen <= limit;
        println!(
            "{:<42} {seen:>4.1} MiB {limit:>4} MiB",
            format!("nginx-operator, {count} instances: memory")
        );
        println!("{:<42} {:>7.1}s", format!("nginx-operator, {count} instances: ready"), took.as_secs_f64());
    }
    if within { Ok(()) } else { Err("over budget".into()) }
}

/// The operator's process; it does not outlive us.
struct Running(Child);

impl Running {
    fn resident_mib(&self) -> Result<f64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill() {
            eprintln!("the operator could not be ended: {error}");
        }
    }
}

async fn make(client: &Client, numbers: std::ops::Range<usize>) -> Result<(), Box<dyn Error>> {
    let instances: Api<NginxOperator> = Api::namespaced(client.clone(), "bench");
    let create = |number: usize| {
        let instances = instances.clone();
        async move {
            let spec = NginxOperatorSpec { replicas: 0, ..NginxOperatorSpec::default() };
            let instance = NginxOperator::new(&format!("web-{number}"), spec);
            // The CRD may be a moment old.
            let began = Instant::now();
            loop {
                match instances.create(&PostParams::default(), &instance).await {
                    Err(kube::Error::Api(status)) if status.code == 404 && began.elapsed() < LIMIT => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    other => return other.map(drop),
                }
            }
        }
    };
    stream::iter(numbers.map(create)).buffer_unordered(8).try_collect::<Vec<_>>().await?;
    Ok(())
}

async fn all_ready(client: &Client, count: usize) -> Result<(), Box<dyn Error>> {
    let instances: Api<NginxOperator> = Api::namespaced(client.clone(), "bench");
    let began = Instant::now();
    loop {
        let list = instances.list(&ListParams::default()).await?;
        let is_ready = |instance: &&NginxOperator| {
            let conditions = instance.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|condition| condition.type_ == READY && condition.status == "True")
        };
        let ready = list.items.iter().filter(is_ready).count();
        if ready == count {
            return Ok(());
        }
        if began.elapsed() > LIMIT {
            return Err(format!("{ready} of {count} instances are ready after {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
