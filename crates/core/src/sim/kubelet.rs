//! Scheduler, kubelets and controllers of Kubernetes, as far as the planner can tell.

use std::collections::BTreeSet;

use super::etcd::Voice;
use super::world::{Arms, Process, World};
use crate::ids::Name;
use crate::observation::{Check, NodeState};

impl World {
    pub(super) fn run_kubelets(&mut self) {
        self.schedule();
        let names: Vec<_> = self.pods.keys().cloned().collect();
        for name in names {
            self.run_pod(&name);
        }
        let used: Vec<_> = self.pods.keys().cloned().collect();
        self.claims.retain(|name, claim| !claim.deleting || used.contains(name));
        self.run_image_checks();
        for asked in &mut self.precautions.asked {
            asked.outcome = Check::Passed;
        }
    }

    /// Each pod without a node gets the ready node with the fewest pods.
    fn schedule(&mut self) {
        let waiting: Vec<_> =
            self.pods.iter().filter(|(_, pod)| pod.node.is_none()).map(|(n, _)| n.clone()).collect();
        for name in waiting {
            let ready = self.nodes.iter().filter(|(_, state)| **state == NodeState::Ready);
            let load = |node: &Name| self.pods.values().filter(|pod| pod.node.as_ref() == Some(node)).count();
            let node = ready.map(|(node, _)| node.clone()).min_by_key(|node| (load(node), node.clone()));
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.node = node;
            }
        }
    }

    fn run_pod(&mut self, name: &Name) {
        let Some(pod) = self.pods.get(name) else { return };
        let state = pod.node.as_ref().map(|node| self.node_state(node));
        match state {
            // Pods of a node that is gone are collected; a graceful deletion waits for its kubelet.
            Some(NodeState::Gone) => drop(self.pods.remove(name)),
            None | Some(NodeState::Ready) if pod.deleting => drop(self.pods.remove(name)),
            Some(NodeState::Ready) if !pod.failed => self.run_container(name),
            _ => {}
        }
    }

    fn run_container(&mut self, name: &Name) {
        let Some(pod) = self.pods.get(name) else { return };
        if let Process::Up { version, .. } = pod.process
            && version == pod.version
        {
            return;
        }
        let claim_missing =
            pod.claim.is_some() && self.claims.get(name).is_none_or(|c| Some(&c.uid) != pod.claim.as_ref());
        let process = if claim_missing {
            Process::Down
        } else if self.bad_images.contains(&pod.version) {
            Process::Waiting("ImagePullBackOff".to_owned())
        } else if self.bad_templates.contains(&pod.template) {
            Process::Waiting("CrashLoopBackOff".to_owned())
        } else {
            self.start_etcd(name)
        };
        if let Some(pod) = self.pods.get_mut(name) {
            pod.process = process;
        }
    }

    /// etcd starts in this pod, with the data and the arguments that it finds.
    fn start_etcd(&mut self, name: &Name) -> Process {
        let Some(pod) = self.pods.get(name).cloned() else { return Process::Down };
        let voice = match (self.disk(name).cloned(), &pod.arms) {
            (Some(disk), _) => self.etcd_resumes(&disk, pod.version),
            (None, Arms::New { token }) => self.etcd_bootstraps(name, *token),
            (None, Arms::Restored { token, request }) => {
                self.etcd_restores(name, *token, request, pod.version)
            }
            (None, Arms::Existing { peers }) if self.is_held(name, peers) => return Process::Down,
            (None, Arms::Existing { peers }) => self.etcd_joins(name, peers, pod.version),
            (None, Arms::Disarmed) => Voice::Exits,
        };
        match voice {
            Voice::Exits => {
                if let Some(pod) = self.pods.get_mut(name) {
                    pod.failures += 1;
                }
                Process::Waiting("CrashLoopBackOff".to_owned())
            }
            Voice::Runs(disk) => {
                if let Some(place) = self.disk_mut(name) {
                    *place = Some(disk);
                }
                if let Some(pod) = self.pods.get_mut(name) {
                    pod.failures = 0;
                }
                Process::Up { version: pod.version, speaks: false, paused: false }
            }
        }
    }

    /// Its init container waits until somebody lists exactly the members that it was told of.
    fn is_held(&self, name: &Name, peers: &BTreeSet<Name>) -> bool {
        !self.clusters.iter().any(|(id, cluster)| {
            let listed: BTreeSet<_> = cluster.members.iter().map(|member| member.name.clone()).collect();
            let mut others = cluster.members.iter().filter(|member| member.name != *name);
            listed == *peers && others.any(|member| self.member_up(*id, member).is_some())
        })
    }

    fn run_image_checks(&mut self) {
        let (now, bad) = (self.now, self.bad_images.clone());
        let nodes = self.nodes.clone();
        for check in self.image_checks.iter_mut().filter(|check| check.outcome == Check::Running) {
            check.at = now;
            check.outcome = match nodes.get(&check.node) {
                Some(NodeState::Ready) if bad.contains(&check.version) => {
                    Check::Failed("no such image".to_owned())
                }
                Some(NodeState::Ready) => Check::Passed,
                Some(_) => Check::Running,
                None => Check::Unknown("the node is gone".to_owned()),
            };
        }
    }
}
