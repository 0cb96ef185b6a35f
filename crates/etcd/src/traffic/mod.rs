//! Clients that write and read all the time, and remember what they were promised: for tests.
//!
//! Each writer puts a new key, reads it back, and moves a key of its own on by compare-and-swap, at a steady
//! rate. A request is tried on one endpoint after the other until its patience ends; only then it has failed.

mod crowd;
pub mod history;
mod report;
mod writer;

pub use crowd::{Crowd, Seen};
pub use report::{Failure, Latencies, Report, Unverified};

use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use writer::Writer;

#[derive(Debug, Clone)]
pub struct Config {
    /// All keys begin with it.
    pub prefix: String,
    pub writers: u32,
    /// Requests per second, of all writers together.
    pub rate: u32,
    /// How long a request is tried before it counts as failed.
    pub patience: Duration,
    /// How long one endpoint has to answer.
    pub attempt: Duration,
    /// Ends by itself after this time.
    pub limit: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prefix: "traffic/".into(),
            writers: 3,
            rate: 50,
            patience: Duration::from_secs(5),
            attempt: Duration::from_secs(1),
            limit: Duration::from_mins(30),
        }
    }
}

/// Traffic under way. Dropped without [`finish`](Self::finish), it just ends.
#[derive(Debug)]
pub struct Traffic {
    endpoints: watch::Sender<Vec<String>>,
    stop: CancellationToken,
    writers: JoinSet<writer::History>,
    started: Instant,
    config: Config,
}

impl Traffic {
    /// Begins at once. Endpoints are `host:port`.
    pub fn start(endpoints: Vec<String>, config: Config) -> Self {
        let endpoints = watch::Sender::new(endpoints);
        let stop = CancellationToken::new();
        let started = Instant::now();
        let mut writers = JoinSet::new();
        for number in 0..config.writers {
            let writer = Writer::new(number, &config, endpoints.subscribe());
            let pace = Duration::from_secs(1) * config.writers / config.rate.max(1);
            let (stop, end) = (stop.clone(), started + config.limit);
            writers.spawn(async move { writer.run(pace, stop, end).await });
        }
        Self { endpoints, stop, writers, started, config }
    }

    /// From now on these endpoints are used; requests under way go on with them too.
    pub fn set_endpoints(&self, endpoints: Vec<String>) {
        self.endpoints.send_replace(endpoints);
    }

    /// Lets requests under way end, and tells what was seen.
    pub async fn finish(mut self) -> Report {
        self.stop.cancel();
        let mut histories = Vec::new();
        while let Some(history) = self.writers.join_next().await {
            // A writer that panicked is a bug of this module: let the test see it.
            histories.push(history.unwrap_or_else(|error| writer::History::broken(&error)));
        }
        Report::of(self.config, self.started, histories)
    }
}
