//! Every act of the controller, each with exactly the identifiers and preconditions that it needs.

use crate::ids::{ClusterId, MemberId, Name, Uid};
use crate::observation::{Restore, Rolled};
use crate::report::Event;
use crate::version::Version;

/// A step, and the events to publish once it succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    pub step: Step,
    pub events: Vec<Event>,
}

impl Step {
    pub fn announcing(self, events: impl Into<Vec<Event>>) -> Action {
        Action { step: self, events: events.into() }
    }
}

impl From<Step> for Action {
    fn from(step: Step) -> Self {
        Self { step, events: Vec::new() }
    }
}

/// A member as `--initial-cluster` names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    pub name: Name,
    pub url: String,
}

/// Applied in order; the first that fails ends the round, and everything is observed anew.
/// "unhealthy cluster", "too many learners" and "learner not ready" from etcd are answers to wait on, not errors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read pods and claims from the API server itself, then plan again: what follows must not rest on a cache.
    ListLive,
    /// Write `recorded.seed`, with the resource version that was observed.
    RecordSeed {
        name: Name,
    },
    /// Write `recorded.cluster`, and with it the report's voters and version, with the resource version that was observed.
    RecordCluster {
        id: ClusterId,
    },
    /// Write `recorded.restore`, with the resource version that was observed.
    RecordRestore {
        restore: Restore,
    },
    /// The seed of a restore becomes the cluster, in one write with the resource version that was observed: the recorded
    /// ID, seed and version are its own, its one voter is the seed.
    SwapCluster {
        id: ClusterId,
        version: Version,
        restore: Restore,
    },
    EnsureHeadlessService,
    EnsureClientService,
    /// Create or change the disruption budget.
    SetBudget {
        min_available: u32,
    },
    /// Create the seed's pod (and claim): `new`, alone in its `--initial-cluster`, with a token of its own.
    CreateSeed {
        name: Name,
        version: Version,
    },
    /// Create a seed's pod (and claim) whose data is made from the requested backup: an identity and a token of its own,
    /// and no way to start without that data.
    CreateRestoredSeed {
        name: Name,
        version: Version,
        request: Uid,
    },
    /// Create the pod (and claim) of a member that is to be added, or was and has not started: `existing`, armed with
    /// `peers` and those who are not listed yet, whose URLs follow from their names. It starts once all are listed.
    CreateMember {
        name: Name,
        version: Version,
        peers: Vec<Peer>,
        joining: Vec<Name>,
    },
    /// Create the pod of a member whose data is in the claim of that UID: disarmed, so that it can only resume.
    ResumeMember {
        name: Name,
        version: Version,
        claim: Uid,
    },
    /// One patch with a UID test. `disarm`: bootstrap annotations become `existing` and peers that cannot resolve.
    /// `serve`: the label that the client Service and the budget select.
    MarkPod {
        name: Name,
        uid: Uid,
        disarm: bool,
        serve: bool,
    },
    /// Note the template of now, and the claim, on a pod that was inherited, with a UID test: from then on it is one of ours,
    /// and later changes are rolled out.
    Adopt {
        name: Name,
        uid: Uid,
    },
    /// Take the label away that the client Service and the budget select, with a UID test.
    StopServing {
        name: Name,
        uid: Uid,
    },
    /// Patch the etcd image and the version annotation with a UID test.
    PatchImage {
        name: Name,
        uid: Uid,
        version: Version,
    },
    /// Delete gracefully with a UID precondition; never by force.
    DeletePod {
        name: Name,
        uid: Uid,
    },
    /// Delete with a UID precondition.
    DeleteClaim {
        name: Name,
        uid: Uid,
    },
    /// The claim goes with the EtcdCluster from now on (`owned`), or stays when that is deleted; with a UID test, and the
    /// resource version that was observed.
    OwnClaim {
        name: Name,
        uid: Uid,
        owned: bool,
    },
    /// Through any healthy voter; the peer URL is derived from the name.
    AddMember {
        name: Name,
        learner: bool,
    },
    Promote {
        id: MemberId,
        name: Name,
    },
    RemoveMember {
        id: MemberId,
        name: Name,
    },
    /// Asked of the leader itself.
    MoveLeader {
        from: MemberId,
        to: MemberId,
    },
    /// Start a throw-away pod that runs `etcd --version` on that node.
    CheckImage {
        version: Version,
        node: Name,
    },
    /// Delete the throw-away pod.
    DropImageCheck {
        pod: Name,
        uid: Uid,
    },
    /// Write entries that change nothing, as many as a moment allows, until the log has reached `until`; and remember
    /// how far it is to go for this version.
    RollLog {
        to: Rolled,
    },
    /// Ask for one backup before the cluster goes to `version`: a copy of the EtcdBackup `of`, made once.
    BackUp {
        of: Name,
        version: Version,
    },
    /// Compare hashes of two followers at one revision, and remember the outcome for this member and version.
    CompareHash {
        member: Name,
        with: Name,
        version: Version,
    },
}

impl Step {
    /// A change of etcd's member list.
    pub fn changes_membership(&self) -> bool {
        matches!(self, Self::AddMember { .. } | Self::Promote { .. } | Self::RemoveMember { .. })
    }

    /// Writes what the planner must not forget, on condition that nobody wrote it since it was seen.
    pub fn records(&self) -> bool {
        matches!(
            self,
            Self::RecordSeed { .. }
                | Self::RecordCluster { .. }
                | Self::RecordRestore { .. }
                | Self::SwapCluster { .. }
        )
    }

    /// Takes something away that may hold data or carry quorum.
    pub fn is_destructive(&self) -> bool {
        matches!(
            self,
            Self::RemoveMember { .. }
                | Self::DeletePod { .. }
                | Self::DeleteClaim { .. }
                | Self::PatchImage { .. }
        )
    }
}
