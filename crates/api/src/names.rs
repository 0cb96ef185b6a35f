//! Names and addresses of what a cluster is made of.

use rand::{Rng, seq::IndexedRandom};

use crate::EtcdCluster;

pub const CLIENT_PORT: u16 = 2379;
pub const PEER_PORT: u16 = 2380;

/// So long that a member's name still fits a host name: 63 characters, less a dash and the suffix.
pub const MAX_CLUSTER_NAME: usize = 52;
/// Length of the random end of a member's name.
pub const MEMBER_SUFFIX: usize = 10;

/// The alphabet of Kubernetes' own generated names: no vowels and no digits that look like them, so no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A new member's name. Names are never used twice, so that old data is never taken for new.
pub fn new_member(cluster: &str, rng: &mut impl Rng) -> String {
    let suffix: String =
        (0..MEMBER_SUFFIX).filter_map(|_| ALPHABET.choose(rng)).map(|&c| char::from(c)).collect();
    format!("{cluster}-{suffix}")
}

/// The Service that gives every member its host name.
pub fn headless_service(cluster: &str) -> String {
    cluster.to_owned()
}

/// The Service for clients.
pub fn client_service(cluster: &str) -> String {
    format!("{cluster}-client")
}

/// The `PodDisruptionBudget` that keeps evictions from breaking quorum.
pub fn disruption_budget(cluster: &str) -> String {
    cluster.to_owned()
}

/// The claim that holds a member's data: named after the member, so that either is found from the other.
pub fn volume_claim(member: &str) -> String {
    member.to_owned()
}

/// The DNS zone in which the members of one cluster find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    suffix: String,
}

impl Zone {
    /// `cluster_domain` may be empty, and may begin with a dot, as coreos users write it.
    pub fn new(cluster: &str, namespace: &str, cluster_domain: &str) -> Self {
        let service = headless_service(cluster);
        let suffix = match cluster_domain.trim_matches('.') {
            "" => format!("{service}.{namespace}.svc"),
            domain => format!("{service}.{namespace}.svc.{domain}"),
        };
        Self { suffix }
    }

    pub fn of(cluster: &EtcdCluster) -> Self {
        let metadata = &cluster.metadata;
        let domain = cluster.spec.pod.as_ref().map_or("", |pod| &pod.cluster_domain);
        Self::new(
            metadata.name.as_deref().unwrap_or_default(),
            metadata.namespace.as_deref().unwrap_or_default(),
            domain,
        )
    }

    pub fn host(&self, member: &str) -> String {
        format!("{member}.{}", self.suffix)
    }

    pub fn peer_url(&self, member: &str) -> String {
        format!("http://{}:{PEER_PORT}", self.host(member))
    }

    pub fn client_url(&self, member: &str) -> String {
        format!("http://{}:{CLIENT_PORT}", self.host(member))
    }

    /// The member whose peer URL this is. A member that was added and never started has no name in etcd's list: its
    /// URL alone says which pod it waits for.
    pub fn member_of_peer_url<'a>(&self, url: &'a str) -> Option<&'a str> {
        let (host, port) = url.strip_prefix("http://")?.rsplit_once(':')?;
        let member = host.strip_suffix(&self.suffix)?.strip_suffix('.')?;
        (port.parse() == Ok(PEER_PORT) && !member.is_empty() && !member.contains('.')).then_some(member)
    }
}

/// Value of `--initial-cluster` for these members, each a name and its peer URL.
pub fn initial_cluster<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    members.into_iter().map(|(name, url)| format!("{name}={url}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn member_names_are_the_cluster_and_ten_letters_or_digits() {
        let mut rng = StdRng::seed_from_u64(7);
        let cluster = "c".repeat(MAX_CLUSTER_NAME);
        let (one, two) = (new_member(&cluster, &mut rng), new_member(&cluster, &mut rng));
        assert_ne!(one, two);
        for name in [one, two] {
            assert_eq!(name.len(), 63);
            let suffix = name.strip_prefix(&format!("{cluster}-")).unwrap();
            assert!(suffix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{suffix}");
        }
    }

    #[test]
    fn urls_name_the_member_and_the_way_back_finds_it() {
        for (domain, host) in [
            ("", "m-1.c.ns.svc"),
            ("cluster.local", "m-1.c.ns.svc.cluster.local"),
            (".cluster.local", "m-1.c.ns.svc.cluster.local"),
        ] {
            let zone = Zone::new("c", "ns", domain);
            assert_eq!(zone.peer_url("m-1"), format!("http://{host}:2380"));
            assert_eq!(zone.client_url("m-1"), format!("http://{host}:2379"));
            assert_eq!(zone.member_of_peer_url(&zone.peer_url("m-1")), Some("m-1"));
        }
    }

    #[test]
    fn other_peoples_urls_name_no_member_of_ours() {
        let zone = Zone::new("c", "ns", "");
        for url in [
            "http://m-1.other.ns.svc:2380",
            "http://m-1.c.ns.svc:2379",
            "http://.c.ns.svc:2380",
            "http://a.b.c.ns.svc:2380",
            "http://10.0.0.1:2380",
            "m-1.c.ns.svc:2380",
        ] {
            assert_eq!(zone.member_of_peer_url(url), None, "{url}");
        }
    }

    #[test]
    fn initial_cluster_lists_every_member() {
        assert_eq!(
            initial_cluster([("a", "http://a:2380"), ("b", "http://b:2380")]),
            "a=http://a:2380,b=http://b:2380"
        );
    }
}
