//! A lab's network: a namespace for the control plane with a bridge in it, a namespace for each node, one link to the host.
//! No namespace has a default route, so nothing in a lab can reach an address outside it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};

use crate::error::{At, Error, Result};
use crate::layout::{Layout, MAX_LABS, SERVICE_RANGE, host_link, netns_prefix, node_name};
use crate::process::{run, run_with_input};

pub fn netns_path(netns: &str) -> PathBuf {
    Path::new("/run/netns").join(netns)
}

/// Brings every namespace, link, address and route into being that is not there yet.
pub fn ensure(lab: &Layout) -> Result<()> {
    let control = lab.control_netns();
    let bridge_port = |node| format!("to-{}", node_name(node));
    if ensure_netns(&control)? {
        batch(
            Some(&control),
            &format!(
                "link set lo up\nlink add br0 type bridge\naddr add {}/24 dev br0\nlink set br0 up\nroute add {SERVICE_RANGE} dev br0\n",
                lab.control_ip()
            ),
        )?;
        forward(&control)?;
    }
    for node in 1..=lab.nodes {
        let netns = lab.node_netns(node);
        if !ensure_netns(&netns)? {
            continue;
        }
        let port = bridge_port(node);
        batch(
            Some(&netns),
            &format!(
                "link set lo up\nlink add eth0 type veth peer name {port} netns {control}\naddr add {}/24 dev eth0\nlink set eth0 up\nroute add {SERVICE_RANGE} dev eth0\n",
                lab.node_ip(node)
            ),
        )?;
        batch(Some(&control), &format!("link set {port} master br0 up\n"))?;
        forward(&netns)?;
    }
    ensure_host_link(lab)?;
    for from in 0..=lab.nodes {
        let netns = if from == 0 { control.clone() } else { lab.node_netns(from) };
        batch(Some(&netns), &pod_routes(lab, from, ""))?;
    }
    batch(None, &pod_routes(lab, 0, &format!(" dev {}", lab.host_link())))
}

/// Routes to the pods of every node but `from`; "replace" makes it the same whether they exist or not.
fn pod_routes(lab: &Layout, from: u8, suffix: &str) -> String {
    (1..=lab.nodes).filter(|to| *to != from).fold(String::new(), |mut text, to| {
        let _ = writeln!(text, "route replace {} via {}{suffix}", lab.pod_subnet(to), lab.node_ip(to));
        text
    })
}

fn ensure_host_link(lab: &Layout) -> Result<()> {
    let link = lab.host_link();
    if link_exists(&link) {
        return Ok(());
    }
    let control = lab.control_netns();
    batch(
        None,
        &format!(
            "link add {link} type veth peer name to-host netns {control}\naddr add {}/24 dev {link}\nlink set {link} up\n",
            lab.host_ip()
        ),
    )?;
    batch(Some(&control), "link set to-host master br0 up\n")
}

fn ensure_netns(netns: &str) -> Result<bool> {
    if netns_path(netns).exists() {
        return Ok(false);
    }
    run(&["ip", "netns", "add", netns])?;
    Ok(true)
}

fn forward(netns: &str) -> Result<()> {
    let net = format!("--net={}", netns_path(netns).display());
    run(&["nsenter", &net, "sysctl", "-qw", "net.ipv4.ip_forward=1"]).map(drop)
}

fn batch(netns: Option<&str>, commands: &str) -> Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    let argv = match netns {
        Some(netns) => vec!["ip", "-n", netns, "-batch", "-"],
        None => vec!["ip", "-batch", "-"],
    };
    run_with_input(&argv, commands).map(drop)
}

fn link_exists(link: &str) -> bool {
    Path::new("/sys/class/net").join(link).exists()
}

/// Does this as a process of the namespace would: what it opens stays there.
pub fn within<T: Send>(netns: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = netns_path(netns);
    let namespace = fs::File::open(&path).at(&path)?;
    let entered = std::thread::scope(|scope| {
        let thread = scope.spawn(|| setns(&namespace, CloneFlags::CLONE_NEWNET).map(|()| work()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    entered.map_err(|e| Error::other(path.display().to_string(), e))
}

/// Namespaces of the lab `name` that exist, whoever made them and whatever became of its state.
pub fn namespaces(name: &str) -> Vec<String> {
    let prefix = netns_prefix(name);
    let mut found: Vec<String> = fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.starts_with(&prefix))
        .collect();
    found.sort();
    found
}

/// Processes whose network is the namespace: that is how a sweep finds what no pid file names.
pub fn pids_in(netns: &str) -> Result<Vec<i32>> {
    let out = run(&["ip", "netns", "pids", netns])?;
    Ok(out.split_whitespace().filter_map(|p| p.parse().ok()).collect())
}

/// Removes the lab's namespaces, and with them its bridge, veths, routes and rules; the host's side of the link goes too.
pub fn remove(name: &str) -> Result<()> {
    for netns in namespaces(name) {
        run(&["ip", "netns", "del", &netns])?;
    }
    Ok(())
}

/// The kernel removes the host's link a moment after its namespace; nobody should see it meanwhile.
pub fn remove_host_link(number: u8) -> Result<()> {
    let link = host_link(number);
    if link_exists(&link)
        && let Err(error) = run(&["ip", "link", "del", &link])
        && link_exists(&link)
    {
        return Err(error);
    }
    Ok(())
}

/// A number whose addresses nobody on this host uses, `taken` by other labs aside.
pub fn free_number(wanted: Option<u8>, taken: &[u8]) -> Result<u8> {
    let routes = run(&["ip", "-4", "route", "show", "table", "all"])?;
    let in_use = |number: u8| {
        Layout::subnets(number).into_iter().find(|subnet| routes.lines().any(|route| overlaps(subnet, route)))
    };
    if let Some(number) = wanted {
        if number >= MAX_LABS {
            return Err(Error::usage(format!("--subnet takes 0 to {}", MAX_LABS - 1)));
        }
        if taken.contains(&number) {
            return Err(Error::usage(format!(
                "subnet {number} is in use by another lab; leave --subnet out to get a free one"
            )));
        }
        return match in_use(number) {
            None => Ok(number),
            Some(subnet) => Err(Error::usage(format!(
                "subnet {number} ({subnet}) is in use on this host; leave --subnet out to get a free one"
            ))),
        };
    }
    (0..MAX_LABS).find(|n| !taken.contains(n) && in_use(*n).is_none()).ok_or_else(|| {
        Error::usage(format!(
            "all {MAX_LABS} subnets (10.200.0.0/17, 10.208.0.0/13) are in use; remove a lab with `lab down`"
        ))
    })
}

/// Whether a line of `ip route` is about addresses inside `subnet`.
fn overlaps(subnet: &str, route: &str) -> bool {
    let target = route.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
    match (range(subnet), target.and_then(range)) {
        (Some((a, b)), Some((c, d))) => a <= d && c <= b,
        _ => false,
    }
}

fn range(cidr: &str) -> Option<(u32, u32)> {
    let (address, bits) = cidr.split_once('/').unwrap_or((cidr, "32"));
    let address: u32 = address.parse::<std::net::Ipv4Addr>().ok()?.into();
    let host_bits = 32 - bits.parse::<u32>().ok().filter(|b| (1..=32).contains(b))?;
    let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
    Some((address & mask, address | !mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_into_a_subnet_is_seen_and_the_default_route_is_not() {
        assert!(overlaps("10.200.3.0/24", "10.0.0.0/8 dev eth0"));
        assert!(overlaps("10.200.3.0/24", "10.200.3.7 dev eth0"));
        assert!(overlaps("10.208.0.0/20", "local 10.208.15.1 dev lo"));
        assert!(!overlaps("10.200.3.0/24", "10.200.4.0/24 dev eth0"));
        assert!(!overlaps("10.200.3.0/24", "default via 192.0.2.1 dev eth0"));
    }

    #[test]
    fn a_number_out_of_range_or_taken_is_bad_use() {
        assert_eq!(free_number(Some(200), &[]).unwrap_err().exit_code(), 2);
        assert_eq!(free_number(Some(3), &[3]).unwrap_err().exit_code(), 2);
    }
}
