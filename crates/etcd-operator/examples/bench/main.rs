//! What the operator costs and how fast it is, beside the same work done with bare pods in the same run.
//!
//! `make bench` runs it on a lab of its own with a release build, prints a table and JSON, and fails where a budget is
//! missed. Meant for a machine that has nothing else to do.

mod audit;
mod bare;
mod figures;
mod health;
mod operator;
mod quiet;
mod restore;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use api::v1beta2::EtcdCluster;
use clap::Parser;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use lab::kit::{TestNamespace, wait_for};
use lab::{Lab, Options};
use serde_json::json;

use audit::Audit;
use figures::{Figure, Figures, Unit, median};
use health::{healthy, pods_of};
use operator::Operator;

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// For whatever a slow machine does in seconds and a busy one in minutes.
const LIMIT: Duration = Duration::from_mins(5);
const OLD: &str = "3.5.16";
const NEW: &str = "3.6.16";

#[derive(Parser)]
struct Cli {
    /// The operator's program, built with --release.
    #[arg(long)]
    operator: PathBuf,
    /// The lab to measure on; brought up if it is not there.
    #[arg(long, default_value = "bench")]
    lab: String,
    /// How often each time is taken; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// How many minutes nothing happens while requests are counted.
    #[arg(long, default_value_t = 10)]
    quiet_minutes: u64,
    /// How long memory may settle before it is read.
    #[arg(long, default_value_t = 60)]
    settle_seconds: u64,
    /// One run, one quiet minute, memory after ten seconds: to see that it works, not what it measures.
    #[arg(long)]
    quick: bool,
    /// Only these; all if none is named.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Where the JSON goes.
    #[arg(long, default_value = "target/bench.json")]
    json: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Creation and healing, and what they ask of the API server.
    Times,
    Memory,
    Quiet,
    /// From an EtcdRestore to the first write.
    Restore,
}

impl Cli {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut cli = Cli::parse();
    if cli.quick {
        (cli.runs, cli.quiet_minutes, cli.settle_seconds) = (1, 1, 10);
    }
    match run(&cli).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("a budget is missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli) -> Outcome<bool> {
    let lab = Lab::up(&Options { quiet: true, ..Options::full(&cli.lab) }).await?;
    let test = TestNamespace::new(&lab, "bench").await?;
    let mut figures = Figures::default();
    let done = test.run(async |test| measure(cli, test, &mut figures).await).await;
    print!("{figures}");
    figures.write(&cli.json)?;
    done?;
    Ok(figures.all_met())
}

async fn measure(cli: &Cli, test: &TestNamespace<'_>, figures: &mut Figures) -> Outcome {
    let mut operator = Operator::start(&cli.operator, test)?;
    if cli.wants(Part::Times) {
        times(cli, test, figures).await?;
    }
    if cli.wants(Part::Memory) {
        memory(cli, test, &mut operator, figures).await?;
    }
    if cli.wants(Part::Quiet) {
        let requests = quiet::requests(test, Duration::from_mins(cli.quiet_minutes)).await?;
        let name = format!("requests in {} quiet minutes, 20 clusters", cli.quiet_minutes);
        figures.add(Figure::of(name, vec![requests], Unit::Requests, 0.0, "0"));
    }
    if cli.wants(Part::Restore) {
        restore::prepare(cli, test, &mut operator).await?;
        for version in [OLD, NEW] {
            let mut runs = Vec::new();
            for _ in 0..cli.runs {
                runs.push(restore::first_write(cli, test, version).await?.as_secs_f64());
            }
            figures.add(Figure::bare(format!("EtcdRestore to the first accepted write, {version}"), runs));
        }
    }
    Ok(())
}

async fn times(cli: &Cli, test: &TestNamespace<'_>, figures: &mut Figures) -> Outcome {
    // Images are on the nodes and the CRD is served before anything is timed.
    for version in [OLD, NEW] {
        bare::start(test, version, 3).await?;
        create_and_delete(test, version).await?;
    }

    let mut writes = Vec::new();
    let mut one_pod = Vec::new();
    for version in [OLD, NEW] {
        let (mut bare, mut created, mut healed) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..cli.runs {
            bare.push(bare::start(test, version, 3).await?.as_secs_f64());
            one_pod.push(bare::start(test, version, 1).await?.as_secs_f64());
            let audit = Audit::from_now(test)?;
            let cluster = create(test, "timed", version, 3).await?;
            created.push(cluster.as_secs_f64());
            ready(test, "timed").await?;
            // The last words of status come a moment after Ready.
            tokio::time::sleep(Duration::from_secs(6)).await;
            writes.push(audit.writes()?);
            healed.push(heal(test, "timed").await?.as_secs_f64());
            delete(test, "timed").await?;
        }
        let limit = median(&bare);
        let budget = if version == OLD { 3.0 * limit + 5.0 } else { 2.5 * limit };
        let rule = if version == OLD { "3.0 × bare + 5 s" } else { "2.5 × bare" };
        figures.add(Figure::bare(format!("three bare pods, {version}"), bare));
        figures.add(Figure::new(format!("CR to three healthy members, {version}"), created, budget, rule));
        let budget = 1.5 * median(&one_pod) + 2.0;
        figures.add(Figure::bare(format!("one bare pod, {version}"), std::mem::take(&mut one_pod)));
        figures.add(Figure::new(
            format!("pod deleted to three healthy, {version}"),
            healed,
            budget,
            "1.5 × one bare pod + 2 s",
        ));
    }
    figures.add(Figure::of("API writes per new cluster of three", writes, Unit::Requests, 18.0, "18"));
    Ok(())
}

/// From the CR to as many members that are healthy voters.
async fn create(test: &TestNamespace<'_>, name: &str, version: &str, size: usize) -> Outcome<Duration> {
    let object: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": name}, "spec": {"size": size, "version": version},
    }))?;
    let api = test.api::<EtcdCluster>();
    lab::wait::until("the EtcdCluster CRD", LIMIT, async || match api.get_opt(name).await {
        Err(kube::Error::Api(refused)) if refused.code == 404 => Ok(Err(refused.message)),
        other => Ok(Ok(other.map(drop)?)),
    })
    .await?;
    let began = Instant::now();
    api.create(&PostParams::default(), &object).await?;
    healthy(test, &pods_of(name), size, None).await?;
    Ok(began.elapsed())
}

async fn ready(test: &TestNamespace<'_>, name: &str) -> Outcome {
    let is_ready = |cluster: &EtcdCluster| {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        conditions
            .into_iter()
            .any(|c| c.type_ == "Ready" && c.status == api::conditions::ConditionStatus::True)
    };
    wait_for(&test.api::<EtcdCluster>(), name, LIMIT, "to be Ready", is_ready).await?;
    Ok(())
}

/// From the delete of one member's pod to three healthy members, that one not among them.
async fn heal(test: &TestNamespace<'_>, name: &str) -> Outcome<Duration> {
    let pods = health::list(test, &pods_of(name)).await?;
    let victim = pods.first().map(ResourceExt::name_any).ok_or("the cluster has no pods")?;
    let began = Instant::now();
    test.api::<k8s_openapi::api::core::v1::Pod>().delete(&victim, &DeleteParams::default()).await?;
    healthy(test, &pods_of(name), pods.len(), Some(&victim)).await?;
    Ok(began.elapsed())
}

/// Until nothing of it is left, so that the next run starts from nothing.
async fn delete(test: &TestNamespace<'_>, name: &str) -> Outcome {
    test.api::<EtcdCluster>().delete(name, &DeleteParams::default()).await?;
    health::none(test, &pods_of(name)).await
}

async fn create_and_delete(test: &TestNamespace<'_>, version: &str) -> Outcome {
    create(test, "warm", version, 3).await?;
    delete(test, "warm").await
}

/// Of the operator with one cluster, alone and beside a namespace full of other people's objects.
async fn memory(
    cli: &Cli,
    test: &TestNamespace<'_>,
    operator: &mut Operator,
    figures: &mut Figures,
) -> Outcome {
    let settle = Duration::from_secs(cli.settle_seconds);
    create(test, "one", NEW, 3).await?;
    ready(test, "one").await?;
    operator.restart()?;
    tokio::time::sleep(settle).await;
    let alone = operator.resident_mib()?;
    quiet::clutter(test).await?;
    // A cache of them would be filled at the start, a watch of them before.
    let watching = operator.resident_mib()?;
    operator.restart()?;
    tokio::time::sleep(settle).await;
    let beside = watching.max(operator.resident_mib()?);
    figures.add(Figure::of("operator's memory, one cluster", vec![alone], Unit::Mebibytes, 20.0, "20 MiB"));
    figures.add(Figure::of(
        "the same beside 600 unrelated objects of 500 KB",
        vec![beside],
        Unit::Mebibytes,
        alone + 1.0,
        "1 MiB more",
    ));
    delete(test, "one").await
}
