//! Where a lab keeps its things and which addresses it uses: everything follows from its name and its number.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::images::Registry;

pub const MAX_NODES: u8 = 9;
/// Labs that fit beside each other: each has a number of its own, and with it addresses of its own.
pub const MAX_LABS: u8 = 128;
pub const API_PORT: u16 = 6443;
pub const REGISTRY_PORT: u16 = 5000;
pub const S3_PORT: u16 = 9000;
pub const BUCKET: &str = "mybucket";
/// Services live only inside a lab's namespaces, so every lab may use the same range.
pub const SERVICE_RANGE: &str = "10.202.0.0/16";
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 202, 0, 1);
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 202, 0, 10);

/// A lab as it was asked for; kept in its state folder, so that every later command finds the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub name: String,
    pub number: u8,
    pub nodes: u8,
    /// The controller manager runs; an API-only lab may do without.
    pub controllers: bool,
    pub root: PathBuf,
}

impl Layout {
    /// Kubelets, registry, S3, DNS and volumes are there; an API-only lab has none of them.
    pub fn is_full(&self) -> bool {
        self.nodes > 0
    }

    pub fn node_names(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.nodes).map(node_name)
    }

    /// The number of a node of this lab, from its name.
    pub fn node(&self, name: &str) -> Result<u8> {
        (1..=self.nodes).find(|n| node_name(*n) == name).ok_or_else(|| {
            let known = self.node_names().collect::<Vec<_>>().join(", ");
            Error::usage(format!("lab '{}' has no node '{name}'; it has: {known}", self.name))
        })
    }

    pub fn control_netns(&self) -> String {
        format!("lab-{}-cp", self.name)
    }

    pub fn node_netns(&self, node: u8) -> String {
        format!("lab-{}-{}", self.name, node_name(node))
    }

    /// All network namespaces that this lab may have.
    pub fn netns_prefix(&self) -> String {
        netns_prefix(&self.name)
    }

    /// The one link on the host: to the lab's bridge.
    pub fn host_link(&self) -> String {
        host_link(self.number)
    }

    pub fn control_ip(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.number, 1)
    }

    pub fn host_ip(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.number, 254)
    }

    pub fn node_ip(&self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.number, 10 + node)
    }

    pub fn pod_subnet(&self, node: u8) -> String {
        format!("10.{}.{}.0/24", 208 + self.number / 16, (self.number % 16) * 16 + node)
    }

    /// First and last octets that the lab's networks start with: what must be free on the host.
    pub fn subnets(number: u8) -> [String; 2] {
        [format!("10.200.{number}.0/24"), format!("10.{}.{}.0/20", 208 + number / 16, (number % 16) * 16)]
    }

    pub fn api_url(&self) -> String {
        format!("https://{}:{API_PORT}", self.control_ip())
    }

    pub fn registry(&self) -> String {
        format!("{}:{REGISTRY_PORT}", self.control_ip())
    }

    pub fn s3_url(&self) -> String {
        format!("http://{}:{S3_PORT}", self.control_ip())
    }

    pub fn cgroup(&self) -> String {
        cgroup(&self.name)
    }

    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn pids(&self) -> PathBuf {
        self.root.join("pids")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub fn aws_dir(&self) -> PathBuf {
        self.root.join("aws")
    }

    /// The folder that the lab's registry serves.
    pub fn registry_store(&self) -> Registry {
        Registry::new(&self.root.join("registry"))
    }

    pub fn pause_archive(&self) -> PathBuf {
        self.root.join("pause.tar")
    }

    pub fn node_dir(&self, node: u8) -> PathBuf {
        self.root.join(node_name(node))
    }
}

pub fn node_name(node: u8) -> String {
    format!("node{node}")
}

pub fn netns_prefix(name: &str) -> String {
    format!("lab-{name}-")
}

pub fn host_link(number: u8) -> String {
    format!("lab{number}")
}

pub fn cgroup(name: &str) -> String {
    format!("lab-{name}")
}

/// Every lab's state lies in a folder of its name below this one.
pub fn state_root() -> PathBuf {
    std::env::var_os("LAB_STATE").map_or_else(|| PathBuf::from("/var/lib/etcd-operator-lab"), PathBuf::from)
}

pub fn state_dir(name: &str) -> PathBuf {
    state_root().join(name)
}

/// Names become part of namespaces, folders and cgroups: short, and free of dashes so that no lab's prefix is another's.
pub fn check_name(name: &str) -> Result<()> {
    let fits = (1..=20).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && name.as_bytes()[0].is_ascii_lowercase();
    if fits {
        return Ok(());
    }
    Err(Error::usage(format!(
        "'{name}' is no name for a lab: write 1 to 20 lower-case letters and digits, a letter first"
    )))
}

/// Folder of the checkout that holds Go modules and manifests.
pub fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_collide_or_break_a_path_are_refused() {
        for good in ["test", "a", "ci2"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "2a", "A", "a-b", "a/b", "..", "abcdefghijklmnopqrstu"] {
            assert_eq!(check_name(bad).unwrap_err().exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn no_two_labs_share_an_address() {
        let mut seen = std::collections::HashSet::new();
        for number in 0..MAX_LABS {
            let lab =
                Layout { name: "x".into(), number, nodes: MAX_NODES, controllers: true, root: "/".into() };
            for node in 1..=MAX_NODES {
                assert!(seen.insert(lab.pod_subnet(node)), "{number} {node}");
            }
        }
    }
}
