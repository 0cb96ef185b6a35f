//! The state of the world, and its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::etcd::Cluster;
use super::restore::Backup;
use crate::ids::{ClusterId, MemberId, Name, Uid};
use crate::observation::{Backups, HashCheck, ImageCheck, NodeState, Recorded, Rolled};
use crate::spec::{Knobs, Spec, Storage};
use crate::time::Moment;
use crate::version::{HopTable, Version};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Moment,
    pub spec: Spec,
    pub recorded: Recorded,
    pub nodes: BTreeMap<Name, NodeState>,
    pub pods: BTreeMap<Name, SimPod>,
    pub claims: BTreeMap<Name, SimClaim>,
    pub headless_service: bool,
    pub client_service: bool,
    pub budget: Option<u32>,
    pub image_checks: Vec<ImageCheck>,
    /// `EtcdBackup`s that name this cluster, and what was asked of them.
    pub precautions: Backups,
    /// Versions whose image cannot be pulled.
    pub bad_images: BTreeSet<Version>,
    /// Templates whose pods crash.
    pub bad_templates: BTreeSet<String>,
    pub clusters: BTreeMap<ClusterId, Cluster>,
    /// What each request for a restore is to bring back.
    pub backups: BTreeMap<Uid, Backup>,
    pub memory: Memory,
    /// Pods and claims as the operator's cache last saw them.
    pub cache: (BTreeMap<Name, SimPod>, BTreeMap<Name, SimClaim>),
    /// Laws that were broken, in words.
    pub broken: Vec<String>,
    /// Writes to the Kubernetes API, events aside.
    pub writes: u32,
    pub(super) made: u64,
}

/// What the operator's process holds in memory; a crash empties it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    pub heard: BTreeMap<Name, Moment>,
    pub answered: BTreeSet<Uid>,
    pub listed_since: Option<Moment>,
    pub leaderless_since: Option<Moment>,
    pub nodes: BTreeMap<Name, Name>,
    pub hash_checks: Vec<HashCheck>,
    pub rolled: Option<Rolled>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SimPod {
    pub uid: Uid,
    pub node: Option<Name>,
    pub version: Version,
    pub repository: String,
    pub arms: Arms,
    pub serving: bool,
    pub template: String,
    pub claim: Option<Uid>,
    /// The emptyDir; with a claim the data is there.
    pub disk: Option<Disk>,
    pub deleting: bool,
    pub failed: bool,
    /// How often a container of it ended in failure since it last ran.
    pub failures: u32,
    pub created: Moment,
    pub changed: Moment,
    pub process: Process,
}

/// What the pod's bootstrap annotations say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arms {
    New {
        token: u64,
    },
    /// Made from the backup of this request.
    Restored {
        token: u64,
        request: Uid,
    },
    Existing {
        peers: BTreeSet<Name>,
    },
    Disarmed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    Down,
    /// The container waits, for this reason.
    Waiting(String),
    /// It runs this version; it speaks to clients once it saw a quorum.
    Up {
        version: Version,
        speaks: bool,
        paused: bool,
    },
}

/// An etcd data directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Disk {
    pub cluster: ClusterId,
    pub member: MemberId,
    /// How many committed writes it holds.
    pub index: u64,
    pub corrupt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SimClaim {
    pub uid: Uid,
    pub disk: Option<Disk>,
    pub deleting: bool,
    pub owned: bool,
}

/// A spec to start from.
pub fn spec(size: u32, version: &str, storage: Storage) -> Spec {
    Spec {
        size,
        version: version.to_owned(),
        repository: "repo".to_owned(),
        paused: false,
        deleting: false,
        tls_requested: false,
        restore: None,
        invalid: None,
        storage,
        retains: false,
        template: "t0".to_owned(),
        knobs: Knobs::default(),
        hops: HopTable::default(),
    }
}

impl World {
    /// An empty Kubernetes cluster of that many nodes, and the spec applied to it.
    pub fn new(spec: Spec, nodes: usize) -> Self {
        let nodes = (0..nodes).map(|n| (Name(format!("node{n}")), NodeState::Ready)).collect();
        Self {
            now: Moment(1_000_000),
            spec,
            recorded: Recorded::default(),
            nodes,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            headless_service: false,
            client_service: false,
            budget: None,
            image_checks: Vec::new(),
            precautions: Backups::default(),
            bad_images: BTreeSet::new(),
            bad_templates: BTreeSet::new(),
            clusters: BTreeMap::new(),
            backups: BTreeMap::new(),
            memory: Memory::default(),
            cache: (BTreeMap::new(), BTreeMap::new()),
            broken: Vec::new(),
            writes: 0,
            made: 0,
        }
    }

    /// A second passes: the kubelets work, etcd elects, commits and replicates.
    pub fn tick(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        self.run_kubelets();
        self.run_etcd();
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Names are ordered as their numbers are.
    /// Names are random: one that was given out is never given out again.
    pub(super) fn give_out(&mut self, name: &Name) {
        let number = name.0.strip_prefix('m').and_then(|number| number.parse().ok()).unwrap_or(0);
        self.made = self.made.max(number);
    }

    pub(super) fn member_name(number: u64) -> Name {
        Name(format!("m{number:04}"))
    }

    pub(super) fn next_uid(&mut self) -> Uid {
        Uid(format!("u{}", self.next_number()))
    }

    pub(super) fn law(&mut self, holds: bool, law: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(law());
        }
    }

    pub(super) fn disk(&self, name: &Name) -> Option<&Disk> {
        let pod = self.pods.get(name)?;
        match &pod.claim {
            Some(uid) => self.claims.get(name).filter(|claim| claim.uid == *uid)?.disk.as_ref(),
            None => pod.disk.as_ref(),
        }
    }

    pub(super) fn disk_mut(&mut self, name: &Name) -> Option<&mut Option<Disk>> {
        let pod = self.pods.get_mut(name)?;
        match &pod.claim {
            Some(uid) => {
                self.claims.get_mut(name).filter(|claim| claim.uid == *uid).map(|claim| &mut claim.disk)
            }
            None => Some(&mut pod.disk),
        }
    }

    pub(super) fn node_state(&self, node: &Name) -> NodeState {
        self.nodes.get(node).copied().unwrap_or(NodeState::Gone)
    }

    /// The process runs and can be reached.
    pub(super) fn up(&self, name: &Name) -> Option<Version> {
        let pod = self.pods.get(name)?;
        let on_ready = pod.node.as_ref().is_some_and(|node| self.node_state(node) == NodeState::Ready);
        match pod.process {
            Process::Up { version, paused: false, .. } if on_ready => Some(version),
            _ => None,
        }
    }
}
