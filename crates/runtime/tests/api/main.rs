//! The runtime against a real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests, too")]

mod client;
mod crd;
mod events;
mod lease;
mod rights;
mod server;
