//! The etcd operator: one binary, one folder for each controller.

pub mod backup;
pub mod cli;
pub mod cluster;
#[cfg(test)]
mod monitoring;
pub mod process;
pub mod restore;
pub mod rights;
pub mod scope;
pub mod snapshot;
pub mod store;
pub mod tenure;
