//! What the controller saw, all of it, anew in every round.
//!
//! A failed read is [`Read::Unknown`], never "gone". Answers of etcd count only if the response header carried the
//! recorded cluster ID and the member ID of the member that was asked; any other answer is `Unknown`.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ClusterId, MemberId, Name, Uid};
use crate::time::Moment;
use crate::version::Version;

/// The outcome of a read: a value, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Read<T> {
    Known(T),
    Unknown(String),
}

impl<T> Read<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observation {
    pub recorded: Recorded,
    /// Pods of this cluster by label, image checks left out.
    pub pods: Vec<Pod>,
    /// Claims of this cluster by label. A claim has the name of its member.
    pub claims: Vec<Claim>,
    /// Claims of members that left, which the spec keeps: who owns them is all that anyone asks.
    pub left_claims: Vec<Claim>,
    /// Pods and claims come from a list answered by the API server just now, not from a cache.
    pub live: bool,
    pub headless_service: bool,
    pub client_service: bool,
    /// `minAvailable` of the disruption budget, if it exists.
    pub budget: Option<u32>,
    /// The member list, read linearizably. `Known` proves that there was a quorum a moment ago.
    pub members: Read<Vec<Member>>,
    /// The longest member list that any member gave without such proof (empty if none did): good enough to name
    /// members in a report and to bring back pods, never for a change of membership. A member that restarted without
    /// a quorum is silent on its client port, yet answers `GET :2380/members` (with the cluster ID in a header).
    pub hearsay: Vec<Member>,
    /// The Status of each member that has a pod, asked for by pod IP. Members without a pod have no entry.
    /// Before an ID is recorded the seed's answer is taken without a check, and `cluster` says who answered.
    pub statuses: BTreeMap<Name, Read<Status>>,
    /// The highest `etcdcluster` that any member gave on `GET :2380/version`: the version that the cluster agreed on, below
    /// whose minor no binary starts any more. `None` if nobody said.
    pub agreed: Option<Version>,
    /// The answer of a seed that is being made from a backup, asked for whatever cluster it belongs to.
    pub seed: Option<Seed>,
    pub alarms: Read<Vec<Alarm>>,
    /// Looked for only while there are pods that were inherited: another operator that still acts on them, or why that
    /// cannot be known.
    pub rival: Option<String>,
    /// Image checks of this cluster that exist now, finished or not.
    pub image_checks: Vec<ImageCheck>,
    /// Looked at only while a higher minor is ahead.
    pub backups: Read<Backups>,
    /// Hash comparisons that were done; kept in memory, and simply done again after a restart.
    pub hash_checks: Vec<HashCheck>,
    /// How far the log was last rolled on; kept in memory, and simply done again after a restart.
    pub rolled: Option<Rolled>,
    /// When each member last answered; for a member never heard of, when this operator first looked for it.
    pub heard: BTreeMap<Name, Moment>,
    /// Pods whose member answered this operator, last on the version that the pod asks for. Nothing is known of the others:
    /// they may never have run.
    pub answered: BTreeSet<Uid>,
    /// Since when the member list could be read, but for a moment; `None`: it cannot be now.
    pub listed_since: Option<Moment>,
    /// When the member list was last read, or first asked for.
    pub last_listed: Moment,
    /// Since when every member that answers says "no leader", and none says otherwise.
    pub leaderless_since: Option<Moment>,
    /// The node of a pod that is gone now, as remembered from when it was there. Absent if nothing is remembered.
    pub last_nodes: BTreeMap<Name, NodeState>,
    /// Unused random member names, at least as many as a cluster can have members.
    pub fresh_names: Vec<Name>,
}

/// What earlier rounds wrote into the status of the EtcdCluster. Written with a resource version, so that two
/// operators that both believe they lead cannot both record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recorded {
    /// The one name that may ever bootstrap; recorded before its pod is created.
    pub seed: Option<Name>,
    /// Recorded once the seed is healthy. From then on nothing bootstraps.
    pub cluster: Option<ClusterId>,
    /// Names of the voters as last written to status: a hint for reports when no member answers.
    pub voters: Vec<Name>,
    /// `currentVersion` as last written to status.
    pub version: Option<Version>,
    /// The restore that was last begun, if any was.
    pub restore: Option<Restore>,
}

/// How far a restore has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restore {
    /// The UID of the request that it serves.
    pub request: Uid,
    /// The one name that may ever be made from its backup; recorded before the pod is created.
    pub seed: Name,
    pub stage: Stage,
    /// How often the seed was made anew, because what makes its data ended half-way.
    pub again: u32,
    /// Pods and claims of what was there before. No rule sees them, and nothing of their data is taken away, until the
    /// restored cluster is full.
    pub replaced: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The seed is being made. What was there before is still the cluster.
    Seeding,
    /// The seed's cluster is the cluster, and it grows.
    Filling,
    Done,
    /// Nothing was changed, for this reason.
    Failed(String),
}

/// What the seed of a restore says of itself while another cluster is still the recorded one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    pub status: Status,
    pub members: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Pod {
    pub name: Name,
    pub uid: Uid,
    pub phase: PodPhase,
    /// `None` until it is scheduled.
    pub node: Option<Node>,
    pub repository: String,
    /// The version that the pod's spec asks for. What really runs is in the member's Status.
    pub version: Version,
    /// Bootstrap arguments that could still start an empty member (annotations not yet disarmed).
    pub armed: bool,
    /// Names in the pod's `--initial-cluster` while it is armed.
    pub peers: Vec<Name>,
    /// Carries the label that the client Service and the budget select.
    pub serving: bool,
    pub ready: bool,
    /// When this operator first saw that it has an address.
    pub addressed: Option<Moment>,
    /// A container of it runs, or has run.
    pub begun: bool,
    /// Why the etcd container or an init container waits, if it does (`ImagePullBackOff`, `CrashLoopBackOff`…).
    pub waiting: Option<String>,
    /// A container of it that ended in failure, and is about to be tried again.
    pub failing: Option<Failing>,
    pub deleting: bool,
    pub template: String,
    /// After how many entries of the log its etcd makes a snapshot.
    pub snapshot_count: u64,
    /// The UID of the claim that it was created with.
    pub claim: Option<Uid>,
    pub created: Moment,
    /// When it was created, etcd first ran in it, or its image was last changed by us: the latest of these.
    pub changed: Moment,
    /// False while the etcd container is visibly not yet the one of the patched image (the image in the container's
    /// status is another). True where there is nothing to compare.
    pub updated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failing {
    pub times: u32,
    /// Its last words.
    pub words: String,
    /// It leaves half of its work behind, on which it cannot be tried again.
    pub spoils: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub name: Name,
    pub state: NodeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    Ready,
    /// Not ready or unreachable: what ran there may still run.
    NotReady,
    /// The Node object is gone.
    Gone,
    /// We may not read nodes, or did not.
    Unknown,
    /// We may, and could not just now.
    Unread,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub name: Name,
    pub uid: Uid,
    pub deleting: bool,
    /// Our EtcdCluster owns it, so that it goes when that is deleted.
    pub owned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub id: MemberId,
    /// Taken from the peer URL, which always carries it; etcd's own name field is empty until the member started.
    pub name: Name,
    pub peer_urls: Vec<String>,
    pub learner: bool,
    /// etcd's name field is filled: the member started at least once and published itself.
    pub started: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    pub cluster: ClusterId,
    pub member: MemberId,
    pub version: Version,
    /// `None`: this member knows of no leader.
    pub leader: Option<MemberId>,
    pub term: u64,
    pub raft_index: u64,
    /// Where etcd does not say (before 3.4), the raft index.
    pub applied_index: u64,
    pub db_size: u64,
    /// Where etcd does not say (before 3.6), what the spec's environment sets, or etcd's default.
    pub quota: u64,
    pub learner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alarm {
    pub member: MemberId,
    pub kind: AlarmKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlarmKind {
    NoSpace,
    Corrupt,
}

/// A throw-away pod that runs `etcd --version` on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageCheck {
    pub pod: Name,
    pub uid: Uid,
    pub repository: String,
    pub version: Version,
    pub node: Name,
    pub outcome: Check,
    /// When it began, and once it ended, when it did.
    pub at: Moment,
}

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    Running,
    Passed,
    Failed(String),
    /// It could not be done or compared; that is no verdict.
    Unknown(String),
}

/// The `EtcdBackup`s of a cluster, as far as an upgrade is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backups {
    /// The EtcdBackup that names this cluster. `None`: none does, or none can be seen.
    pub named: Option<Name>,
    /// Backups that were asked for before a new minor, since the spec was last changed.
    pub asked: Vec<AskedBackup>,
}

/// One backup, made once, before the cluster goes to a new minor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AskedBackup {
    pub name: Name,
    /// The EtcdBackup that it is a copy of.
    pub of: Name,
    /// The version that it comes before.
    pub version: Version,
    /// `Failed`: it is tried again. `Unknown`: nobody has begun with it.
    pub outcome: Check,
    /// When it was asked for.
    pub at: Moment,
}

/// A comparison of the data of an upgraded member with that of another, at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HashCheck {
    pub member: Name,
    /// The version that the member ran at.
    pub version: Version,
    pub outcome: Check,
}

/// The log of that cluster goes on to that index before a member goes to that version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rolled {
    pub cluster: ClusterId,
    pub version: Version,
    pub until: u64,
}
