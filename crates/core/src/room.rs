//! The waiting room: pods that are made ahead of their members.
//!
//! etcd dials a new member by name at once, and DNS remembers for seconds that it did not know a name. So a pod is made
//! and has its address before its member is added. Its init container holds etcd back, without data, until the others
//! list exactly the members that the pod was told of; pods start while etcd still makes us wait.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::Name;
use crate::observation::{Member, Pod, PodPhase};
use crate::step::Step;
use crate::version::Version;
use crate::view::View;

/// DNS learns of an address a moment after we do.
const DNS_LEARNS: Duration = Duration::from_millis(400);
/// Where members join one at a time: the next one, and the one after it.
const AHEAD: usize = 2;

impl Pod {
    /// Made by an operator before ours, which notes no template. It is kept as it is.
    pub(crate) fn is_inherited(&self) -> bool {
        self.template.is_empty()
    }

    /// Made for a member that joins others.
    #[must_use]
    pub fn is_joiner(&self) -> bool {
        self.armed && self.peers.len() > 1 && self.peers.contains(&self.name)
    }

    fn is_held(&self) -> bool {
        self.is_joiner() && self.phase == PodPhase::Pending && !self.deleting && !self.node_lost()
    }
}

impl<'a> View<'a> {
    /// Pods that wait for a member that is still wanted, in the order in which they join.
    pub fn waiting_room(&self) -> Vec<&'a Pod> {
        // Who does not answer may be on a lower one: nobody is sent away for that.
        let version = self.lowest_running().filter(|_| self.all_answer());
        let usable = |pod: &&Pod| {
            self.members().iter().all(|member| member.name != pod.name)
                && pod.is_held()
                && version.is_none_or(|version| !self.image_differs(pod, version))
                && !self.outdated(pod)
                && !self.unbacked(pod)
        };
        let mut room: Vec<_> = self.seen.pods.iter().filter(usable).collect();
        room.sort_by_key(|pod| (pod.peers.len(), &pod.name));
        room.truncate(self.wanted().saturating_sub(self.members().len()));
        // Who waits for one that does not come waits in vain, and so does who waits for that one.
        loop {
            let names: BTreeSet<_> = room.iter().map(|pod| &pod.name).collect();
            let before = room.len();
            room.retain(|pod| self.will_be_listed(pod, &names));
            if room.len() == before {
                return room;
            }
        }
    }

    /// The pod was told of all members there are, and beside them only of these that are to come.
    pub fn will_be_listed(&self, pod: &Pod, to_come: &BTreeSet<&Name>) -> bool {
        let listed: BTreeSet<_> = self.members().iter().map(|member| &member.name).collect();
        let told: BTreeSet<_> = pod.peers.iter().collect();
        listed.is_subset(&told) && told.difference(&listed).all(|name| to_come.contains(name))
    }

    /// Who has to be added for this pod to start.
    pub fn joins_with<'b>(&self, pod: &'b Pod) -> Vec<&'b Name> {
        let unlisted = |name: &&Name| self.members().iter().all(|member| member.name != **name);
        pod.peers.iter().filter(unlisted).collect()
    }

    /// The leader will find it by its name.
    pub fn reachable(&self, pod: &Pod) -> bool {
        pod.addressed.is_some_and(|since| self.now.since(since) >= DNS_LEARNS)
    }

    pub fn unused_names(&self) -> impl Iterator<Item = &'a Name> {
        self.seen.fresh_names.iter().filter(|name| {
            self.pod(name).is_none()
                && self.claim(name).is_none()
                && self.members().iter().all(|member| member.name != **name)
        })
    }
}

/// How many pods may wait at once, if so many members are missing. Without learners they come one after the other, each
/// when the one before runs: every joiner is a voter from the start.
pub fn places(missing: usize, learner: bool, several: bool) -> usize {
    match (learner, several) {
        (_, true) => missing,
        (true, false) => missing.min(AHEAD),
        (false, false) => missing.min(1),
    }
}

/// Pods for members to come. They join at once where etcd can, or else one after the other, after all in `before`.
pub fn make_ahead(
    names: &[&Name],
    version: Version,
    members: &[Member],
    before: &[&Name],
    several: bool,
) -> Vec<Step> {
    let peers = View::peers(members);
    let step = |(number, name): (usize, &&Name)| {
        let with = if several { names } else { &names[..=number] };
        let joining = before.iter().chain(with).map(|name| (*name).clone()).collect();
        Step::CreateMember { name: (*name).clone(), version, peers: peers.clone(), joining }
    };
    names.iter().enumerate().map(step).collect()
}
