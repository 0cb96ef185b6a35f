//! Everything that a round decides on, seen anew: Kubernetes from the caches or live, the members themselves over gRPC.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::names::{self, Zone};
use api::v1beta2::RestoreStage;
use api::{EtcdCluster, labels};
use domain::{Moment, Name, Node, NodeState, Observation, Pod, Read, Recorded, Restore, Stage, Status, Uid};
use k8s_openapi::api::core::v1::{self, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use resources::{Cluster, ClusterError};
use thiserror::Error;

use super::Context;
use super::agreed::agreed;
use super::backups;
use super::members::{self, Answers, Target};
use super::memory::Memory;
use super::pods;
use super::rival;
use super::spec;
use super::watches::{Claim, Key};

/// More than a cluster can have members, and than a round can use.
const FRESH_NAMES: usize = 8;
/// A member that has been silent for less is starting, and its node is not asked for.
const SILENT: Duration = Duration::from_secs(3);

#[derive(Debug, Error)]
pub enum ObserveError {
    #[error(transparent)]
    Build(#[from] ClusterError),
    #[error("cannot list the pods and claims of the cluster: {0}")]
    List(#[from] kube::Error),
}

/// Where pods and claims are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Caches,
    ApiServer,
}

/// What was seen, and the ways to the members that were asked.
pub struct Seen {
    pub observation: Observation,
    pub links: BTreeMap<Name, etcd::Member>,
    /// To a seed in the making.
    pub seed: Option<etcd::Member>,
    pub zone: Zone,
    /// Of pods and claims, as they were seen: a delete of something that changed since is refused.
    pub resource_versions: BTreeMap<Uid, String>,
    /// Claims that an operator before ours made: what is in them belongs to the user that its pods ran as.
    pub inherited: BTreeSet<Uid>,
    /// What was found in the data of a seed made from a backup.
    pub restored: String,
}

pub async fn observe(
    context: &Context,
    cluster: &EtcdCluster,
    memory: &mut Memory,
    source: Source,
    now: Moment,
) -> Result<Seen, ObserveError> {
    let owner = Owner::of(cluster);
    let (all_pods, claims, live) = objects(context, &owner, memory, source).await?;
    let recorded = recorded(cluster);
    let built = Cluster::of(cluster)?;
    let zone = built.zone.clone();

    let member_pods: Vec<&Arc<v1::Pod>> = all_pods.iter().filter(|pod| pods::is_member(pod)).collect();
    let targets: Vec<Target> = member_pods.iter().filter_map(|pod| pods::target(pod)).collect();
    let mut links = memory.links.to(&targets, recorded.cluster);
    // A seed in the making belongs to no cluster that we know: it is asked for itself alone.
    let making = recorded.restore.as_ref().filter(|begun| begun.stage == Stage::Seeding);
    let making = making.map(|begun| begun.seed.clone());
    let restored =
        recorded.restore.as_ref().map(|begun| found_in(&all_pods, &begun.seed)).unwrap_or_default();
    let seed_link = making.as_ref().and_then(|seed| links.remove(seed));
    let seed = match &seed_link {
        Some(link) => members::ask_seed(link, &zone, spec::quota(cluster)).await,
        None => None,
    };
    let Answers { members, hearsay, mut statuses, alarms } =
        members::ask(&links, &zone, spec::quota(cluster), &mut memory.alarms).await;
    for pod in
        member_pods.iter().filter(|pod| making.as_ref().is_none_or(|seed| seed.as_str() != pod.name_any()))
    {
        let silent = || Read::Unknown("its pod has no address yet, or is not waited for".to_owned());
        statuses.entry(pod.name_any().into()).or_insert_with(silent);
    }

    // At rest every member runs what the spec asks for, and there is nothing to go back to.
    let wanted = cluster.spec.version().parse().ok();
    let at_rest =
        statuses.values().all(|status| status.known().is_some_and(|status| Some(status.version) == wanted));
    let agreed = if at_rest { None } else { agreed(targets.iter().map(|target| target.ip)).await };

    let rival = rival::look(context, &member_pods, now).await;
    let mut pods = described(&member_pods, &claims, &targets, memory, now);

    // Nothing is to be done about backups but before a new minor.
    let ahead = wanted.is_some_and(|wanted| pods.iter().any(|pod| pod.version.before_minor_of(wanted)));
    let backups = if ahead {
        backups::look(context, cluster, memory).await
    } else {
        Read::Unknown("no higher minor is asked for".to_owned())
    };

    let listed = members.known().unwrap_or(&hearsay);
    let known: BTreeSet<Name> =
        pods.iter().map(|pod| &pod.name).chain(listed.iter().map(|member| &member.name)).cloned().collect();
    memory.hear(members.known().is_some(), &statuses, &pods, &known, now);
    let last_nodes = nodes(context, memory, &mut pods, &statuses, &known, now).await;

    let retains = cluster.spec.pod().retention().retains_when_scaled() && members.known().is_some();
    let (left_claims, concerning) = parted(&claims, &owner, |name| retains && !known.contains(name));

    let services = services(context, &owner, memory);
    let has = |wanted: &Service| services.iter().any(|service| serves_as(service, wanted));
    let observation = Observation {
        headless_service: has(&resources::headless_service(&built)),
        client_service: has(&resources::client_service(&built)),
        budget: budget(context, &owner, memory),
        image_checks: all_pods
            .iter()
            .filter(|pod| pods::is_image_check(pod))
            .filter_map(|pod| pods::image_check(pod))
            .collect(),
        claims: concerning,
        left_claims,
        backups,
        hash_checks: memory.hash_checks.clone(),
        rolled: memory.rolled,
        heard: memory.heard.clone(),
        answered: memory.answered.clone(),
        listed_since: memory.listed_since,
        last_listed: memory.last_listed.unwrap_or(now),
        leaderless_since: memory.leaderless_since,
        fresh_names: fresh_names(&owner.key.name),
        recorded,
        agreed,
        seed,
        pods,
        live,
        members,
        hearsay,
        statuses,
        alarms,
        rival,
        last_nodes,
    };
    let resource_versions = resource_versions(&all_pods, &claims);
    let inherited = inherited(&claims);
    Ok(Seen { observation, links, seed: seed_link, zone, resource_versions, inherited, restored })
}

/// Fills in how the nodes of pods are, and gives those of pods that are gone.
async fn nodes(
    context: &Context,
    memory: &mut Memory,
    pods: &mut [Pod],
    statuses: &BTreeMap<Name, Read<Status>>,
    known: &BTreeSet<Name>,
    now: Moment,
) -> BTreeMap<Name, NodeState> {
    for pod in &mut *pods {
        if let Some(node) = &mut pod.node {
            memory.nodes.insert(pod.name.clone(), node.name.clone());
            let answers = statuses.get(&pod.name).is_some_and(|status| status.known().is_some());
            let silent = memory.heard.get(&pod.name).is_some_and(|heard| now.since(*heard) >= SILENT);
            // A member that answers proves its node alive, as far as anyone here asks.
            node.state = if answers {
                NodeState::Ready
            } else if silent || pod.deleting {
                context.nodes.state(&node.name).await
            } else {
                NodeState::Unknown
            };
        }
    }
    let mut last_nodes = BTreeMap::new();
    for name in known.iter().filter(|name| !pods.iter().any(|pod| pod.name == **name)) {
        if let Some(node) = memory.nodes.get(name) {
            last_nodes.insert(name.clone(), context.nodes.state(node).await);
        }
    }
    last_nodes
}

/// Claims of members that left stay where the spec says so, and are nobody's concern any more.
fn parted(
    claims: &[Arc<Claim>],
    owner: &Owner,
    left: impl Fn(&Name) -> bool,
) -> (Vec<domain::Claim>, Vec<domain::Claim>) {
    claims.iter().map(|claim| pods::claim(claim, &owner.uid)).partition(|claim| left(&claim.name))
}

fn inherited(claims: &[Arc<Claim>]) -> BTreeSet<Uid> {
    let inherited = claims.iter().filter(|claim| pods::is_inherited_claim(claim));
    inherited.filter_map(|claim| claim.uid().map(Uid::from)).collect()
}

/// What the seed's own pod says it found in the data that it was made from.
fn found_in(pods: &[Arc<v1::Pod>], seed: &Name) -> String {
    let seed = pods.iter().find(|pod| pod.name_any() == seed.as_str());
    seed.and_then(|pod| pods::said_at_end(pod, resources::VERIFY)).unwrap_or_default().to_owned()
}

fn resource_versions(pods: &[Arc<v1::Pod>], claims: &[Arc<Claim>]) -> BTreeMap<Uid, String> {
    let metas = pods.iter().map(|pod| pod.meta()).chain(claims.iter().map(|claim| claim.meta()));
    metas.filter_map(|meta| Some((meta.uid.clone()?.into(), meta.resource_version.clone()?))).collect()
}

/// The member pods as the planner sees them, and since when each has had an address and the image it has.
fn described(
    found: &[&Arc<v1::Pod>],
    claims: &[Arc<Claim>],
    targets: &[Target],
    memory: &mut Memory,
    now: Moment,
) -> Vec<Pod> {
    memory.addressed.retain(|uid, _| targets.iter().any(|target| target.uid == *uid));
    for target in targets {
        memory.addressed.entry(target.uid.clone()).or_insert(now);
    }
    let described = found.iter().map(|pod| {
        let uid = Uid::from(pod.uid().unwrap_or_default());
        let addressed = memory.addressed.get(&uid).copied();
        let pod = pods::member(pod, memory.patched.get(&uid).copied());
        let claim = claims.iter().find(|claim| claim.name_any() == pod.name.as_str());
        let chosen = claim.filter(|_| pod.is_joiner()).and_then(|claim| pods::chosen_node(claim));
        let chosen = chosen.map(|name| Node { name, state: NodeState::Unknown });
        Pod { addressed, node: pod.node.clone().or(chosen), ..pod }
    });
    let pods: Vec<Pod> = described.collect();
    memory.patched.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
    pods
}

type Objects = (Vec<Arc<v1::Pod>>, Vec<Arc<Claim>>, bool);

/// Pods and claims, and whether the API server itself was asked.
async fn objects(
    context: &Context,
    owner: &Owner,
    memory: &mut Memory,
    source: Source,
) -> Result<Objects, ObserveError> {
    if source == Source::Caches && !memory.distrust {
        let (pods, pods_trusted) =
            memory.own.pods.over(context.watches.pods.state_filter(|pod| owner.has(pod)));
        let (claims, claims_trusted) =
            memory.own.claims.over(context.watches.claims.state_filter(|claim| owner.has(claim)));
        if pods_trusted && claims_trusted {
            return Ok((pods, claims, false));
        }
    }
    let key = &owner.key;
    let ours = ListParams::default().labels(&format!("{}={}", labels::CLUSTER, key.name));
    let pods: Api<v1::Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let claims: Api<Claim> = Api::namespaced(context.client.clone(), &key.namespace);
    let (pods, claims) = tokio::try_join!(pods.list(&ours), claims.list(&ours))?;
    let pods: Vec<_> = pods.items.into_iter().filter(|pod| owner.has(pod)).map(Arc::new).collect();
    let claims: Vec<_> = claims.items.into_iter().filter(|claim| owner.has(claim)).map(Arc::new).collect();
    memory.own.pods.settle(&pods);
    memory.own.claims.settle(&claims);
    memory.distrust = false;
    Ok((pods, claims, true))
}

/// Whose objects count. Those of an EtcdCluster of the same name that was deleted are not ours, though they may still
/// be there; those that nobody owns were left behind for us.
struct Owner {
    key: Key,
    uid: String,
}

impl Owner {
    fn of(cluster: &EtcdCluster) -> Self {
        Self { key: Key::of(cluster), uid: cluster.uid().unwrap_or_default() }
    }

    fn has<K: ResourceExt>(&self, object: &K) -> bool {
        let owners = object.owner_references();
        object.meta().namespace.as_deref() == Some(&self.key.namespace)
            && object.labels().get(labels::CLUSTER) == Some(&self.key.name)
            && (owners.is_empty() || owners.iter().any(|owner| owner.uid == self.uid))
    }
}

fn services(context: &Context, owner: &Owner, memory: &mut Memory) -> Vec<Arc<Service>> {
    let cached = context.watches.services.state_filter(|service| owner.has(service));
    memory.own.services.over(cached).0
}

/// Whether a Service is there and does what it is for; what else others put into it is theirs, and survives our apply. One
/// that waits on a finalizer cannot be had anew: the watch tells when it is gone.
fn serves_as(service: &Service, wanted: &Service) -> bool {
    let (Some(spec), Some(wants)) = (&service.spec, &wanted.spec) else { return false };
    let ports = |spec: &ServiceSpec| -> BTreeSet<_> {
        spec.ports.iter().flatten().map(|port| (port.name.clone(), port.port)).collect()
    };
    let headless = |spec: &ServiceSpec| spec.cluster_ip.as_deref() == Some("None");
    let publishes = |spec: &ServiceSpec| spec.publish_not_ready_addresses.unwrap_or(false);
    service.name_any() == wanted.name_any()
        && spec.selector == wants.selector
        && ports(wants).is_subset(&ports(spec))
        && (headless(spec) || !headless(wants))
        && (publishes(spec) || !publishes(wants))
}

fn budget(context: &Context, owner: &Owner, memory: &mut Memory) -> Option<u32> {
    let cached = context.watches.budgets.state_filter(|budget| owner.has(budget));
    let (budgets, _) = memory.own.budgets.over(cached);
    let name = names::disruption_budget(&owner.key.name);
    let budget = budgets.iter().find(|budget| budget.name_any() == name)?;
    match budget.spec.as_ref()?.min_available.as_ref()? {
        IntOrString::Int(number) => u32::try_from(*number).ok(),
        IntOrString::String(_) => None,
    }
}

/// What earlier rounds wrote into status.
fn recorded(cluster: &EtcdCluster) -> Recorded {
    let Some(status) = &cluster.status else { return Recorded::default() };
    let name = |text: &String| (!text.is_empty()).then(|| Name::from(text.as_str()));
    let members = &status.members;
    let listed = members.ready.iter().chain(&members.unready);
    // A quorum of voters is a quorum whatever becomes of a joiner.
    let voters = listed.filter(|member| !members.joining.contains(member));
    Recorded {
        seed: name(&status.seed),
        cluster: spec::recorded_id(cluster).ok().flatten(),
        voters: voters.map(|member| Name::from(member.as_str())).collect(),
        version: status.current_version.parse().ok(),
        restore: status.restore.as_ref().map(|begun| Restore {
            request: begun.uid.as_str().into(),
            seed: begun.seed.as_str().into(),
            stage: match begun.stage {
                RestoreStage::Seeding => Stage::Seeding,
                RestoreStage::Filling => Stage::Filling,
                RestoreStage::Done => Stage::Done,
                RestoreStage::Failed => Stage::Failed(begun.message.clone()),
            },
            again: u32::try_from(begun.again).unwrap_or_default(),
            replaced: begun.replaced.iter().map(|name| name.as_str().into()).collect(),
        }),
    }
}

fn fresh_names(cluster: &str) -> Vec<Name> {
    let mut rng = rand::rng();
    (0..FRESH_NAMES).map(|_| names::new_member(cluster, &mut rng).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::EtcdClusterStatus;
    use api::v1beta2::MembersStatus;
    use k8s_openapi::api::core::v1::ServicePort;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;

    fn made() -> EtcdCluster {
        let mut cluster = EtcdCluster::new("c", api::EtcdClusterSpec::default());
        cluster.metadata.namespace = Some("ns".into());
        cluster.metadata.uid = Some("uid".into());
        cluster
    }

    fn spec(service: &mut Service) -> &mut ServiceSpec {
        service.spec.as_mut().unwrap()
    }

    #[rstest]
    #[case::as_made(|_: &mut Service| {}, true)]
    #[case::a_port_more(|s: &mut Service| {
        let port = ServicePort { name: Some("metrics".into()), port: 9979, ..ServicePort::default() };
        spec(s).ports.as_mut().unwrap().push(port);
    }, true)]
    #[case::a_port_less(|s: &mut Service| drop(spec(s).ports.as_mut().unwrap().pop()), false)]
    #[case::publishes_what_is_not_ready(|s: &mut Service| spec(s).publish_not_ready_addresses = Some(true), true)]
    #[case::waits_on_a_finalizer(|s: &mut Service| s.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::now())), true)]
    #[case::leads_elsewhere(|s: &mut Service| spec(s).selector = None, false)]
    #[case::of_another_name(|s: &mut Service| s.metadata.name = Some("other".into()), false)]
    fn what_others_put_into_a_service_is_theirs(#[case] change: fn(&mut Service), #[case] serves: bool) {
        let wanted = resources::client_service(&Cluster::of(&made()).unwrap());
        let mut found = wanted.clone();
        change(&mut found);
        assert_eq!(serves_as(&found, &wanted), serves);
    }

    #[test]
    fn members_find_each_other_before_they_are_ready() {
        let wanted = resources::headless_service(&Cluster::of(&made()).unwrap());
        let mut found = wanted.clone();
        assert!(serves_as(&found, &wanted));
        spec(&mut found).publish_not_ready_addresses = None;
        assert!(!serves_as(&found, &wanted));
    }

    #[test]
    fn who_has_no_vote_is_not_remembered_as_a_voter() {
        let members = MembersStatus {
            ready: vec!["c-1".into()],
            unready: vec!["c-2".into(), "c-3".into()],
            joining: vec!["c-3".into()],
        };
        let mut cluster = EtcdCluster::new("c", api::EtcdClusterSpec::default());
        cluster.status = Some(EtcdClusterStatus { members, ..EtcdClusterStatus::default() });
        assert_eq!(recorded(&cluster).voters, ["c-1".into(), "c-2".into()]);
    }
}
