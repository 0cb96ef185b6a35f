//! What can go wrong without the operator's doing.

use super::world::{Process, World};
use crate::ids::Name;
use crate::observation::NodeState;

/// Faults name their victim by a number, taken modulo those that there are, so that every number means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    DeletePod(usize),
    /// Evicted: the pod object stays, failed.
    FailPod(usize),
    /// The process dies; the kubelet starts it again.
    KillProcess(usize),
    /// The data directory is emptied and the process dies.
    Wipe(usize),
    /// The data cannot be read any more, and the process dies.
    Corrupt(usize),
    /// The process stops in its tracks.
    Pause(usize),
    NodeDown(usize),
    NodeUp(usize),
    NodeGone(usize),
    DeleteClaim(usize),
    OperatorCrash,
}

impl World {
    pub fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::DeletePod(n) => self.with_pod(n, |pod| pod.deleting = true),
            Fault::FailPod(n) => self.with_pod(n, |pod| {
                pod.failed = true;
                pod.disk = None;
                pod.process = Process::Down;
            }),
            Fault::KillProcess(n) => self.with_pod(n, |pod| pod.process = Process::Down),
            Fault::Wipe(n) => self.spoil(n, |disk| *disk = None),
            Fault::Corrupt(n) => self.spoil(n, |disk| {
                if let Some(disk) = disk {
                    disk.corrupt = true;
                }
            }),
            Fault::Pause(n) => self.with_pod(n, |pod| {
                if let Process::Up { paused, .. } = &mut pod.process {
                    *paused = true;
                }
            }),
            Fault::NodeDown(n) => self.set_node(n, NodeState::NotReady),
            Fault::NodeUp(n) => self.set_node(n, NodeState::Ready),
            Fault::NodeGone(n) => self.set_node(n, NodeState::Gone),
            Fault::DeleteClaim(n) => {
                let count = self.claims.len().max(1);
                if let Some(claim) = self.claims.values_mut().nth(n % count) {
                    claim.deleting = true;
                }
            }
            Fault::OperatorCrash => self.memory = super::Memory::default(),
        }
    }

    /// All faults end: nodes return, processes go on, images can be pulled. Nodes that are gone stay away while another is
    /// left.
    pub fn calm(&mut self) {
        let none_left = self.nodes.values().all(|state| *state == NodeState::Gone);
        for state in self.nodes.values_mut().filter(|state| none_left || **state != NodeState::Gone) {
            *state = NodeState::Ready;
        }
        for pod in self.pods.values_mut() {
            if let Process::Up { paused, .. } = &mut pod.process {
                *paused = false;
            }
        }
        self.bad_images.clear();
        self.bad_templates.clear();
    }

    fn nth_pod(&self, n: usize) -> Option<Name> {
        self.pods.keys().nth(n % self.pods.len().max(1)).cloned()
    }

    fn with_pod(&mut self, n: usize, change: impl FnOnce(&mut super::SimPod)) {
        if let Some(pod) = self.nth_pod(n).and_then(|name| self.pods.get_mut(&name)) {
            change(pod);
        }
    }

    fn spoil(&mut self, n: usize, change: impl FnOnce(&mut Option<super::Disk>)) {
        let Some(name) = self.nth_pod(n) else { return };
        // A member in its first moment, not disarmed or not recorded yet, is beyond any operator's help.
        if self.recorded.cluster.is_none() {
            return;
        }
        if self.pods.get(&name).is_none_or(|pod| pod.arms != super::Arms::Disarmed) {
            return;
        }
        if let Some(disk) = self.disk_mut(&name) {
            change(disk);
        }
        self.with_pod(n, |pod| pod.process = Process::Down);
    }

    fn set_node(&mut self, n: usize, state: NodeState) {
        let count = self.nodes.len().max(1);
        if let Some(node) = self.nodes.values_mut().nth(n % count) {
            *node = state;
        }
    }
}
