//! What the user asks for: the part of the EtcdCluster that the planner needs.

use std::time::Duration;

use crate::ids::Uid;
use crate::version::{HopTable, Version};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    pub size: u32,
    /// As the user wrote it, with or without a leading `v`; the planner refuses what it cannot read.
    pub version: String,
    /// The image is `repository:v<version>`.
    pub repository: String,
    pub paused: bool,
    /// The EtcdCluster has a deletion timestamp.
    pub deleting: bool,
    pub tls_requested: bool,
    /// What the restore controller asks for, once it has verified the backup; it stays when it was done.
    pub restore: Option<RestoreRequest>,
    /// What the controller's own validation found wrong; nothing is touched while it says so.
    pub invalid: Option<String>,
    pub storage: Storage,
    /// Hash of the pod template without image and bootstrap arguments.
    pub template: String,
    pub knobs: Knobs,
    pub hops: HopTable,
}

/// A backup that is to take the place of what the cluster holds. Where it lies is the controller's business.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RestoreRequest {
    /// The UID of the EtcdRestore: no request is served twice.
    pub uid: Uid,
    /// Its name, for people.
    pub name: String,
    /// The version of etcd that made the backup; with patch 0 only the minor is known.
    pub version: Option<Version>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// The data lives and dies with the pod.
    EmptyDir,
    /// The data lives in a claim of the member's name.
    Persistent,
}

/// What an administrator may tune.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// How long a member that has its data may stay silent before it is replaced.
    pub unresponsive_after: Duration,
    /// How long every answering member must say "no leader" before quorum counts as lost: an election is no loss.
    pub leaderless_after: Duration,
    /// How far, in raft entries, a member may be behind the leader and still count as caught up.
    pub catch_up_entries: u64,
    /// How long a failed image check stands before it is tried again.
    pub image_check_retry: Duration,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            unresponsive_after: Duration::from_mins(1),
            leaderless_after: Duration::from_secs(3),
            catch_up_entries: 1000,
            image_check_retry: Duration::from_secs(30),
        }
    }
}
