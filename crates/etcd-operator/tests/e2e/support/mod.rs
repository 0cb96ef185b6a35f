//! What every scenario needs: the operator as a process, a cluster as a user sees it, traffic that checks promises.

mod cluster;
mod load;
mod members;
mod operator;
pub mod predecessor;
mod said;
mod victim;

pub use cluster::Cluster;
pub use load::Load;
pub use operator::Operator;
pub use victim::{Knocks, Victim, Who, client_address};

use std::time::{Duration, Instant};

/// For whatever a slow machine does in seconds and a busy one in minutes.
pub const LIMIT: Duration = Duration::from_mins(5);

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Looks again and again for that long: it must stay so.
pub async fn stays(what: &str, time: Duration, mut look: impl AsyncFnMut() -> Outcome<bool>) -> Outcome {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if !look().await? {
            return Err(format!("{what} did not stay").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
