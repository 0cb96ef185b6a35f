//! The operator against a real API server and real etcd, with a fault at every point of its work. There are no nodes: a
//! kubelet of the test's own runs members as processes of this machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests, too")]

mod container;
mod dns;
mod end;
mod gone;
mod kubelet;
mod life;
mod operator;
mod points;
mod refused;
mod scenarios;
mod seed;
mod specs;
mod world;

use std::time::Duration;

/// For whatever a slow machine does in seconds and a busy one in minutes.
const LIMIT: Duration = Duration::from_mins(3);

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
