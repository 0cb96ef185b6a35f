//! What is remembered of a cluster between two rounds. All of it may be lost at any time without harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::EtcdCluster;
use domain::{Action, Backups, HashCheck, Knobs, Moment, Name, Plan, Read, Rolled, Status, Uid};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::members::{Alarms, Links};
use super::refusal::Refused;
use super::watches::{Claim, Key};
use super::written::Written;

#[derive(Default)]
pub struct Memory {
    pub own: Own,
    pub links: Links,
    pub alarms: Alarms,
    /// When each member last answered, or was first looked for.
    pub heard: BTreeMap<Name, Moment>,
    /// Pods whose member answered, last on the version that the pod asks for.
    pub answered: BTreeSet<Uid>,
    /// Since when the member list could be read, but for a moment.
    pub listed_since: Option<Moment>,
    /// When it was last read, or first asked for.
    pub last_listed: Option<Moment>,
    pub leaderless_since: Option<Moment>,
    /// The node that each pod was last seen on.
    pub nodes: BTreeMap<Name, Name>,
    pub hash_checks: Vec<HashCheck>,
    /// `EtcdBackup`s as last looked at, and when.
    pub backups: Option<(Instant, Backups)>,
    /// When each pod was first seen to have an address.
    pub addressed: BTreeMap<Uid, Moment>,
    pub rolled: Option<Rolled>,
    /// When we last changed a pod's image.
    pub patched: BTreeMap<Uid, Moment>,
    /// Something failed or came out otherwise than planned: ask the API server before planning again.
    pub distrust: bool,
    pub refused: Refused,
    /// What was last done, and why.
    pub done: (String, Vec<Action>),
    /// When status was last written.
    pub reported: Option<Instant>,
}

/// Our own writes that the caches may not show yet.
#[derive(Default)]
pub struct Own {
    pub cluster: Written<EtcdCluster>,
    pub pods: Written<Pod>,
    pub claims: Written<Claim>,
    pub services: Written<Service>,
    pub budgets: Written<PodDisruptionBudget>,
}

impl Memory {
    /// Takes note of who answered, and whether a quorum did (`listed`), and forgets those who are nobody's concern any more.
    pub fn hear(
        &mut self,
        listed: bool,
        statuses: &BTreeMap<Name, Read<Status>>,
        pods: &[domain::Pod],
        known: &BTreeSet<Name>,
        now: Moment,
    ) {
        let lately = self.last_listed.is_some_and(|last| now.since(last) < Knobs::default().moment());
        self.listed_since = self.listed_since.filter(|_| listed || lately).or(listed.then_some(now));
        self.last_listed = self.last_listed.filter(|_| !listed).or(Some(now));
        self.heard.retain(|name, _| known.contains(name));
        self.nodes.retain(|name, _| known.contains(name));
        for name in known {
            let answered = statuses.get(name).is_some_and(|status| status.known().is_some());
            if answered {
                self.heard.insert(name.clone(), now);
            } else {
                self.heard.entry(name.clone()).or_insert(now);
            }
        }
        self.answered.retain(|uid| pods.iter().any(|pod| pod.uid == *uid));
        for pod in pods {
            match statuses.get(&pod.name).and_then(Read::known) {
                Some(status) if status.version == pod.version => drop(self.answered.insert(pod.uid.clone())),
                Some(_) => drop(self.answered.remove(&pod.uid)),
                None => {}
            }
        }
        let mut answers = statuses.values().filter_map(Read::known).peekable();
        let leaderless = answers.peek().is_some() && answers.all(|status| status.leader.is_none());
        self.leaderless_since = leaderless.then(|| self.leaderless_since.unwrap_or(now));
    }

    /// Takes note of a plan that was carried out, and tells whether the last one was the very same: then it does not help,
    /// and done at once again it would never end.
    pub fn did_before(&mut self, plan: &Plan) -> bool {
        let done = (plan.why.clone(), plan.actions.clone());
        let same = !done.1.is_empty() && self.done == done;
        self.done = done;
        same
    }
}

/// The memories of all clusters.
#[derive(Default)]
pub struct Memories(std::sync::Mutex<BTreeMap<Key, (String, Arc<Mutex<Memory>>)>>);

impl Memories {
    /// Another EtcdCluster of the same name has nothing in common with the one before.
    pub fn of(&self, key: &Key, uid: &str) -> Arc<Mutex<Memory>> {
        let mut memories = self.lock();
        let (of, memory) = memories.entry(key.clone()).or_default();
        if of != uid {
            uid.clone_into(of);
            *memory = Arc::default();
        }
        memory.clone()
    }

    /// Forgets the clusters that are gone, and names them.
    pub fn retain(&self, exists: impl Fn(&Key) -> bool) -> Vec<Key> {
        let mut memories = self.lock();
        let gone: Vec<Key> = memories.keys().filter(|key| !exists(key)).cloned().collect();
        memories.retain(|key, _| !gone.contains(key));
        gone
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, (String, Arc<Mutex<Memory>>)>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::silent;
    use domain::{Rule, Step};

    #[test]
    fn what_did_not_help_is_not_done_at_once_again() {
        let mut memory = Memory::default();
        let mut again = |why: &str, steps: &[Step]| {
            let actions = steps.iter().cloned().map(Action::from).collect();
            let plan = Plan {
                rule: Rule::Serve,
                why: why.into(),
                actions,
                wake_after: None,
                report: silent(),
                passing: false,
            };
            memory.did_before(&plan)
        };
        let service = [Step::EnsureClientService];
        assert!(!again("", &service), "it is the first time");
        assert!(again("", &service));
        assert!(!again("", &[]) && !again("", &[]), "to wait is no step");
        assert!(!again("", &service));
        assert!(!again("9 to come", &service) && !again("8 to come", &service), "it gets on");
    }

    #[test]
    fn a_quorum_that_is_back_is_a_new_one() {
        let (mut memory, known) = (Memory::default(), BTreeSet::from([Name::from("a")]));
        let second = |second: u64| Moment(second * 1000);
        let mut since = |listed, now| {
            memory.hear(listed, &BTreeMap::new(), &[], &known, second(now));
            (memory.listed_since, memory.last_listed, memory.heard[&Name::from("a")])
        };
        let (first, at) = (second(1), |now| Some(second(now)));
        assert_eq!(since(false, 1), (None, at(1), first), "it was asked for");
        assert_eq!(since(true, 2), (at(2), at(2), first));
        assert_eq!(since(true, 3), (at(2), at(3), first));
        assert_eq!(since(false, 8), (at(2), at(3), first));
        assert_eq!(since(true, 9), (at(2), at(9), first), "it was away for a moment");
        assert_eq!(since(false, 15), (None, at(9), first));
        assert_eq!(since(true, 16), (at(16), at(16), first), "when it was heard is another matter");
    }
}
