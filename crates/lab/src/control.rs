//! The control plane's processes: what runs, with which flags, and how its health is seen.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::error::{At, Result};
use crate::layout::{API_PORT, BUCKET, Layout, REGISTRY_PORT, S3_PORT, SERVICE_RANGE};
use crate::net::{netns_path, within};
use crate::process::{Process, Processes};
use crate::programs::{EtcdVersion, Program, Programs};

pub const S3_ACCESS_KEY: &str = "lab-access-key";
pub const S3_SECRET_KEY: &str = "lab-secret-key";

/// The programs that Kubernetes itself needs: etcd for the control plane is today's.
pub const CONTROL_ETCD: EtcdVersion = EtcdVersion::V3_6_16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Registry,
    S3,
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
}

impl Control {
    /// The components of a lab, in the order of their start.
    pub fn of(lab: &Layout) -> Vec<Self> {
        let mut all = vec![Self::Etcd, Self::ApiServer];
        if lab.is_full() {
            all.extend([Self::Registry, Self::S3, Self::Scheduler]);
        }
        if lab.controllers {
            all.push(Self::ControllerManager);
        }
        all
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::S3 => "s3",
            Self::Etcd => "etcd",
            Self::ApiServer => "apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
        }
    }

    /// Where it takes connections from the host; etcd takes them on the loopback of its namespace alone.
    pub fn address(self, lab: &Layout) -> SocketAddr {
        let port = match self {
            Self::Registry => REGISTRY_PORT,
            Self::S3 => S3_PORT,
            Self::ApiServer => API_PORT,
            Self::ControllerManager => 10257,
            Self::Scheduler => 10259,
            Self::Etcd => return (Ipv4Addr::LOCALHOST, 2379).into(),
        };
        (lab.control_ip(), port).into()
    }

    pub fn answers(self, lab: &Layout) -> bool {
        match self {
            Self::Etcd => answers_inside(&lab.control_netns(), self.address(lab)),
            _ => connects(self.address(lab)),
        }
    }

    pub fn ensure(self, lab: &Layout, programs: &Programs) -> Result<Process> {
        let argv = self.argv(lab, programs)?;
        let inside =
            vec!["nsenter".to_owned(), format!("--net={}", netns_path(&lab.control_netns()).display())];
        processes(lab).ensure(self.name(), &inside, false, &argv)
    }

    fn argv(self, lab: &Layout, programs: &Programs) -> Result<Vec<String>> {
        Ok(match self {
            Self::Registry => registry(lab)?,
            Self::S3 => s3(lab, &programs.path(Program::Versitygw)?)?,
            Self::Etcd => etcd(lab, &programs.path(Program::Etcd(CONTROL_ETCD))?),
            Self::ApiServer => apiserver(lab, &programs.path(Program::KubeApiserver)?)?,
            Self::ControllerManager => {
                controller_manager(lab, &programs.path(Program::KubeControllerManager)?)
            }
            Self::Scheduler => scheduler(lab, &programs.path(Program::KubeScheduler)?),
        })
    }
}

fn connects(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

/// Whether somebody takes connections there, as seen from inside a namespace.
pub fn answers_inside(netns: &str, address: SocketAddr) -> bool {
    within(netns, || connects(address)).unwrap_or(false)
}

pub fn processes(lab: &Layout) -> Processes {
    Processes::new(lab.pids(), lab.logs())
}

fn registry(lab: &Layout) -> Result<Vec<String>> {
    let config = lab.root.join("registry.yaml");
    let text = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{}\"}}\nlog: {{level: warn}}\n",
        lab.root.join("registry").display(),
        lab.registry()
    );
    fs::write(&config, text).at(&config)?;
    Ok(vec!["docker-registry".into(), "serve".into(), config.display().to_string()])
}

/// Buckets are folders there: the book's own exists from the start.
fn s3(lab: &Layout, program: &Path) -> Result<Vec<String>> {
    let data = lab.root.join("s3");
    let bucket = data.join(BUCKET);
    fs::create_dir_all(&bucket).at(&bucket)?;
    write_aws_files(lab)?;
    Ok(vec![
        program.display().to_string(),
        format!("--access={S3_ACCESS_KEY}"),
        format!("--secret={S3_SECRET_KEY}"),
        format!("--port={}:{S3_PORT}", lab.control_ip()),
        "posix".into(),
        data.display().to_string(),
    ])
}

fn write_aws_files(lab: &Layout) -> Result<()> {
    let dir = lab.aws_dir();
    fs::create_dir_all(&dir).at(&dir)?;
    let credentials =
        format!("[default]\naws_access_key_id = {S3_ACCESS_KEY}\naws_secret_access_key = {S3_SECRET_KEY}\n");
    let config = format!(
        "[default]\nregion = us-east-1\nendpoint_url = {}\ns3 =\n  addressing_style = path\n",
        lab.s3_url()
    );
    for (file, text) in [("credentials", credentials), ("config", config)] {
        let path = dir.join(file);
        fs::write(&path, text).at(&path)?;
    }
    Ok(())
}

/// Data of a lab need not survive a power cut.
fn etcd(lab: &Layout, program: &Path) -> Vec<String> {
    vec![
        program.display().to_string(),
        format!("--data-dir={}", lab.root.join("etcd").display()),
        "--listen-client-urls=http://127.0.0.1:2379".into(),
        "--advertise-client-urls=http://127.0.0.1:2379".into(),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
}

fn apiserver(lab: &Layout, program: &Path) -> Result<Vec<String>> {
    let pki = |file: &str| lab.pki().join(file).display().to_string();
    let policy = lab.root.join("audit-policy.yaml");
    fs::write(&policy, include_str!("../../../lab/manifests/audit-policy.yaml")).at(&policy)?;
    let mut argv = vec![program.display().to_string()];
    argv.extend([
        "--etcd-servers=http://127.0.0.1:2379".into(),
        format!("--advertise-address={}", lab.control_ip()),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--authorization-mode=Node,RBAC".into(),
        "--allow-privileged=true".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--kubelet-client-certificate={}", pki("admin.crt")),
        format!("--kubelet-client-key={}", pki("admin.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        format!("--requestheader-client-ca-file={}", pki("ca.crt")),
        format!("--proxy-client-cert-file={}", pki("front-proxy.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy.key")),
        "--requestheader-allowed-names=front-proxy".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        // Webhooks are reached at their pods: no kube-proxy runs beside the API server.
        "--enable-aggregator-routing=true".into(),
        "--runtime-config=storagemigration.k8s.io/v1beta1=true".into(),
        "--feature-gates=StorageVersionMigrator=true".into(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit_log(lab).display()),
        "--audit-log-maxsize=200".into(),
        "--audit-log-maxbackup=1".into(),
    ]);
    Ok(argv)
}

/// Requests of everything that is not part of Kubernetes itself, a line each.
pub fn audit_log(lab: &Layout) -> std::path::PathBuf {
    lab.logs().join("audit.jsonl")
}

fn controller_manager(lab: &Layout, program: &Path) -> Vec<String> {
    let pki = |file: &str| lab.pki().join(file).display().to_string();
    let kubeconfig = pki("controller-manager.kubeconfig");
    vec![
        program.display().to_string(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={}", pki("sa.key")),
        format!("--root-ca-file={}", pki("ca.crt")),
        format!("--cluster-signing-cert-file={}", pki("ca.crt")),
        format!("--cluster-signing-key-file={}", pki("ca.key")),
        "--allocate-node-cidrs=false".into(),
        "--feature-gates=StorageVersionMigrator=true".into(),
        // A lost node shows in seconds, as people who wait for a test would like.
        "--node-monitor-period=2s".into(),
        "--node-monitor-grace-period=16s".into(),
    ]
}

fn scheduler(lab: &Layout, program: &Path) -> Vec<String> {
    let kubeconfig = lab.pki().join("scheduler.kubeconfig").display().to_string();
    vec![
        program.display().to_string(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".into(),
    ]
}
