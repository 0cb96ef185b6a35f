//! A cluster to try rules on: healthy at first, then changed as a case needs it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Decision, RuleFn};
use crate::ids::{ClusterId, MemberId, Name, Uid};
use crate::observation::{
    Backups, Check, Claim, HashCheck, ImageCheck, Member, Node, NodeState, Observation, Pod, PodPhase, Read,
    Recorded, Restore, Rolled, Stage, Status,
};
use crate::spec::{Knobs, Spec, Storage};
use crate::step::Step;
use crate::time::Moment;
use crate::version::{HopTable, Version};
use crate::view::{View, set_aside};

pub const NOW: Moment = Moment(1_000_000_000);

pub struct Scene {
    pub spec: Spec,
    pub seen: Observation,
}

/// `abc` at 3.5.16 on emptyDir: three members, `a` leads, nothing to do.
pub fn healthy(names: &str) -> Scene {
    cluster(names, Storage::EmptyDir)
}

/// The same, with a volume each.
pub fn on_volumes(names: &str) -> Scene {
    cluster(names, Storage::Persistent)
}

fn cluster(names: &str, storage: Storage) -> Scene {
    let mut scene = Scene {
        spec: Spec {
            size: u32::try_from(names.len()).unwrap(),
            version: "3.5.16".to_owned(),
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
        },
        seen: Observation {
            recorded: Recorded {
                seed: Some("a".into()),
                cluster: Some(ClusterId(1)),
                voters: names.chars().map(|c| Name(c.to_string())).collect(),
                version: Some(Version::new(3, 5, 16)),
                restore: None,
            },
            pods: Vec::new(),
            claims: Vec::new(),
            left_claims: Vec::new(),
            live: true,
            headless_service: true,
            client_service: true,
            budget: Some(u32::try_from(names.len()).unwrap() / 2 + 1),
            members: Read::Known(Vec::new()),
            hearsay: Vec::new(),
            statuses: BTreeMap::new(),
            agreed: None,
            seed: None,
            alarms: Read::Known(Vec::new()),
            rival: None,
            image_checks: Vec::new(),
            backups: Read::Known(Backups::default()),
            hash_checks: Vec::new(),
            rolled: None,
            heard: BTreeMap::new(),
            answered: BTreeSet::new(),
            listed_since: Some(Moment(NOW.0 - 900_000)),
            last_listed: NOW,
            leaderless_since: None,
            last_nodes: BTreeMap::new(),
            fresh_names: ["x", "y", "z"].map(Name::from).to_vec(),
        },
    };
    for name in names.chars() {
        scene.join(&name.to_string());
    }
    scene
}

fn id(name: &str) -> MemberId {
    MemberId(u64::from(name.as_bytes()[0]))
}

fn held(name: &str, uid: Uid) -> Claim {
    Claim { name: name.into(), uid, deleting: false, owned: true }
}

impl Scene {
    /// A started, healthy voter.
    fn join(&mut self, name: &str) {
        self.list(name);
        let member = self.member(name);
        member.started = true;
        let version = Version::new(3, 5, 16);
        let claim = (self.spec.storage == Storage::Persistent).then(|| Uid(format!("claim-{name}")));
        self.seen.claims.extend(claim.clone().map(|uid| held(name, uid)));
        self.seen.pods.push(Pod {
            name: name.into(),
            uid: Uid(format!("pod-{name}")),
            phase: PodPhase::Running,
            node: Some(Node { name: Name(format!("node-{name}")), state: NodeState::Ready }),
            repository: "repo".to_owned(),
            version,
            armed: false,
            peers: Vec::new(),
            serving: true,
            ready: true,
            addressed: Some(Moment(NOW.0 - 900_000)),
            begun: true,
            waiting: None,
            failing: None,
            deleting: false,
            template: "t0".to_owned(),
            snapshot_count: 2_500,
            claim,
            created: Moment(NOW.0 - 900_000 + id(name).0),
            changed: Moment(NOW.0 - 900_000),
            updated: true,
        });
        let status = Status {
            cluster: ClusterId(1),
            member: id(name),
            version,
            leader: Some(id("a")),
            term: 2,
            raft_index: 50_000,
            applied_index: 50_000,
            db_size: 1,
            quota: 100,
            learner: false,
        };
        self.seen.statuses.insert(name.into(), Read::Known(status));
        self.seen.heard.insert(name.into(), NOW);
        self.seen.answered.insert(Uid(format!("pod-{name}")));
    }

    /// A member of the list that has not started.
    pub fn list(&mut self, name: &str) {
        let peer_urls = vec![format!("http://{name}:2380")];
        let member = Member { id: id(name), name: name.into(), peer_urls, learner: false, started: false };
        if let Read::Known(members) = &mut self.seen.members {
            members.push(member.clone());
        }
        self.seen.hearsay.push(member);
        self.seen.heard.insert(name.into(), NOW);
    }

    /// A learner that started, follows and is still armed.
    pub fn learner(&mut self, name: &str) {
        self.join(name);
        self.member(name).learner = true;
        self.status(name).learner = true;
        let peers = self.seen.hearsay.iter().map(|member| member.name.clone()).collect();
        let pod = self.pod(name);
        (pod.armed, pod.serving, pod.peers) = (true, false, peers);
    }

    /// A learner in the list, without a pod.
    pub fn unstarted_learner(&mut self, name: &str) {
        self.list(name);
        self.member(name).learner = true;
    }

    /// A pod made for a member that is to be added, on what the others run.
    pub fn held(&mut self, name: &str, peers: &str) {
        let lowest = |view: &View| view.lowest_running();
        let version = self.with_view(lowest).unwrap();
        let claim = (self.spec.storage == Storage::Persistent).then(|| Uid(format!("claim-{name}")));
        self.seen.claims.extend(claim.clone().map(|uid| held(name, uid)));
        let like = self.seen.pods[0].clone();
        self.seen.pods.push(Pod {
            name: name.into(),
            uid: Uid(format!("pod-{name}")),
            phase: PodPhase::Pending,
            version,
            armed: true,
            peers: peers.chars().map(|c| Name(c.to_string())).collect(),
            serving: false,
            ready: false,
            addressed: Some(Moment(NOW.0 - 1_000)),
            template: self.spec.template.clone(),
            claim,
            created: Moment(NOW.0 - 2_000),
            ..like
        });
        self.silence(name, 2);
    }

    pub fn member(&mut self, name: &str) -> &mut Member {
        let Read::Known(members) = &mut self.seen.members else { panic!("no list") };
        members.iter_mut().find(|member| member.name.as_str() == name).unwrap()
    }

    pub fn pod(&mut self, name: &str) -> &mut Pod {
        self.seen.pods.iter_mut().find(|pod| pod.name.as_str() == name).unwrap()
    }

    pub fn status(&mut self, name: &str) -> &mut Status {
        match self.seen.statuses.get_mut(&Name::from(name)) {
            Some(Read::Known(status)) => status,
            _ => panic!("{name} does not answer"),
        }
    }

    pub fn claim(&mut self, name: &str) -> &mut Claim {
        self.seen.claims.iter_mut().find(|claim| claim.name.as_str() == name).unwrap()
    }

    /// The pod is gone from the API.
    pub fn lose_pod(&mut self, name: &str) {
        self.silence(name, 1);
        self.seen.pods.retain(|pod| pod.name.as_str() != name);
        self.seen.statuses.remove(&Name::from(name));
    }

    /// The member has not answered for that long.
    pub fn silence(&mut self, name: &str, seconds: u64) {
        self.seen.statuses.insert(name.into(), Read::Unknown("no answer".to_owned()));
        self.seen.heard.insert(name.into(), Moment(NOW.0 - seconds * 1000));
    }

    pub fn crash(&mut self, name: &str, seconds: u64) {
        self.silence(name, seconds);
        self.pod(name).waiting = Some("CrashLoopBackOff".to_owned());
    }

    /// The member list cannot be read.
    pub fn blind(&mut self) {
        self.seen.members = Read::Unknown("no answer".to_owned());
        self.seen.listed_since = None;
    }

    /// Nobody says anything about members.
    pub fn dark(&mut self) {
        self.blind();
        self.seen.hearsay.clear();
    }

    /// Every member runs this version.
    pub fn run(&mut self, version: &str) {
        let names: Vec<_> = self.seen.pods.iter().map(|pod| pod.name.clone()).collect();
        for name in names {
            self.run_one(name.as_str(), version);
        }
        self.seen.recorded.version = Some(version.parse().unwrap());
        version.clone_into(&mut self.spec.version);
    }

    pub fn run_one(&mut self, name: &str, version: &str) {
        self.pod(name).version = version.parse().unwrap();
        self.status(name).version = version.parse().unwrap();
    }

    pub fn want(&mut self, version: &str) {
        version.clone_into(&mut self.spec.version);
    }

    pub fn checked(&mut self, version: &str, outcome: &Check, seconds_ago: u64) {
        for pod in &self.seen.pods {
            let node = pod.node.clone().unwrap().name;
            self.seen.image_checks.push(ImageCheck {
                pod: Name(format!("check-{node}")),
                uid: "check".into(),
                repository: "repo".to_owned(),
                version: version.parse().unwrap(),
                node,
                outcome: outcome.clone(),
                at: Moment(NOW.0 - seconds_ago * 1000),
            });
        }
    }

    pub fn hashed(&mut self, name: &str, version: &str, outcome: Check) {
        let version = version.parse().unwrap();
        self.seen.hash_checks.push(HashCheck { member: name.into(), version, outcome });
    }

    /// The log is to reach that index before a member goes to that version.
    pub fn rolled(&mut self, version: &str, until: u64) {
        self.seen.rolled = Some(Rolled { cluster: ClusterId(1), version: version.parse().unwrap(), until });
    }

    /// What the rule says, in short: `-`, `wait`, `stuck`, or its steps.
    pub fn ask(&self, rule: RuleFn) -> String {
        self.with_view(|view| said(rule(view)))
    }

    pub fn with_view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        let (seen, kept) = set_aside(&self.seen);
        look(&View { spec: &self.spec, seen: &seen, kept: &kept, now: NOW })
    }
}

fn said(decision: Option<Decision>) -> String {
    match decision {
        None => "-".to_owned(),
        Some(decision) if decision.actions.is_empty() && decision.stuck => "stuck".to_owned(),
        Some(decision) if decision.actions.is_empty() => "wait".to_owned(),
        Some(decision) => {
            decision.actions.iter().map(|action| brief(&action.step)).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A step as a table of cases names it.
fn brief(step: &Step) -> String {
    match step {
        Step::ListLive => "list live".to_owned(),
        Step::RecordSeed { name } => format!("record seed {name}"),
        Step::RecordCluster { id } => format!("record cluster {id}"),
        Step::RecordRestore { restore } => format!("record restore {}", progress(restore)),
        Step::SwapCluster { id, restore, .. } => format!("swap to {id} {}", progress(restore)),
        Step::EnsureHeadlessService => "headless".to_owned(),
        Step::EnsureClientService => "client".to_owned(),
        Step::SetBudget { min_available } => format!("budget {min_available}"),
        Step::CreateSeed { name, version } => format!("seed {name} {version}"),
        Step::CreateRestoredSeed { name, version, .. } => format!("restored seed {name} {version}"),
        Step::CreateMember { name, version, peers, joining } => {
            let peers: String =
                peers.iter().map(|peer| &peer.name).chain(joining).map(Name::as_str).collect();
            format!("create {name} {version} in {peers}")
        }
        Step::ResumeMember { name, version, .. } => format!("resume {name} {version}"),
        Step::Adopt { name, .. } => format!("adopt {name}"),
        Step::MarkPod { name, disarm, serve, .. } => {
            format!(
                "mark {name}{}{}",
                if *disarm { " disarm" } else { "" },
                if *serve { " serve" } else { "" }
            )
        }
        Step::StopServing { name, .. } => format!("stop serving {name}"),
        Step::PatchImage { name, version, .. } => format!("image {name} {version}"),
        Step::DeletePod { name, .. } => format!("delete pod {name}"),
        Step::DeleteClaim { name, .. } => format!("delete claim {name}"),
        Step::OwnClaim { name, owned, .. } => format!("{} {name}", if *owned { "own" } else { "disown" }),
        Step::AddMember { name, learner: true } => format!("add learner {name}"),
        Step::AddMember { name, learner: false } => format!("add voter {name}"),
        Step::Promote { name, .. } => format!("promote {name}"),
        Step::RemoveMember { name, .. } => format!("remove {name}"),
        Step::MoveLeader { to, .. } => format!("move leader to {}", char::from(u8::try_from(to.0).unwrap())),
        Step::CheckImage { version, node } => format!("check {version} on {node}"),
        Step::DropImageCheck { pod, .. } => format!("drop {pod}"),
        Step::RollLog { to } => format!("roll log to {} for {}", to.until, to.version),
        Step::BackUp { of, version } => format!("back up as {of} before {version}"),
        Step::CompareHash { member, with, .. } => format!("compare {member} with {with}"),
    }
}

/// Its stage, and for whom: `seeding x`, `filling x for abc`.
fn progress(restore: &Restore) -> String {
    let stage = match &restore.stage {
        Stage::Seeding => "seeding",
        Stage::Filling => "filling",
        Stage::Done => "done",
        Stage::Failed(_) => "failed",
    };
    let replaced: String = restore.replaced.iter().map(Name::as_str).collect();
    let of = if replaced.is_empty() { String::new() } else { format!(" for {replaced}") };
    format!("{stage} {}{of}", restore.seed)
}
