//! Finding the members of a cluster, and the one that shall give a snapshot.

use domain::{ClusterId, MemberId};
use etcd::{Expect, Member, Status};
use futures::future::join_all;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// A member that does not answer in this time is not asked for a gigabyte.
const ASK: Duration = Duration::from_secs(3);

/// The client addresses of one cluster, as people write them.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    /// `http://host:2379`, or `host:2379`.
    pub urls: Vec<String>,
    /// Names without a dot are Services of this namespace.
    pub namespace: Option<String>,
}

/// A member that answered.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub member: Member,
    pub status: Status,
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("no endpoint is given")]
    NoEndpoints,
    #[error("{0:?} is no endpoint: write http://host:2379")]
    BadEndpoint(String),
    #[error("{0:?} asks for TLS, which is not supported yet: write http://host:2379")]
    Tls(String),
    #[error("no member answers: {0}")]
    NobodyAnswers(String),
    #[error("the endpoints belong to different clusters, {0} and {1}: name one cluster")]
    TwoClusters(ClusterId, ClusterId),
    #[error("no voter can give an up-to-date snapshot: {0}")]
    NobodyUpToDate(String),
}

impl Endpoints {
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { urls: urls.into_iter().map(Into::into).collect(), namespace: None }
    }

    #[must_use]
    pub fn in_namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// `host:port`, which is what a member is reached by.
    pub(crate) fn address(&self, url: &str) -> Result<String, FindError> {
        let bad = || FindError::BadEndpoint(url.to_owned());
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err(FindError::Tls(url.to_owned())),
            Some(_) => return Err(bad()),
            None => url,
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = rest.rsplit_once(':').ok_or_else(bad)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(bad());
        }
        let is_name = !host.contains(['.', ':']) && host != "localhost";
        Ok(match &self.namespace {
            Some(namespace) if is_name => format!("{host}.{namespace}.svc:{port}"),
            _ => rest.to_owned(),
        })
    }

    fn addresses(&self) -> Result<Vec<String>, FindError> {
        if self.urls.is_empty() {
            return Err(FindError::NoEndpoints);
        }
        self.urls.iter().map(|url| self.address(url)).collect()
    }
}

/// Every member that answers: those behind the endpoints, and those that they know of. Learners too.
pub async fn find(endpoints: &Endpoints) -> Result<Vec<Candidate>, FindError> {
    let given = endpoints.addresses()?;
    let mut found = BTreeMap::<MemberId, Candidate>::new();
    let mut failures = Vec::new();
    let mut cluster = None;
    ask(&given, None, &mut found, &mut failures, &mut cluster).await?;
    if found.is_empty() {
        return Err(FindError::NobodyAnswers(failures.join("; ")));
    }
    // What one of them knows will do: it is only a list of whom else to ask.
    let mut told = Vec::new();
    for candidate in found.values() {
        if let Ok(list) = candidate.member.hearsay().await {
            told = list;
            break;
        }
    }
    let told: Vec<String> = told
        .iter()
        .filter(|listed| !found.contains_key(&listed.id))
        .flat_map(|listed| &listed.client_urls)
        .filter_map(|url| endpoints.address(url).ok())
        .collect();
    ask(&told, cluster, &mut found, &mut failures, &mut cluster).await?;
    Ok(found.into_values().collect())
}

async fn ask(
    addresses: &[String],
    expected: Option<ClusterId>,
    found: &mut BTreeMap<MemberId, Candidate>,
    failures: &mut Vec<String>,
    cluster: &mut Option<ClusterId>,
) -> Result<(), FindError> {
    let asked = addresses.iter().map(|address| async move {
        let member = Member::connect(address, Expect { cluster: expected, member: None })?.with_deadline(ASK);
        let status = member.status().await?;
        Ok::<_, etcd::Error>(Candidate { member: member.expecting(status.identity.into()), status })
    });
    for (address, answer) in addresses.iter().zip(join_all(asked).await) {
        match answer {
            Ok(candidate) => {
                let identity = candidate.status.identity;
                let known = *cluster.get_or_insert(identity.cluster);
                if known != identity.cluster {
                    return Err(FindError::TwoClusters(known, identity.cluster));
                }
                found.entry(identity.member).or_insert(candidate);
            }
            Err(error) => failures.push(format!("{address}: {error}")),
        }
    }
    Ok(())
}

impl Candidate {
    pub fn is_leader(&self) -> bool {
        self.status.leader == Some(self.status.identity.member)
    }

    /// How far it has come in what all of them go through.
    pub fn index(&self) -> u64 {
        self.status.applied_index.unwrap_or(self.status.raft_index)
    }
}

/// The voter that shall give the snapshot, with the revision that it proved by a linearizable read: a follower if one
/// can, the furthest first; the leader has enough to do.
pub(crate) async fn choose(mut candidates: Vec<Candidate>) -> Result<(Candidate, i64), FindError> {
    candidates.retain(|candidate| !candidate.status.learner);
    candidates.sort_by_key(|candidate| (candidate.is_leader(), Reverse(candidate.index())));
    let mut failures = Vec::new();
    for candidate in candidates {
        match candidate.member.revision().await {
            Ok(revision) => return Ok((candidate, revision)),
            Err(error) => failures.push(format!("{}: {error}", candidate.status.identity.member)),
        }
    }
    if failures.is_empty() {
        failures.push("there are only learners".into());
    }
    Err(FindError::NobodyUpToDate(failures.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("http://example-etcd-cluster-client:2379", "example-etcd-cluster-client.here.svc:2379")]
    #[case("http://a.b.svc:2379/", "a.b.svc:2379")]
    #[case("10.0.0.1:2379", "10.0.0.1:2379")]
    #[case("http://[::1]:2379", "[::1]:2379")]
    #[case("localhost:2379", "localhost:2379")]
    fn names_are_resolved_in_the_namespace(#[case] url: &str, #[case] address: &str) {
        assert_eq!(Endpoints::new([url]).in_namespace("here").address(url).unwrap(), address);
    }

    #[rstest]
    #[case("http://host")]
    #[case("host:port")]
    #[case("unix://socket:1")]
    #[case(":2379")]
    fn what_is_no_address_is_said(#[case] url: &str) {
        assert!(matches!(Endpoints::new([url]).addresses(), Err(FindError::BadEndpoint(_))));
    }

    #[test]
    fn tls_is_said_to_be_missing() {
        assert!(matches!(Endpoints::new(["https://a:2379"]).addresses(), Err(FindError::Tls(_))));
        assert!(matches!(Endpoints::default().addresses(), Err(FindError::NoEndpoints)));
    }
}
