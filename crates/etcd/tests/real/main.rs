//! How real etcd behaves, from 3.1 to 3.6, seen through this crate: the facts on which the planner's rules stand.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod cluster;
mod identity;
mod learners;
mod membership;
mod model;
mod quorum;
mod traffic;
mod versions;

use lab::programs::{EtcdVersion, Program, Programs, default_cache};
use std::path::PathBuf;
use std::time::Duration;

/// Generous: the machine may be busy with other tests.
const SOON: Duration = Duration::from_secs(30);

/// The real program, built if this is the first time.
fn program(version: EtcdVersion) -> PathBuf {
    Programs::new(&default_cache().unwrap()).path(Program::Etcd(version)).unwrap()
}
