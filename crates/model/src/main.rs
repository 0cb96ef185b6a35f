//! `prove`: asks the checker its questions, and shows that it would find bugs.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use model::Answer;
use model::questions::{self, Bounds};

/// Ask the model checker whether any order of troubles breaks a law, or ends elsewhere than in the spec
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ask the questions whose name contains a text; all of them without one
    Ask {
        /// A part of the questions' names, such as "life of 3"
        #[arg(default_value = "")]
        name: String,
        /// The bounds of a proof, not those of the tests; whoever cuts it off sees ten million distinct states, or fails
        #[arg(long)]
        large: bool,
        /// So many walk at once
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// How many troubles there may be, instead of as many as each question has
        #[arg(long)]
        troubles: Option<u8>,
        /// Cut each question off at so many distinct states
        #[arg(long)]
        at_most: Option<usize>,
    },
}

/// A proof that is not walked to its end has seen so many distinct states at least.
const PROOF: usize = 10_000_000;

/// All answers together.
#[derive(Default)]
struct Sum {
    asked: usize,
    states: usize,
    cut: usize,
    found: bool,
}

impl Sum {
    fn add(&mut self, answer: &Answer) {
        self.asked += 1;
        self.states += answer.states;
        self.cut += usize::from(!answer.whole);
        self.found |= answer.violation.is_some();
    }

    /// Why this proves nothing, if so.
    fn fault(&self, large: bool) -> Option<String> {
        if self.found {
            return Some("a law is broken, or the end is not the spec".to_owned());
        }
        if self.asked == 0 {
            return Some("no question has that name".to_owned());
        }
        (large && self.cut > 0 && self.states < PROOF).then(|| {
            format!("too few for a proof that was cut off: {PROOF} is the least, so raise --at-most")
        })
    }
}

fn main() -> ExitCode {
    let Command::Ask { name, large, threads, troubles, at_most } = Cli::parse().command;
    let bounds = if large { Bounds::Large } else { Bounds::Standard };
    let mut sum = Sum::default();
    for mut question in questions::all(bounds) {
        if !question.name.contains(&name) {
            continue;
        }
        question.troubles = troubles.unwrap_or(question.troubles);
        let answer = question.ask(threads, at_most);
        println!("{answer}");
        sum.add(&answer);
    }
    println!("{} distinct states in all, {} questions not walked to their end", sum.states, sum.cut);
    match sum.fault(large) {
        Some(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_that_was_cut_off_too_early_fails() {
        let sum = |states, cut| Sum { asked: 24, states, cut, found: false };
        let cases = [
            (sum(PROOF, 24), true, true),
            (sum(PROOF - 1, 1), true, false),
            (sum(PROOF - 1, 0), true, true),
            (sum(1000, 24), false, true),
            (Sum { found: true, ..sum(PROOF, 0) }, true, false),
            (Sum::default(), false, false),
        ];
        for (sum, large, good) in cases {
            let Sum { asked, states, cut, found } = sum;
            let told = format!("asked {asked}, states {states}, cut {cut}, found {found}, large {large}");
            assert_eq!(sum.fault(large).is_none(), good, "{told}");
        }
    }
}
