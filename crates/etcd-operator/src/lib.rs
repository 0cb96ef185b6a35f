//! The etcd operator: one binary, one folder for each controller.

pub mod cli;
pub mod cluster;
pub mod process;
pub mod snapshot;
