//! What every scenario needs: the operator as a process, a cluster as a user sees it, traffic that checks promises.

mod cluster;
mod load;
mod operator;
mod said;
mod victim;

pub use cluster::Cluster;
pub use load::Load;
pub use operator::Operator;
pub use victim::{Victim, Who, client_address};

use std::time::Duration;

/// For whatever a slow machine does in seconds and a busy one in minutes.
pub const LIMIT: Duration = Duration::from_mins(5);

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
