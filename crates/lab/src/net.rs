//! A lab's network: a namespace for the control plane with a bridge in it, a namespace for each node, one link to the host.
//! No namespace has a default route, so nothing in a lab can reach an address outside it.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};

use crate::error::{At, Error, Result};
use crate::layout::{Layout, MAX_LABS, SERVICE_RANGE, host_link, netns_prefix, node_name};
use crate::process::{run, run_with_input};

pub fn netns_path(netns: &str) -> PathBuf {
    Path::new("/run/netns").join(netns)
}

/// Brings every namespace, link, address and route into being that is not there yet: each by itself, so that it does not matter
/// where another `up` was killed.
pub fn ensure(lab: &Layout) -> Result<()> {
    let control = lab.control_netns();
    let new = ensure_netns(&control)?;
    ensure_link(Some(&control), "br0", "bridge")?;
    connect(&control, "br0", lab.control_ip())?;
    for node in 1..=lab.nodes {
        let (netns, port) = (lab.node_netns(node), format!("to-{}", node_name(node)));
        // A link into a namespace that is gone goes a moment later, by itself: it is not the one that is wanted.
        if ensure_netns(&netns)? || new {
            remove_link(Some(&control), &port)?;
            remove_link(Some(&netns), "eth0")?;
        }
        ensure_link(Some(&control), &port, &format!("veth peer name eth0 netns {netns}"))?;
        connect(&netns, "eth0", lab.node_ip(node))?;
        batch(Some(&control), &format!("link set {port} master br0 up\n"))?;
    }
    let link = lab.host_link();
    if new {
        remove_link(None, &link)?;
    }
    ensure_link(None, &link, &format!("veth peer name to-host netns {control}"))?;
    batch(None, &format!("addr replace {}/24 dev {link}\nlink set {link} up\n", lab.host_ip()))?;
    batch(Some(&control), "link set to-host master br0 up\n")?;
    for from in 0..=lab.nodes {
        let netns = if from == 0 { control.clone() } else { lab.node_netns(from) };
        batch(Some(&netns), &pod_routes(lab, from, ""))?;
    }
    batch(None, &pod_routes(lab, 0, &format!(" dev {link}")))
}

/// The namespace is at this address of the lab's network, and passes on what is for others.
fn connect(netns: &str, link: &str, address: Ipv4Addr) -> Result<()> {
    batch(
        Some(netns),
        &format!(
            "link set lo up\naddr replace {address}/24 dev {link}\nlink set {link} up\nroute replace {SERVICE_RANGE} dev {link}\n"
        ),
    )?;
    let forward = "/proc/sys/net/ipv4/ip_forward";
    within(netns, || fs::write(forward, "1"))?.at(forward)
}

/// Routes to the pods of every node but `from`; "replace" makes it the same whether they exist or not.
fn pod_routes(lab: &Layout, from: u8, suffix: &str) -> String {
    (1..=lab.nodes).filter(|to| *to != from).fold(String::new(), |mut text, to| {
        let _ = writeln!(text, "route replace {} via {}{suffix}", lab.pod_subnet(to), lab.node_ip(to));
        text
    })
}

/// True if it is a new one. One that cannot be entered is the file of an `ip netns add` that was killed.
fn ensure_netns(netns: &str) -> Result<bool> {
    if within(netns, || ()).is_ok() {
        return Ok(false);
    }
    if netns_path(netns).exists() {
        run(&["ip", "netns", "del", netns])?;
    }
    run(&["ip", "netns", "add", netns]).map(|_| true)
}

fn ensure_link(netns: Option<&str>, link: &str, kind: &str) -> Result<()> {
    if link_exists(netns, link) {
        return Ok(());
    }
    batch(netns, &format!("link add {link} type {kind}\n"))
}

fn batch(netns: Option<&str>, commands: &str) -> Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    run_with_input(&[ip(netns), vec!["-batch", "-"]].concat(), commands).map(drop)
}

fn ip(netns: Option<&str>) -> Vec<&str> {
    netns.map_or_else(|| vec!["ip"], |netns| vec!["ip", "-n", netns])
}

fn link_exists(netns: Option<&str>, link: &str) -> bool {
    run(&[ip(netns), vec!["link", "show", link]].concat()).is_ok()
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
    remove_link(None, &host_link(number))
}

fn remove_link(netns: Option<&str>, link: &str) -> Result<()> {
    if link_exists(netns, link)
        && let Err(error) = batch(netns, &format!("link del {link}\n"))
        && link_exists(netns, link)
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
    let address: u32 = address.parse::<Ipv4Addr>().ok()?.into();
    let host_bits = 32 - bits.parse::<u32>().ok().filter(|b| (1..=32).contains(b))?;
    let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
    Some((address & mask, address | !mask))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nix::sched::unshare;

    use super::*;

    #[test]
    fn a_route_into_a_subnet_is_seen_and_the_default_route_is_not() {
        assert!(overlaps("10.200.3.0/24", "10.0.0.0/8 dev eth0"));
        assert!(overlaps("10.200.3.0/24", "10.200.3.7 dev eth0"));
        assert!(overlaps("10.208.0.0/20", "local 10.208.15.1 dev lo"));
        assert!(!overlaps("10.200.3.0/24", "10.200.4.0/24 dev eth0"));
        assert!(!overlaps("10.200.3.0/24", "default via 192.0.2.1 dev eth0"));
    }

    /// All that `ensure` makes, link by link and route by route.
    fn seen(lab: &Layout) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        let namespaces = namespaces(&lab.name);
        for netns in namespaces.iter().map(|netns| Some(netns.as_str())).chain([None]) {
            for what in ["-4 -br addr", "route", "-br link show up", "-br link show master br0"] {
                let shown = run(&[ip(netns), what.split(' ').collect()].concat()).unwrap_or_default();
                for line in shown.lines() {
                    // Hardware addresses and numbers of links are new with each link; the carrier comes a moment later.
                    let settled = |word: &&str| {
                        let begins = word.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
                        begins && !word.contains(':') && *word != "linkdown"
                    };
                    let words =
                        line.split_whitespace().filter(settled).filter_map(|word| word.split('@').next());
                    let words: Vec<&str> = words.collect();
                    all.insert(format!("{netns:?} {what}: {}", words.join(" ")));
                }
            }
        }
        all
    }

    /// In a namespace of its own, with a /run of its own: nothing of it is seen outside.
    #[test]
    fn whatever_is_missing_is_made_and_no_more() {
        let test = || {
            unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
            run(&["mount", "--make-rprivate", "/"]).unwrap();
            run(&["mount", "-t", "tmpfs", "lab", "/run"]).unwrap();
            let root = "/nowhere".into();
            let lab = Layout { name: "half".into(), number: 3, nodes: 2, controllers: true, root };
            ensure(&lab).unwrap();
            let whole = seen(&lab);
            for part in ["br0 10.200.3.1/24", "eth0 10.200.3.12/24", "lab3 10.200.3.254/24"] {
                assert!(whole.iter().any(|line| line.ends_with(part)), "{part}: {whole:#?}");
            }
            ensure(&lab).unwrap();
            assert_eq!(seen(&lab), whole);
            for lost in [
                "ip -n lab-half-cp link del br0",
                "ip -n lab-half-cp link del to-node1",
                "ip -n lab-half-cp link set to-node2 nomaster down",
                "ip -n lab-half-node2 addr flush dev eth0",
                "ip -n lab-half-node1 route del 10.202.0.0/16",
                "ip -n lab-half-node1 link set lo down",
                "ip -n lab-half-cp link set to-host nomaster",
                "ip addr flush dev lab3",
                "ip link del lab3",
                "umount /run/netns/lab-half-node1",
                "umount /run/netns/lab-half-cp",
                "ip -all netns del",
            ] {
                run(&lost.split(' ').collect::<Vec<_>>()).unwrap();
                assert_ne!(seen(&lab), whole, "{lost}");
                ensure(&lab).unwrap_or_else(|error| panic!("{lost}: {error}"));
                assert_eq!(seen(&lab), whole, "{lost}");
            }
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_number_out_of_range_or_taken_is_bad_use() {
        assert_eq!(free_number(Some(200), &[]).unwrap_err().exit_code(), 2);
        assert_eq!(free_number(Some(3), &[3]).unwrap_err().exit_code(), 2);
    }
}
