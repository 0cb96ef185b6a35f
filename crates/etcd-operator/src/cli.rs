//! The command line: the flags of the coreos operator, and ours.

// Doc comments here are help texts, in which backticks would be noise.
#![allow(clippy::doc_markdown)]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use domain::HopTable;
use jiff::SignedDuration;
use runtime::logging::Format;

use crate::{backup, cluster, restore, snapshot};

/// Creates, scales, heals, upgrades, backs up and restores etcd clusters while their clients keep reading and writing.
///
/// Runs in a pod, with the rights of its service account, or anywhere with a kubeconfig (KUBECONFIG). It looks after its
/// own namespace (MY_POD_NAMESPACE, or that of the service account or kubeconfig), or all of them with --cluster-wide.
/// Several replicas may run: one works, the others stand by. Called by the name etcd-backup-operator or
/// etcd-restore-operator, it runs that controller unless told otherwise.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "etcd-operator",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Try it:\n  etcd-operator --listen-addr=127.0.0.1:8080 &\n  kubectl apply -f example/example-etcd-cluster.yaml\n  kubectl describe etcdcluster example-etcd-cluster"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Which controllers run in this process.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cluster")]
    pub controllers: Vec<Controller>,

    /// Install the CRDs of these controllers, or bring them up to date; never back. With =false, apply
    /// deploy/crds yourself.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub create_crd: bool,

    /// Look after every namespace; needs a ClusterRole.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub cluster_wide: bool,

    /// Where /metrics, /healthz and /readyz are served.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen_addr: SocketAddr,

    /// How long a member that has its data may be silent before it is replaced, while the others keep quorum, such as
    /// 60s or 2m. An EtcdCluster's spec.memberUnresponsiveSeconds goes first.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub member_unresponsive_after: Duration,

    /// The patch version through which a minor is passed on the way to a later one, in place of the built-in one; such
    /// as 3.4.37,3.5.35.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub version_table: HopTable,

    /// Where this pod mounts claims that backups are kept on, each in a folder of its name.
    #[arg(long, default_value = "/var/lib/etcd-backups")]
    pub volumes: PathBuf,

    /// The image of this program, for the init containers of a restored member; that of its own pod where nothing is said.
    #[arg(long)]
    pub image: Option<String>,

    /// Log lines for people (text) or for programs (json).
    #[arg(long, default_value_t)]
    pub log_format: Format,

    /// How much is logged: error, warn, info, debug or trace, or a list such as info,etcd_operator=debug.
    #[arg(long, default_value = "info,kube_runtime=warn")]
    pub log_level: String,

    /// The name of the pod that this process runs in: the source of its events, and its name in elections.
    #[arg(long, env = "MY_POD_NAME", hide_env_values = true)]
    pub pod_name: Option<String>,

    /// The namespace that is looked after, and that has the leases.
    #[arg(long, env = "MY_POD_NAMESPACE", hide_env_values = true)]
    pub pod_namespace: Option<String>,
}

/// What this program does besides being an operator.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Snapshot(snapshot::Args),
}

/// What there is to run; each has its own CRD and its own lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Controller {
    /// EtcdClusters.
    Cluster,
    /// EtcdBackups.
    Backup,
    /// EtcdRestores.
    Restore,
}

impl Controller {
    /// The command that the book runs it by; its lease has the same name.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Cluster => "etcd-operator",
            Self::Backup => "etcd-backup-operator",
            Self::Restore => "etcd-restore-operator",
        }
    }

    /// As `--controllers` has it.
    const fn name(self) -> &'static str {
        match self {
            Self::Cluster => cluster::NAME,
            Self::Backup => backup::NAME,
            Self::Restore => restore::NAME,
        }
    }

    /// What runs where `--controllers` does not say.
    fn of_command(program: &str) -> Self {
        [Self::Backup, Self::Restore]
            .into_iter()
            .find(|one| one.command() == program)
            .unwrap_or(Self::Cluster)
    }
}

impl Cli {
    /// Reads the command line, or ends the process with help or with what is wrong.
    pub fn of_process() -> Self {
        Self::of_args(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn of_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut args = args.into_iter().peekable();
        let program = args.peek().and_then(|path| Path::new(path).file_name()?.to_str()).unwrap_or_default();
        let controller = Controller::of_command(program);
        let command = Self::command()
            .name(controller.command())
            .mut_arg("controllers", |arg| arg.default_value(controller.name()));
        Self::from_arg_matches(&command.try_get_matches_from(args)?)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration =
        text.parse().map_err(|_| format!("{text:?} is no duration: write 60s or 2m"))?;
    let duration = parsed.unsigned_abs();
    if parsed.is_negative() || duration < Duration::from_secs(10) {
        return Err("less than 10s would replace members that are merely slow".into());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::of_args(["etcd-operator"].iter().chain(args).map(OsString::from))
    }

    #[rstest]
    #[case(&["etcd-operator"], &[Controller::Cluster])]
    #[case(&["/usr/local/bin/etcd-operator"], &[Controller::Cluster])]
    #[case(&["etcd-backup-operator"], &[Controller::Backup])]
    #[case(&["/usr/local/bin/etcd-restore-operator", "--create-crd=false"], &[Controller::Restore])]
    #[case(&["etcd-operator", "--controllers=cluster,backup,restore"], &[Controller::Cluster, Controller::Backup, Controller::Restore])]
    #[case(&["etcd-backup-operator", "--controllers=restore"], &[Controller::Restore])]
    #[case(&["target/debug/whatever"], &[Controller::Cluster])]
    fn the_name_of_the_command_chooses_the_controller(
        #[case] args: &[&str],
        #[case] expected: &[Controller],
    ) {
        assert_eq!(Cli::of_args(args.iter().map(OsString::from)).unwrap().controllers, expected);
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[rstest]
    #[case(&[], true, false)]
    #[case(&["--create-crd=false"], false, false)]
    #[case(&["--create-crd"], true, false)]
    #[case(&["--create-crd=true", "--cluster-wide"], true, true)]
    #[case(&["--cluster-wide=true"], true, true)]
    #[case(&["--cluster-wide=false"], true, false)]
    fn flags_read_as_those_of_coreos(#[case] args: &[&str], #[case] create: bool, #[case] wide: bool) {
        let cli = parse(args).unwrap();
        assert_eq!((cli.create_crd, cli.cluster_wide), (create, wide));
        assert_eq!(cli.listen_addr, "0.0.0.0:8080".parse().unwrap());
    }

    #[rstest]
    #[case("60s", Some(60))]
    #[case("2m", Some(120))]
    #[case("1m30s", Some(90))]
    #[case("5s", None)]
    #[case("-60s", None)]
    #[case("soon", None)]
    fn durations(#[case] text: &str, #[case] seconds: Option<u64>) {
        assert_eq!(duration(text).ok(), seconds.map(Duration::from_secs));
    }

    #[test]
    fn the_version_table_can_be_overridden() {
        assert_eq!(parse(&[]).unwrap().version_table, HopTable::default());
        let table = parse(&["--version-table=3.5.28"]).unwrap().version_table;
        assert_ne!(table, HopTable::default());
        assert!(parse(&["--version-table=latest"]).is_err());
    }
}
