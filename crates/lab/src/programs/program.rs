//! The programs that the lab can build, and how each is made.

use std::{fmt, str::FromStr};

use super::BuildError;

/// The one Kubernetes version of the lab; `lab/go/kubernetes/go.mod` requires the same.
pub const KUBERNETES_VERSION: &str = "1.36.4";

/// An etcd version that the lab can build: one Go module each, under `lab/go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EtcdVersion {
    V3_1_10,
    V3_2_13,
    V3_3_12,
    V3_4_15,
    V3_5_16,
    V3_5_35,
    V3_6_4,
    V3_6_16,
}

impl EtcdVersion {
    /// Every version, oldest first.
    pub const ALL: [Self; 8] = [
        Self::V3_1_10,
        Self::V3_2_13,
        Self::V3_3_12,
        Self::V3_4_15,
        Self::V3_5_16,
        Self::V3_5_35,
        Self::V3_6_4,
        Self::V3_6_16,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V3_1_10 => "3.1.10",
            Self::V3_2_13 => "3.2.13",
            Self::V3_3_12 => "3.3.12",
            Self::V3_4_15 => "3.4.15",
            Self::V3_5_16 => "3.5.16",
            Self::V3_5_35 => "3.5.35",
            Self::V3_6_4 => "3.6.4",
            Self::V3_6_16 => "3.6.16",
        }
    }

    /// The programs that this version is made of: etcdutl exists from 3.5 on.
    pub fn programs(self) -> Vec<Program> {
        let mut programs = vec![Program::Etcd(self), Program::Etcdctl(self)];
        if self >= Self::V3_5_16 {
            programs.push(Program::Etcdutl(self));
        }
        programs
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the lab has no etcd {0}; it has {all}", all = EtcdVersion::ALL.map(EtcdVersion::as_str).join(", "))]
pub struct UnknownEtcdVersion(String);

impl FromStr for EtcdVersion {
    type Err = UnknownEtcdVersion;

    /// Accepts `3.5.16` and `v3.5.16`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.strip_prefix('v').unwrap_or(text);
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == plain)
            .ok_or_else(|| UnknownEtcdVersion(text.to_owned()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubelet,
    KubeProxy,
    Kubectl,
    CoreDns,
    Etcd(EtcdVersion),
    Etcdctl(EtcdVersion),
    Etcdutl(EtcdVersion),
    /// An S3 server over a folder.
    Versitygw,
    LocalPathProvisioner,
    /// Checks bundles for the Operator Lifecycle Manager.
    OperatorVerify,
    /// Installs charts.
    Helm,
    /// The process that holds a pod's namespaces.
    Pause,
    /// Newer than Debian's.
    Nginx,
}

impl Program {
    /// The file's name, which is also the command's name on `PATH`.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Kubectl => "kubectl",
            Self::CoreDns => "coredns",
            Self::Etcd(_) => "etcd",
            Self::Etcdctl(_) => "etcdctl",
            Self::Etcdutl(_) => "etcdutl",
            Self::Versitygw => "versitygw",
            Self::LocalPathProvisioner => "local-path-provisioner",
            Self::OperatorVerify => "operator-verify",
            Self::Helm => "helm",
            Self::Pause => "pause",
            Self::Nginx => "nginx",
        }
    }

    pub(super) fn recipe(self) -> Result<Recipe, BuildError> {
        let go = |module: &str, package: &str| GoBuild {
            module: module.to_owned(),
            package: package.to_owned(),
            ldflags: "-s -w".to_owned(),
            mend: None,
        };
        Ok(Recipe::Go(match self {
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => GoBuild {
                ldflags: format!(
                    "-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES_VERSION} -X k8s.io/client-go/pkg/version.gitVersion=v{KUBERNETES_VERSION}"
                ),
                ..go("kubernetes", &format!("k8s.io/kubernetes/cmd/{}", self.file_name()))
            },
            Self::CoreDns => go("coredns", "."),
            Self::Versitygw => go("versitygw", "github.com/versity/versitygw/cmd/versitygw"),
            Self::LocalPathProvisioner => {
                go("local-path-provisioner", "github.com/rancher/local-path-provisioner")
            }
            Self::OperatorVerify => {
                go("operator-verify", "github.com/operator-framework/api/cmd/operator-verify")
            }
            Self::Helm => go("helm", "helm.sh/helm/v4/cmd/helm"),
            Self::Pause => return Ok(Recipe::C { source: "pause.c" }),
            Self::Nginx => return Ok(Recipe::Nginx),
            Self::Etcd(version) | Self::Etcdctl(version) | Self::Etcdutl(version) => {
                let package = self.etcd_package(version).ok_or(BuildError::NoEtcdutl(version))?;
                let mend = (version <= EtcdVersion::V3_2_13).then_some(UGORJI_MEND);
                GoBuild { mend, ..go(&format!("etcd-{version}"), package) }
            }
        }))
    }

    /// The packages moved with etcd's home; since 3.5 the server has no main package that another module can build.
    fn etcd_package(self, version: EtcdVersion) -> Option<&'static str> {
        let [server, client, tool] = match version {
            EtcdVersion::V3_1_10 | EtcdVersion::V3_2_13 | EtcdVersion::V3_3_12 => {
                [Some("github.com/coreos/etcd"), Some("github.com/coreos/etcd/etcdctl"), None]
            }
            EtcdVersion::V3_4_15 => [Some("go.etcd.io/etcd"), Some("go.etcd.io/etcd/etcdctl"), None],
            EtcdVersion::V3_5_16 | EtcdVersion::V3_5_35 | EtcdVersion::V3_6_4 | EtcdVersion::V3_6_16 => {
                [Some("./etcd"), Some("go.etcd.io/etcd/etcdctl/v3"), Some("go.etcd.io/etcd/etcdutl/v3")]
            }
        };
        match self {
            Self::Etcd(_) => server,
            Self::Etcdctl(_) => client,
            _ => tool,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(version) | Self::Etcdctl(version) | Self::Etcdutl(version) => {
                write!(f, "{} {version}", self.file_name())
            }
            _ => f.write_str(self.file_name()),
        }
    }
}

/// How a program is made from files of `lab/`.
pub(super) enum Recipe {
    Go(GoBuild),
    /// A static program from one C file.
    C {
        source: &'static str,
    },
    Nginx,
}

pub(super) struct GoBuild {
    /// The folder under `lab/go`.
    pub module: String,
    pub package: String,
    pub ldflags: String,
    pub mend: Option<Mend>,
}

/// One line of a dependency that must change for the program to run.
pub(super) struct Mend {
    pub module: &'static str,
    pub file: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

/// Today's Go refuses a base64 alphabet with a repeated letter, which this old codec has: etcd would panic at start.
const UGORJI_MEND: Mend = Mend {
    module: "github.com/ugorji/go",
    file: "codec/gen.go",
    from: "0123456789__\"",
    to: "0123456789_-\"",
};
