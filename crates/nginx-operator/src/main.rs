//! The nginx operator's command line.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use nginx_operator::cli::{Cli, Command, Manifests, Run};
use nginx_operator::operator::{Instruments, Settings};
use nginx_operator::{NAME, manifests, operator};
use runtime::lease::Timing;
use runtime::{client, logging, shutdown};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(options) => run(&options),
        Command::Manifests(options) => print(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(options: &Run) -> Result<(), Box<dyn Error>> {
    logging::init(options.log_format, &options.log_level)?;
    let stop = shutdown::on_signal()?;
    let instruments = Instruments::default();
    let agent = format!("{NAME}/{}", env!("CARGO_PKG_VERSION"));
    let config = client::infer_config().await?;
    let client = client::builder(config, &agent, instruments.metrics.clone())?.build();
    let settings = Settings {
        scope: options.scope(),
        home: options.home.clone(),
        pod_name: options.pod_name.clone(),
        pod_uid: options.pod_uid.clone(),
        newest: options.api_version,
        listen: options.listen_addr,
        webhook: options.webhook(),
        timing: Timing::default(),
    };
    Ok(operator::run(client, settings, instruments, stop).await?)
}

fn print(options: &Manifests) -> Result<(), Box<dyn Error>> {
    let namespace = &options.namespace;
    let objects = match options.stage() {
        Some(stage) => vec![manifests::definition(stage, namespace)?],
        None => manifests::operator(options.api_version, namespace, options.image.as_deref())?,
    };
    print!("{}", manifests::yaml(&objects)?);
    Ok(())
}
