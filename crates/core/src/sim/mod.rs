//! A small world around [`plan`](crate::plan()): Kubernetes and etcd in memory, with faults and an oracle.
//!
//! The operator in it runs the real planner. The world is a plain value (`Clone`, `Eq`, `Hash`), so that a model checker
//! can walk it as well as a property test. Laws that the world sees broken are kept in [`World::broken`].

mod etcd;
mod faults;
mod kubelet;
mod normal;
mod observe;
mod operator;
mod oracle;
mod restore;
mod world;

#[cfg(test)]
mod tests;

pub use etcd::{Cluster, Refused, Voice};
pub use faults::Fault;
pub use observe::Glitch;
pub use operator::{Intent, Round};
pub use restore::Backup;
pub use world::{Arms, Disk, Memory, Process, SimClaim, SimPod, World, spec};
