//! `etcd-operator`: an SRE for etcd in software.

use std::process::ExitCode;

use etcd_operator::cli::{Cli, Command};
use etcd_operator::{process, snapshot};

/// Rounds wait on the network almost all the time.
const WORKERS: usize = 2;
/// For name resolution and files alone.
const BLOCKING: usize = 4;

fn main() -> ExitCode {
    let mut cli = Cli::of_process();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => match cli.command.take() {
            Some(Command::Snapshot(args)) => {
                runtime.block_on(snapshot::run(args)).map_err(|error| error.to_string())
            }
            None => runtime.block_on(process::run(cli)).map_err(|error| error.to_string()),
        },
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("etcd-operator: {error}");
            ExitCode::FAILURE
        }
    }
}
