//! `prove`: asks the checker its questions, and shows that it would find bugs.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use model::questions::{self, Bounds};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ask the questions whose name contains a text; all of them without one.
    Ask {
        #[arg(default_value = "")]
        name: String,
        /// The bounds of a proof, not those of the tests.
        #[arg(long)]
        large: bool,
        #[arg(long, default_value_t = 1)]
        threads: usize,
        #[arg(long)]
        troubles: Option<u8>,
        /// Cut each question off at so many distinct states.
        #[arg(long)]
        at_most: Option<usize>,
    },
}

fn main() -> ExitCode {
    let Command::Ask { name, large, threads, troubles, at_most } = Cli::parse().command;
    let bounds = if large { Bounds::Large } else { Bounds::Standard };
    let (mut states, mut cut, mut found) = (0, 0, false);
    for mut question in questions::all(bounds) {
        if !question.name.contains(&name) {
            continue;
        }
        question.troubles = troubles.unwrap_or(question.troubles);
        let answer = question.ask(threads, at_most);
        println!("{answer}");
        states += answer.states;
        cut += usize::from(!answer.whole);
        found |= answer.violation.is_some();
    }
    println!("{states} distinct states in all, {cut} questions not walked to their end");
    if found { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
