//! What every scenario needs: the operator as a process, a cluster as a user sees it, traffic that checks promises.

mod cluster;
mod operator;

pub use cluster::Cluster;
pub use operator::Operator;

use std::time::Duration;

/// For whatever a slow machine does in seconds and a busy one in minutes.
pub const LIMIT: Duration = Duration::from_secs(300);

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
