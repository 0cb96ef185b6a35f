//! The hands that break things: nodes, links, containers, data, the API server. Each has its way back.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use kube::api::Api;
use kube::runtime::watcher;
use nix::sys::signal::Signal;

use crate::Lab;
use crate::control::{Control, processes};
use crate::error::{At, Error, Result};
use crate::layout::Layout;
use crate::net::netns_path;
use crate::node::{Agent, Node};
use crate::process::{Process, run, run_with_input};
use crate::{cgroup, kit, up};

/// A link that got slow: what it still carries each second, and how many packets of a hundred it loses.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    pub kbit_per_second: u32,
    pub loss_percent: u8,
}

impl Lab {
    fn node_of(&self, name: &str) -> Result<Node<'_>> {
        Ok(Node::new(&self.layout, self.layout.node(name)?))
    }

    /// Everything on the node ends in good order.
    pub fn stop_node(&self, name: &str) -> Result<()> {
        self.node_of(name)?.stop()
    }

    /// The node loses its power: every process on it is gone at once, its disk stays.
    pub fn kill_node(&self, name: &str) -> Result<()> {
        self.node_of(name)?.kill()
    }

    /// A stopped or killed node comes back with the disk it had.
    pub async fn start_node(&self, name: &str) -> Result<()> {
        let node = self.node_of(name)?;
        node.prepare(&self.programs, &self.layout.pause_archive()).await?;
        node.join(&self.programs)
    }

    /// Starts every node that somebody left stopped, killed or without one of its programs.
    pub async fn start_stopped_nodes(&self) -> Result<()> {
        for node in Node::all(&self.layout).filter(|node| !node.runs()) {
            self.start_node(&node.name()).await?;
        }
        Ok(())
    }

    /// Waits until Kubernetes counts the node as Ready.
    pub async fn node_ready(&self, name: &str, limit: Duration) -> Result<()> {
        let api: Api<KubeNode> = Api::all(self.client().await?);
        kit::wait_for(&api, name, limit, "to be Ready", up::is_ready).await.map(drop)
    }

    /// Waits until every node is Ready and takes pods again: its taints go a while after what they were put on for.
    pub async fn nodes_usable(&self, limit: Duration) -> Result<()> {
        let api: Api<KubeNode> = Api::all(self.client().await?);
        let takes_pods = |node: &KubeNode| {
            let spec = node.spec.as_ref();
            let tainted = spec.and_then(|spec| spec.taints.as_ref()).is_some_and(|taints| !taints.is_empty());
            up::is_ready(node) && !tainted && spec.and_then(|spec| spec.unschedulable) != Some(true)
        };
        let all = |nodes: &[KubeNode]| {
            nodes.len() == self.layout.node_names().count() && nodes.iter().all(takes_pods)
        };
        let everywhere = watcher::Config::default();
        kit::wait_for_all(&api, everywhere, limit, "every node to take pods", all).await.map(drop)
    }

    /// No packet passes between the node and anything else.
    pub fn cut_node(&self, name: &str) -> Result<()> {
        self.bridge_port(name, "down")
    }

    pub fn heal_node(&self, name: &str) -> Result<()> {
        self.bridge_port(name, "up")?;
        for other in 1..=self.layout.nodes {
            self.heal_between(name, &crate::layout::node_name(other))?;
        }
        self.unslow_node(name)
    }

    /// Undoes every cut, slow link and pause; stopped nodes stay stopped.
    pub fn mend(&self) -> Result<()> {
        if processes(&self.layout).alive(Control::ApiServer.name()).is_some() {
            self.resume_api_server()?;
        }
        for name in self.layout.node_names() {
            self.heal_node(&name)?;
        }
        Ok(())
    }

    fn bridge_port(&self, name: &str, state: &str) -> Result<()> {
        self.layout.node(name)?;
        run(&["ip", "-n", &self.layout.control_netns(), "link", "set", &format!("to-{name}"), state])
            .map(drop)
    }

    /// Only these two nodes, and their pods, stop hearing each other.
    pub fn cut_between(&self, a: &str, b: &str) -> Result<()> {
        let (here, there) = (self.layout.node(a)?, self.layout.node(b)?);
        let far = format!("{{ {}, {} }}", self.layout.node_ip(there), self.layout.pod_subnet(there));
        let rules = format!(
            "table inet {table} {{\n chain from {{ type filter hook prerouting priority raw; ip saddr {far} drop; }}\n \
             chain to {{ type filter hook postrouting priority filter; ip daddr {far} drop; }}\n}}\n",
            table = cut_table(b)
        );
        self.heal_between(a, b)?;
        self.nft(here, &rules)
    }

    pub fn heal_between(&self, a: &str, b: &str) -> Result<()> {
        for (here, there) in [(a, b), (b, a)] {
            let (node, table) = (self.layout.node(here)?, cut_table(there));
            // Declared first, so that deleting what is not there is no error.
            self.nft(node, &format!("table inet {table}\ndelete table inet {table}\n"))?;
        }
        Ok(())
    }

    fn nft(&self, node: u8, rules: &str) -> Result<()> {
        let net = net_of(&self.layout, node);
        run_with_input(&["nsenter", &net, "nft", "-f", "-"], rules).map(drop)
    }

    /// What the node sends and receives becomes slow and lossy.
    pub fn slow_node(&self, name: &str, slow: Slow) -> Result<()> {
        let node = self.layout.node(name)?;
        self.unslow_node(name)?;
        let (net, rate) = (net_of(&self.layout, node), format!("{}kbit", slow.kbit_per_second));
        run(&[
            "nsenter", &net, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate, "burst",
            "16kb", "latency", "2s",
        ])?;
        let loss = format!(
            "table netdev lab_slow {{\n chain in {{ type filter hook ingress device eth0 priority 0; \
             numgen random mod 100 < {} drop; }}\n}}\n",
            slow.loss_percent
        );
        self.nft(node, &loss)
    }

    pub fn unslow_node(&self, name: &str) -> Result<()> {
        let node = self.layout.node(name)?;
        let net = net_of(&self.layout, node);
        let shaped = run(&["nsenter", &net, "tc", "qdisc", "show", "dev", "eth0"])?.contains("tbf");
        if shaped {
            run(&["nsenter", &net, "tc", "qdisc", "del", "dev", "eth0", "root"])?;
        }
        self.nft(node, "table netdev lab_slow\ndelete table netdev lab_slow\n")
    }

    /// Sends a signal to every process of a pod's container: `SIGKILL` ends it, `SIGSTOP` pauses, `SIGCONT` resumes it.
    pub fn signal_container(&self, pod: &Pod, container: &str, signal: Signal) -> Result<()> {
        let id = container_id(pod, container)?;
        let pids = cgroup::pids_of_container(&self.layout.cgroup(), &id);
        if pids.is_empty() {
            return Err(Error::other(format!("container {container}"), "has no process"));
        }
        for process in pids.into_iter().filter_map(|pid| Process::of_pid(pid, &[])) {
            process.signal(signal)?;
        }
        Ok(())
    }

    /// What tells the processes of the pod with this UID, as soon as it has any: quickly, since some live for moments.
    pub fn pod_processes(&self, uid: &str) -> Option<impl Fn() -> Vec<i32> + use<>> {
        let group = cgroup::of_pod(&self.layout.cgroup(), uid)?;
        Some(move || cgroup::pids_below(&group))
    }

    /// Where the pod's volume of that name lies on this machine.
    pub fn volume_dir(&self, pod: &Pod, volume: &str) -> Result<PathBuf> {
        let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
        let node = self.node_of(node)?;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let empty_dir =
            node.kubelet_dir().join(format!("pods/{uid}/volumes/kubernetes.io~empty-dir/{volume}"));
        if empty_dir.exists() {
            return Ok(empty_dir);
        }
        let claim = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()).find(|v| v.name == volume);
        let claim = claim.and_then(|v| v.persistent_volume_claim.as_ref()).map(|c| c.claim_name.clone());
        let wanted = claim.map(|c| format!("_{}_{c}", pod.metadata.namespace.as_deref().unwrap_or_default()));
        let folders = fs::read_dir(node.volumes()).into_iter().flatten().flatten().map(|e| e.path());
        // The provisioner names folders pvc-UID_NAMESPACE_CLAIM.
        folders
            .into_iter()
            .find(|f| wanted.as_ref().is_some_and(|w| f.to_string_lossy().ends_with(w.as_str())))
            .ok_or_else(|| Error::other(format!("volume {volume}"), "not found on its node"))
    }

    /// The disk loses everything in the pod's volume.
    pub fn wipe(&self, pod: &Pod, volume: &str) -> Result<()> {
        let dir = self.volume_dir(pod, volume)?;
        for entry in fs::read_dir(&dir).at(&dir)?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                fs::remove_dir_all(&path).at(&path)?;
            } else {
                fs::remove_file(&path).at(&path)?;
            }
        }
        Ok(())
    }

    /// Bytes in the middle of the newest file below `folder` (a WAL, a database) turn over.
    pub fn corrupt(&self, pod: &Pod, volume: &str, folder: &str) -> Result<PathBuf> {
        let dir = self.volume_dir(pod, volume)?.join(folder);
        let newest = fs::read_dir(&dir)
            .at(&dir)?
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.is_file() && p.extension().is_none_or(|e| e != "tmp"))
            .max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok())
            .ok_or_else(|| Error::other(dir.display().to_string(), "no file to corrupt"))?;
        flip_bytes(&newest)?;
        Ok(newest)
    }

    pub fn restart_api_server(&self) -> Result<()> {
        processes(&self.layout).end(Control::ApiServer.name(), Duration::from_secs(10))?;
        Control::ApiServer.ensure(&self.layout, &self.programs).map(drop)
    }

    /// The API server stands still: connections are taken and nothing answers.
    pub fn pause_api_server(&self) -> Result<()> {
        self.signal_component(Control::ApiServer.name(), Signal::SIGSTOP)
    }

    pub fn resume_api_server(&self) -> Result<()> {
        self.signal_component(Control::ApiServer.name(), Signal::SIGCONT)
    }

    fn signal_component(&self, name: &str, signal: Signal) -> Result<()> {
        processes(&self.layout).check(name)?;
        processes(&self.layout).get(name).map_or(Ok(()), |p| p.signal(signal))
    }

    pub fn restart_s3(&self) -> Result<()> {
        processes(&self.layout).end(Control::S3.name(), Duration::ZERO)?;
        Control::S3.ensure(&self.layout, &self.programs).map(drop)
    }

    pub fn restart_kubelet(&self, name: &str) -> Result<()> {
        let node = self.node_of(name)?;
        processes(&self.layout).end(&node.component(Agent::Kubelet), Duration::from_secs(5))?;
        node.ensure(Agent::Kubelet, &self.programs).map(drop)
    }
}

/// How much text is turned over: enough to be no number by chance.
const TEXT: usize = 8;

fn cut_table(other: &str) -> String {
    format!("lab_cut_{other}")
}

fn net_of(lab: &Layout, node: u8) -> String {
    format!("--net={}", netns_path(&lab.node_netns(node)).display())
}

fn container_id(pod: &Pod, container: &str) -> Result<String> {
    let statuses = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let id = statuses.into_iter().find(|s| s.name == container).and_then(|s| s.container_id.clone());
    let id = id.and_then(|id| id.rsplit('/').next().map(str::to_owned));
    id.ok_or_else(|| Error::other(format!("container {container}"), "not started"))
}

/// Turns over some text a quarter into what is written. Text, since flipped lengths of records look to etcd like a write
/// that was cut short, which it mends by dropping the rest; and not the end, which is zeros made ahead of time.
fn flip_bytes(path: &Path) -> Result<()> {
    let mut file = fs::File::options().read(true).write(true).open(path).at(path)?;
    let mut content = Vec::new();
    file.read_to_end(&mut content).at(path)?;
    let written = content.iter().rposition(|b| *b != 0).map_or(0, |p| p + 1);
    let is_text = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_graphic);
    let later = content[written / 4..written].windows(TEXT).position(is_text).map(|p| p + written / 4);
    let start = later
        .or_else(|| content[..written].windows(TEXT).position(is_text))
        .ok_or_else(|| Error::other(path.display().to_string(), "holds no text to corrupt"))?;
    let flipped: Vec<u8> = content[start..start + TEXT].iter().map(|b| b ^ 1).collect();
    file.seek(SeekFrom::Start(start as u64)).at(path)?;
    file.write_all(&flipped).at(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrupting_changes_text_and_neither_lengths_nor_padding() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.wal");
        let record = [&[9_u8, 0, 0, 0, 0, 0, 0, 0][..], b"traffic/0001=v", &[0]].concat();
        let mut before = record.repeat(40);
        before.resize(4000, 0);
        fs::write(&path, &before).unwrap();
        flip_bytes(&path).unwrap();
        let after = fs::read(&path).unwrap();
        let changed: Vec<usize> = (0..before.len()).filter(|i| after[*i] != before[*i]).collect();
        assert_eq!(changed.len(), TEXT);
        assert!(changed.iter().all(|i| before[*i].is_ascii_graphic() && *i >= record.len() * 10));
    }

    #[test]
    fn a_file_without_text_is_said_to_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        fs::write(&path, [1, 2, 3]).unwrap();
        assert!(flip_bytes(&path).unwrap_err().to_string().contains("no text"));
    }
}
