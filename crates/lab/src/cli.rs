//! What people type.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};

use lab::control::processes;
use lab::images::{self, Listed, Reference};
use lab::layout::{BUCKET, Layout};
use lab::programs::{EtcdVersion, Program};
use lab::status::Row;
use lab::{Error, Lab, Options, Result, state};

#[derive(Parser)]
#[command(version, about = "Real Kubernetes on one machine, from package registries alone", after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Verb,
}

const EXAMPLES: &str = "\
Examples:
  lab up                             three nodes, DNS, volumes, a registry, an S3 server
  export KUBECONFIG=$(lab kubeconfig)
  lab node cut node2                 node2 hears nobody any more
  lab node heal node2
  lab up --name two --nodes 1        a second lab beside the first
  lab down                           nothing is left";

/// Which lab is meant.
#[derive(Args)]
struct Which {
    /// Name of the lab: 1 to 20 lower-case letters and digits
    #[arg(long, env = "LAB_NAME", default_value = "lab")]
    name: String,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring a lab up; run again, repair what is missing
    Up(Up),
    /// Remove a lab: processes, namespaces, mounts, cgroups, links, state
    Down {
        #[command(flatten)]
        which: Which,
    },
    /// Show every component with its process and health
    Status {
        #[command(flatten)]
        which: Which,
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
    },
    /// List the labs of this machine
    List,
    /// Print where the administrator's kubeconfig is
    Kubeconfig {
        #[command(flatten)]
        which: Which,
        /// Print the file itself
        #[arg(long)]
        raw: bool,
    },
    /// Print the folder with AWS `credentials` and `config` for the lab's S3 server
    AwsDir {
        #[command(flatten)]
        which: Which,
    },
    /// Show the log of a component (`lab status` has their names)
    Logs {
        component: String,
        /// Go on as it grows
        #[arg(short)]
        follow: bool,
        #[command(flatten)]
        which: Which,
    },
    /// Open a shell with KUBECONFIG set, and kubectl and etcdctl on PATH
    Shell {
        #[command(flatten)]
        which: Which,
        /// Run this command instead of an interactive shell
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Push an image archive (docker save, OCI layout) into the lab's registry
    Load {
        archive: PathBuf,
        #[command(flatten)]
        which: Which,
    },
    /// List the images in the lab's registry
    Images {
        #[command(flatten)]
        which: Which,
    },
    /// Break a node, and mend it
    Node {
        #[arg(value_enum)]
        action: NodeAction,
        node: String,
        #[command(flatten)]
        which: Which,
    },
    /// Put a program, built by cargo, into the lab's registry: ours as the images that their manifests name, others as NAME:latest
    Publish {
        /// Path of the binary; its file name says which image it becomes
        binary: PathBuf,
        #[command(flatten)]
        which: Which,
    },
    /// Write the image of a program into a file, in the OCI layout: the same program gives the same file
    Export {
        /// Path of the binary; its file name says which image it becomes
        binary: PathBuf,
        archive: PathBuf,
        /// The image's name, with its tag
        #[arg(long)]
        name: Reference,
    },
}

#[derive(Args)]
struct Up {
    #[command(flatten)]
    which: Which,
    /// How many nodes, 1 to 9
    #[arg(long, default_value_t = 3)]
    nodes: u8,
    /// etcd and kube-apiserver alone, up in seconds: for tests of controllers
    #[arg(long, conflicts_with = "nodes")]
    api_only: bool,
    /// With --api-only: run the controller manager, too
    #[arg(long, requires = "api_only")]
    controllers: bool,
    /// Which of the address blocks to use (0 to 127); the first free one if left out
    #[arg(long)]
    subnet: Option<u8>,
    /// etcd versions whose images the registry gets, or `all`
    #[arg(long, value_delimiter = ',', default_value = "all")]
    etcd: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum NodeAction {
    /// End everything on it in good order
    Stop,
    /// Bring a stopped or killed node back
    Start,
    /// Take its power away
    Kill,
    /// Cut it off the network
    Cut,
    /// Connect it again
    Heal,
}

pub async fn run(cli: Cli) -> Result<()> {
    if matches!(cli.command, Verb::Load { .. } | Verb::Node { .. } | Verb::Publish { .. }) {
        lab::need_root()?;
    }
    match cli.command {
        Verb::Up(up) => bring_up(up).await,
        Verb::Down { which } => {
            let existed = lab::down(&which.name)?;
            eprintln!("lab '{}' {}", which.name, if existed { "is gone" } else { "was not there" });
            Ok(())
        }
        Verb::Status { which, output } => show_status(&state::existing(&which.name)?, output).await,
        Verb::List => {
            for lab in state::all()? {
                say(format_args!("{}\t{} nodes\t{}", lab.name, lab.nodes, lab.api_url()))?;
            }
            Ok(())
        }
        Verb::Kubeconfig { which, raw } => {
            let path = state::existing(&which.name)?.kubeconfig();
            if raw {
                say(read(&path)?.trim_end())?;
            } else {
                say(path.display())?;
            }
            Ok(())
        }
        Verb::AwsDir { which } => {
            say(full(&which.name)?.aws_dir().display())?;
            Ok(())
        }
        Verb::Logs { component, follow, which } => {
            show_log(&state::existing(&which.name)?, &component, follow)
        }
        Verb::Shell { which, command } => open_shell(&Lab::existing(&which.name)?, &command),
        Verb::Load { archive, which } => {
            for image in images::load(&archive, &full(&which.name)?.registry_store())? {
                say(image)?;
            }
            Ok(())
        }
        Verb::Images { which } => {
            say(image_table(&full(&which.name)?.registry_store().list()?))?;
            Ok(())
        }
        Verb::Node { action, node, which } => change_node(&Lab::existing(&which.name)?, action, &node).await,
        Verb::Publish { binary, which } => {
            full(&which.name)?;
            for name in Lab::existing(&which.name)?.publish(&binary)? {
                say(name)?;
            }
            Ok(())
        }
        Verb::Export { binary, archive, name } => {
            let mut image = images::of_binary(&binary)?;
            image.names = vec![name];
            Ok(images::export(&image, &archive)?)
        }
    }
}

/// A line on stdout; a reader that has seen enough ends us quietly.
fn say(line: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|e| Error::other("stdout", e)),
    }
}

/// A lab with nodes, or bad use: an API-only lab has neither registry nor S3.
fn full(name: &str) -> Result<Layout> {
    let layout = state::existing(name)?;
    if layout.is_full() {
        return Ok(layout);
    }
    Err(Error::Usage(format!(
        "lab '{name}' has no nodes, registry or S3 server: it was made with --api-only"
    )))
}

async fn bring_up(up: Up) -> Result<()> {
    let options = if up.api_only {
        Options { controllers: up.controllers, subnet: up.subnet, ..Options::api_only(&up.which.name) }
    } else {
        if up.nodes == 0 {
            return Err(Error::Usage("a lab has 1 to 9 nodes; for none at all, write --api-only".into()));
        }
        let etcd = etcd_versions(&up.etcd)?;
        Options { nodes: up.nodes, subnet: up.subnet, etcd, ..Options::full(&up.which.name) }
    };
    let lab = Lab::up(&options).await?;
    for program in own_programs()?.into_iter().filter(|_| lab.layout.is_full()) {
        lab.publish(&program)?;
    }
    let layout = &lab.layout;
    eprintln!("\nlab '{}' is up: {}", layout.name, layout.api_url());
    let name = if layout.name == "lab" { String::new() } else { format!(" --name {}", layout.name) };
    eprintln!("  export KUBECONFIG={}", lab.kubeconfig().display());
    if layout.is_full() {
        eprintln!("  AWS files for s3://{BUCKET}: {}", layout.aws_dir().display());
        eprintln!(
            "  registry: {} (stands in for every registry; `lab load{name} IMAGE.tar` fills it)",
            layout.registry()
        );
    }
    eprintln!(
        "  lab shell{name}      a shell with kubectl and etcdctl\n  lab status{name}     how it is\n  lab down{name}       remove it"
    );
    Ok(())
}

/// Programs of ours that were built together with this one.
fn own_programs() -> Result<Vec<PathBuf>> {
    let this = std::env::current_exe().map_err(|e| Error::other("the path of this program", e))?;
    let beside = ["etcd-operator", "nginx-operator"].map(|name| this.with_file_name(name));
    Ok(beside.into_iter().filter(|program| program.exists()).collect())
}

fn etcd_versions(texts: &[String]) -> Result<Vec<EtcdVersion>> {
    if texts.iter().any(|t| t == "all") {
        return Ok(EtcdVersion::ALL.to_vec());
    }
    texts
        .iter()
        .map(|t| t.parse().map_err(|e: lab::programs::UnknownEtcdVersion| Error::Usage(e.to_string())))
        .collect()
}

async fn show_status(layout: &Layout, output: Output) -> Result<()> {
    let rows = lab::status::status(layout).await?;
    match output {
        Output::Json => {
            say(serde_json::to_string_pretty(&rows).map_err(|e| Error::other("status", e))?)?;
        }
        Output::Table => say(table(&rows))?,
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let mut table = plain_table(&["COMPONENT", "NODE", "PID", "AGE", "HEALTH"]);
    for row in rows {
        let dash = || "-".to_owned();
        table.add_row([
            row.component.clone(),
            row.node.clone(),
            row.pid.map_or_else(dash, |p| p.to_string()),
            row.age_seconds.map_or_else(dash, age),
            row.health.as_str().to_owned(),
        ]);
    }
    table
}

/// As kubectl prints tables: no lines, and no wrapping that would break a script.
fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table
}

fn image_table(images: &[Listed]) -> Table {
    let mut table = plain_table(&["IMAGE", "TAG", "DIGEST", "MIB"]);
    for image in images {
        let digest = image.digest.chars().take(19).collect::<String>();
        table.add_row([&image.repository, &image.tag, &digest, &(image.size >> 20).to_string()]);
    }
    table
}

/// As kubectl writes ages.
fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn show_log(layout: &Layout, component: &str, follow: bool) -> Result<()> {
    let log = processes(layout).log(component);
    if !log.exists() {
        let names = processes(layout).names().join(", ");
        return Err(Error::Usage(format!(
            "lab '{}' has no component '{component}'; it has: {names}",
            layout.name
        )));
    }
    if follow {
        let error = Command::new("tail").args(["-n", "+1", "-F"]).arg(&log).exec();
        return Err(Error::other("tail", error));
    }
    say(read(&log)?.trim_end())?;
    Ok(())
}

fn read(path: &std::path::Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::other(path.display().to_string(), e))
}

fn open_shell(lab: &Lab, command: &[String]) -> Result<()> {
    let shell = vec![std::env::var("SHELL").unwrap_or_else(|_| "sh".into())];
    let argv = if command.is_empty() { &shell } else { command };
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    for program in [Program::Kubectl, Program::Etcdctl(lab::control::CONTROL_ETCD)] {
        let file = lab.programs.path(program)?;
        let mut entry = file.parent().map(|p| p.as_os_str().to_owned()).unwrap_or_default();
        entry.push(":");
        entry.push(&path);
        path = entry;
    }
    let error = Command::new(&argv[0])
        .args(&argv[1..])
        .env("PATH", path)
        .env("KUBECONFIG", lab.kubeconfig())
        .env("LAB_NAME", &lab.layout.name)
        .exec();
    Err(Error::other(argv[0].clone(), error))
}

async fn change_node(lab: &Lab, action: NodeAction, node: &str) -> Result<()> {
    match action {
        NodeAction::Stop => lab.stop_node(node),
        NodeAction::Start => {
            lab.start_node(node).await?;
            lab.node_ready(node, Duration::from_mins(2)).await
        }
        NodeAction::Kill => lab.kill_node(node),
        NodeAction::Cut => lab.cut_node(node),
        NodeAction::Heal => lab.heal_node(node),
    }
}
