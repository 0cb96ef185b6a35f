//! What the user asks for: the part of the EtcdCluster that the planner needs.

use std::time::Duration;

use crate::ids::Uid;
use crate::version::{HopTable, Version};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
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
    /// Claims stay when the EtcdCluster is deleted.
    pub retains: bool,
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
    /// How long a pod may take until etcd runs in it: large images and slow volumes are no fault of the member.
    pub making_patience: Duration,
    /// How long every answering member must say "no leader" before quorum counts as lost: an election is no loss.
    pub leaderless_after: Duration,
    /// How far, in raft entries, a member may be behind the leader and still count as caught up.
    pub catch_up_entries: u64,
    /// How long a failed image check stands before it is tried again.
    pub image_check_retry: Duration,
    /// How long the seed of a restore may find no node or no image, or start no container.
    pub seed_patience: Duration,
    /// How long a member of a restored cluster may find no node while pods of before take up room.
    pub room_patience: Duration,
}

impl Knobs {
    /// At rest members are asked every few seconds only, so twice as long as an election is still a moment.
    pub fn moment(&self) -> Duration {
        self.leaderless_after * 2
    }
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            unresponsive_after: Duration::from_mins(1),
            making_patience: Duration::from_mins(5),
            leaderless_after: Duration::from_secs(3),
            catch_up_entries: 1000,
            image_check_retry: Duration::from_secs(30),
            seed_patience: Duration::from_mins(5),
            room_patience: Duration::from_secs(15),
        }
    }
}
