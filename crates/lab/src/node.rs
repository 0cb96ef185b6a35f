//! A node: namespaces of its own (network, mounts, processes, host name) with containerd, kubelet and kube-proxy in them.
//!
//! The first process of the PID namespace holds the node together: when it is killed, the kernel ends every process of
//! the node, containers included, and takes the node's mounts away with them. That is also how a machine dies.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::cgroup;
use crate::control::processes;
use crate::error::{At, Error, Result};
use crate::images::Reference;
use crate::layout::{DNS_SERVICE, Layout, node_name};
use crate::net::netns_path;
use crate::process::{Process, run};
use crate::programs::{Program, Programs};
use crate::wait::until;

/// Where kube-proxy tells that it is well, on its node's own loopback.
pub const PROXY_HEALTH: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);
/// How long containers may take to end when their node is stopped.
const GRACE: Duration = Duration::from_secs(10);
pub const PAUSE_IMAGE: &str = "docker.io/lab/pause:1";

/// The kernel's view of /run, logs and what kubelet and CNI keep at fixed places is private to the node and gone after a
/// restart, as on a machine whose /run is in memory; other nodes' disks are hidden.
const HOLD: &str = r#"set -e
name=$1 pause=$2; shift 2
hostname "$name"
for dir in /run /var/log /var/lib/kubelet /var/lib/cni "$@"; do
  mkdir -p "$dir"
  mount -t tmpfs -o mode=755 lab "$dir"
done
mkdir -p /run/netns /run/containerd /run/lock
exec "$pause"
"#;

#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub lab: &'a Layout,
    pub number: u8,
}

/// What runs on a node, in the order of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    Containerd,
    Kubelet,
    Proxy,
}

impl Agent {
    pub const ALL: [Self; 3] = [Self::Containerd, Self::Kubelet, Self::Proxy];

    const fn suffix(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::Proxy => "proxy",
        }
    }
}

impl<'a> Node<'a> {
    pub fn new(lab: &'a Layout, number: u8) -> Self {
        Self { lab, number }
    }

    pub fn all(lab: &'a Layout) -> impl Iterator<Item = Self> {
        (1..=lab.nodes).map(move |number| Self { lab, number })
    }

    pub fn name(&self) -> String {
        node_name(self.number)
    }

    pub fn component(&self, agent: Agent) -> String {
        format!("{}-{}", self.name(), agent.suffix())
    }

    fn dir(&self) -> PathBuf {
        self.lab.node_dir(self.number)
    }

    pub fn volumes(&self) -> PathBuf {
        self.dir().join("volumes")
    }

    pub fn kubelet_dir(&self) -> PathBuf {
        self.dir().join("kubelet")
    }

    fn cgroup(&self) -> String {
        format!("{}/{}", self.lab.cgroup(), self.name())
    }

    pub fn containerd_socket(&self) -> PathBuf {
        self.dir().join("containerd.sock")
    }

    /// Namespaces, mounts and containerd: all that a node needs before there is an API server.
    pub async fn prepare(&self, programs: &Programs, pause_archive: &Path) -> Result<()> {
        for dir in [self.volumes(), self.kubelet_dir(), self.dir().join("logs")] {
            fs::create_dir_all(&dir).at(&dir)?;
        }
        cgroup::ensure(&self.cgroup())?;
        self.hold(&programs.path(Program::Pause)?)?;
        self.write_configs()?;
        self.ensure(Agent::Containerd, programs)?;
        let socket = self.containerd_socket().display().to_string();
        let name = self.component(Agent::Containerd);
        until(&name, Duration::from_mins(1), async || {
            processes(self.lab).check(&name)?;
            Ok(run(&["ctr", "-a", &socket, "version"]).map_err(|e| e.to_string()))
        })
        .await?;
        let archive = pause_archive.display().to_string();
        let images = run(&["ctr", "-a", &socket, "-n", "k8s.io", "images", "ls", "-q"])?;
        if !images.lines().any(|i| i == PAUSE_IMAGE) {
            run(&["ctr", "-a", &socket, "-n", "k8s.io", "images", "import", &archive])?;
        }
        Ok(())
    }

    /// The next pod that names one of these images pulls it anew, as if it had never run here.
    pub fn forget(&self, images: &[Reference]) -> Result<()> {
        if processes(self.lab).alive(&self.component(Agent::Containerd)).is_none() {
            return Ok(());
        }
        let socket = self.containerd_socket().display().to_string();
        let known = run(&["ctr", "-a", &socket, "-n", "k8s.io", "images", "ls", "-q"])?;
        for image in images.iter().map(ToString::to_string).filter(|i| known.lines().any(|k| k == i)) {
            run(&["ctr", "-a", &socket, "-n", "k8s.io", "images", "rm", &image])?;
        }
        Ok(())
    }

    /// Kubelet and kube-proxy, once the API server answers.
    pub fn join(&self, programs: &Programs) -> Result<()> {
        self.ensure(Agent::Kubelet, programs)?;
        self.ensure(Agent::Proxy, programs)?;
        Ok(())
    }

    fn hold(&self, pause: &Path) -> Result<Process> {
        let net = format!("--net={}", netns_path(&self.lab.node_netns(self.number)).display());
        let inside = [
            "nsenter",
            &net,
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            "--mount-proc",
        ]
        .map(str::to_owned);
        let mut argv =
            ["sh", "-c", HOLD, "sh", &self.name(), &pause.display().to_string()].map(str::to_owned).to_vec();
        for other in (1..=self.lab.nodes).filter(|n| *n != self.number) {
            argv.push(self.lab.node_dir(other).display().to_string());
        }
        processes(self.lab).ensure(&self.name(), &inside, true, &argv)
    }

    pub fn ensure(&self, agent: Agent, programs: &Programs) -> Result<Process> {
        let holder = processes(self.lab).alive(&self.name()).ok_or_else(|| {
            Error::usage(format!("{} is stopped; `lab node start {0}` starts it", self.name()))
        })?;
        let net = format!("--net={}", netns_path(&self.lab.node_netns(self.number)).display());
        let target = holder.pid.to_string();
        let inside = ["nsenter", "--target", &target, "--mount", "--uts", "--pid", &net].map(str::to_owned);
        let argv = match agent {
            Agent::Containerd => vec!["containerd".into(), "-c".into(), self.file("containerd.toml")],
            Agent::Kubelet => self.kubelet(&programs.path(Program::Kubelet)?),
            Agent::Proxy => self.proxy(&programs.path(Program::KubeProxy)?),
        };
        processes(self.lab).ensure(&self.component(agent), &inside, true, &argv)
    }

    /// Whether all that makes a node is there.
    pub fn runs(&self) -> bool {
        let agents = Agent::ALL.map(|agent| self.component(agent));
        agents.iter().chain([&self.name()]).all(|name| processes(self.lab).alive(name).is_some())
    }

    /// Everything on the node ends at once, as when the power fails.
    pub fn kill(&self) -> Result<()> {
        let all = processes(self.lab);
        all.end(&self.name(), Duration::ZERO)?;
        for agent in Agent::ALL {
            all.end(&self.component(agent), Duration::ZERO)?;
        }
        // The kernel lets go of the containers' groups a moment after their processes.
        cgroup::remove(&self.cgroup())
    }

    /// Kubelet first, so that it does not restart what ends; then containers get their grace, all at the same time.
    pub fn stop(&self) -> Result<()> {
        let all = processes(self.lab);
        all.end(&self.component(Agent::Kubelet), Duration::from_secs(10))?;
        let pids = cgroup::pids(&self.cgroup()).into_iter();
        let running: Vec<Process> = pids.filter_map(|pid| Process::of_pid(pid, &[])).collect();
        for process in &running {
            process.signal(Signal::SIGTERM)?;
        }
        let end = Instant::now() + GRACE;
        for process in &running {
            process.wait_gone(end.saturating_duration_since(Instant::now()));
        }
        all.end(&self.component(Agent::Containerd), Duration::from_secs(5))?;
        self.kill()
    }

    fn file(&self, name: &str) -> String {
        self.dir().join(name).display().to_string()
    }

    fn kubelet(&self, program: &Path) -> Vec<String> {
        vec![
            program.display().to_string(),
            format!("--config={}", self.file("kubelet.json")),
            format!("--kubeconfig={}", self.lab.pki().join(format!("{}.kubeconfig", self.name())).display()),
            format!("--hostname-override={}", self.name()),
            format!("--node-ip={}", self.lab.node_ip(self.number)),
            format!("--root-dir={}", self.kubelet_dir().display()),
        ]
    }

    fn proxy(&self, program: &Path) -> Vec<String> {
        vec![
            program.display().to_string(),
            format!("--kubeconfig={}", self.lab.pki().join("proxy.kubeconfig").display()),
            format!("--hostname-override={}", self.name()),
            "--proxy-mode=nftables".into(),
            // These live outside network namespaces: the host's values are not ours to change.
            "--conntrack-max-per-core=0".into(),
            "--conntrack-tcp-timeout-established=0".into(),
            "--conntrack-tcp-timeout-close-wait=0".into(),
            format!("--healthz-bind-address={PROXY_HEALTH}"),
            "--metrics-bind-address=127.0.0.1:10249".into(),
        ]
    }

    fn write_configs(&self) -> Result<()> {
        let dir = self.dir();
        let cni = dir.join("cni");
        let mirrors = dir.join("registries/_default");
        for folder in [&cni, &mirrors] {
            fs::create_dir_all(folder).at(folder)?;
        }
        write(&cni.join("10-lab.conflist"), &self.cni())?;
        write(
            &mirrors.join("hosts.toml"),
            &format!("[host.\"http://{}\"]\n  capabilities = [\"pull\", \"resolve\"]\n", self.lab.registry()),
        )?;
        write(&dir.join("containerd.toml"), &self.containerd())?;
        write(&dir.join("resolv.conf"), &format!("nameserver {DNS_SERVICE}\n"))?;
        write(&dir.join("kubelet.json"), &self.kubelet_config())
    }

    fn cni(&self) -> String {
        json!({"cniVersion": "0.4.0", "name": "lab", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": "/var/lib/cni/networks",
                "ranges": [[{"subnet": self.lab.pod_subnet(self.number)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }]})
        .to_string()
    }

    fn containerd(&self) -> String {
        format!(
            r#"version = 2
root = "{dir}/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{dir}/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#,
            dir = self.dir().display(),
            socket = self.containerd_socket().display(),
        )
    }

    fn kubelet_config(&self) -> String {
        let pki = |file: &str| self.lab.pki().join(file).display().to_string();
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": pki("ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": pki(&format!("{}.crt", self.name())),
            "tlsPrivateKeyFile": pki(&format!("{}.key", self.name())),
            "containerRuntimeEndpoint": format!("unix://{}", self.containerd_socket().display()),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.cgroup()),
            "failCgroupV1": false,
            "failSwapOn": false,
            "enforceNodeAllocatable": [],
            "clusterDNS": [DNS_SERVICE.to_string()],
            "clusterDomain": "cluster.local",
            "resolvConf": self.file("resolv.conf"),
            "podLogsDir": self.file("logs"),
            "volumePluginDir": self.file("plugins"),
            "maxPods": 250,
            "serializeImagePulls": false,
            "registryPullQPS": 0,
            "nodeStatusUpdateFrequency": "4s",
            "nodeLeaseDurationSeconds": 20,
            "syncFrequency": "10s",
            // The disk is everyone's: pods are not to be evicted because the host fills up elsewhere.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        })
        .to_string()
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).at(path)
}
