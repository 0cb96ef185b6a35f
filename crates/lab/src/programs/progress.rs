//! What a person sees while programs are built.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar where stderr is a terminal, and a line for each start and end where it is not.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new(total: usize) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} [{bar:30}] {pos}/{len} {msg} {elapsed}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar }
    }

    /// Shows `what` as under way until `work` returns.
    pub fn step<T, E>(&self, what: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let started = Instant::now();
        self.bar
            .as_ref()
            .map_or_else(|| eprintln!("building {what}"), |bar| bar.set_message(what.to_owned()));
        let result = work();
        if result.is_ok() {
            let line = format!("built {what} in {} s", started.elapsed().as_secs());
            match &self.bar {
                Some(bar) => {
                    bar.println(line);
                    bar.inc(1);
                }
                None => eprintln!("{line}"),
            }
        }
        result
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
