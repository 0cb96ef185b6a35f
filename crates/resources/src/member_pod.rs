//! The pod of a member.

use std::collections::BTreeMap;

use api::{
    annotations, labels,
    names::{self, CLIENT_PORT, PEER_PORT},
    v1beta2::RestoreRequest,
};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, ObjectFieldSelector,
    PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume, VolumeMount,
};
use kube::api::ObjectMeta;

use crate::{Cluster, affinity::affinity, check_dns::check_dns, probes, restored_seed, security};

/// Name of the container that runs etcd: an upgrade patches its image.
pub const CONTAINER: &str = "etcd";
pub(crate) const PROGRAM: &str = "/usr/local/bin/etcd";

/// Names that etcd itself does not read: it would take `ETCD_…` for a second, conflicting flag.
const ENV_INITIAL_CLUSTER: &str = "INITIAL_CLUSTER";
const ENV_INITIAL_CLUSTER_STATE: &str = "INITIAL_CLUSTER_STATE";

/// 3.6 takes this many learners at once, enough to grow from one member to seven in one go; others warn and go on.
const MAX_LEARNERS: &str = "6";

/// Entries of the raft log between two snapshots. etcd's own 10 000 to 100 000 leave what later versions cannot read in
/// the log of a quiet cluster, and an upgrade has to write that many to be rid of it.
const SNAPSHOT_COUNT: &str = "2500";
pub const ENV_SNAPSHOT_COUNT: &str = "ETCD_SNAPSHOT_COUNT";

pub(crate) const DATA: &str = "etcd-data";
pub(crate) const DATA_PATH: &str = "/var/etcd";
pub(crate) const DATA_DIR: &str = "/var/etcd/data";
pub(crate) const TMP: &str = "tmp";

/// How a member comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bootstrap<'a> {
    /// The first member of a new cluster, whose identity comes from `token`, a UUID that is never used twice.
    Seed { token: &'a str },
    /// A member that was added: `initial_cluster` is the list read after the add.
    Join { initial_cluster: &'a str },
    /// The first member of a cluster that is made from a backup; its identity comes from `token`, too.
    Restore { request: &'a RestoreRequest, token: &'a str },
    /// A member that comes back to its data, and must not start without it. `inherited`: an operator before ours made that
    /// data, as the user whom the spec or the image names.
    Resume { inherited: bool },
}

/// The pod of `member`, on one version of etcd. Its data is in the claim that is named after it, of UID `volume_uid`, if
/// the spec asks for volumes; else it lives and dies with the pod.
pub fn member_pod(
    cluster: &Cluster<'_>,
    member: &str,
    version: &str,
    bootstrap: Bootstrap<'_>,
    volume_uid: Option<&str>,
) -> Pod {
    let pod = cluster.pod;
    let mut labels = pod.labels.clone();
    labels.retain(|key, _| !labels::is_reserved(key));
    labels.extend(labels::of_member(cluster.name, member));
    let mut annotations = pod.annotations.clone();
    annotations.retain(|key, _| !annotations::is_reserved(key));
    annotations.extend(notes(cluster, member, version, bootstrap, volume_uid));
    let initial_cluster = from_annotation(ENV_INITIAL_CLUSTER, annotations::INITIAL_CLUSTER);
    let mut init_containers = vec![check_dns(&cluster.zone.host(member), initial_cluster, pod)];
    let mut volumes = vec![data_volume(cluster, member), empty_volume(TMP)];
    if let Bootstrap::Restore { request, token } = bootstrap {
        init_containers.extend(restored_seed::init_containers(cluster, member, version, request, token));
        volumes.extend(restored_seed::volumes(request));
    }
    Pod {
        metadata: ObjectMeta { annotations: Some(annotations), ..cluster.owned(member.to_owned(), labels) },
        spec: Some(PodSpec {
            affinity: Some(affinity(cluster.name, pod)),
            automount_service_account_token: Some(false),
            containers: vec![etcd(cluster, member, version, bootstrap)],
            enable_service_links: Some(false),
            hostname: Some(member.to_owned()),
            init_containers: Some(init_containers),
            node_selector: (!pod.node_selector.is_empty()).then(|| pod.node_selector.clone()),
            restart_policy: Some("Always".to_owned()),
            security_context: Some(match bootstrap {
                Bootstrap::Resume { inherited: true } => pod.security_context.clone().unwrap_or_default(),
                _ => security::of_pod(pod),
            }),
            subdomain: Some(names::headless_service(cluster.name)),
            tolerations: (!pod.tolerations.is_empty()).then(|| pod.tolerations.clone()),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn etcd(cluster: &Cluster<'_>, member: &str, version: &str, bootstrap: Bootstrap<'_>) -> Container {
    Container {
        name: CONTAINER.to_owned(),
        image: Some(cluster.image(version)),
        command: Some(command(cluster, member, bootstrap)),
        env: Some(env(&cluster.pod.etcd_env)),
        ports: Some(vec![port("server", PEER_PORT), port("client", CLIENT_PORT)]),
        resources: cluster.pod.resources.clone(),
        security_context: Some(security::of_container()),
        startup_probe: Some(probes::startup()),
        liveness_probe: Some(probes::liveness()),
        readiness_probe: Some(probes::readiness()),
        // The last words of a member that does not start are what a person needs to see in its status.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![mount(DATA, DATA_PATH), mount(TMP, "/tmp")]),
        ..Container::default()
    }
}

/// The book's flags in the book's order. What only a new member may do is left to the pod's annotations: arguments
/// cannot be changed, and a seed that restarts with `new` on wiped data would make a second cluster.
fn command(cluster: &Cluster<'_>, member: &str, bootstrap: Bootstrap<'_>) -> Vec<String> {
    let mut command = vec![
        PROGRAM.to_owned(),
        format!("--data-dir={DATA_DIR}"),
        format!("--name={member}"),
        format!("--initial-advertise-peer-urls={}", cluster.zone.peer_url(member)),
        format!("--listen-peer-urls=http://0.0.0.0:{PEER_PORT}"),
        format!("--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}"),
        format!("--advertise-client-urls={}", cluster.zone.client_url(member)),
        format!("--initial-cluster=$({ENV_INITIAL_CLUSTER})"),
        format!("--initial-cluster-state=$({ENV_INITIAL_CLUSTER_STATE})"),
    ];
    if let Bootstrap::Seed { token } = bootstrap {
        command.push(format!("--initial-cluster-token={token}"));
    }
    command
}

/// What the pod must remember of how it was made.
fn notes(
    cluster: &Cluster<'_>,
    member: &str,
    version: &str,
    bootstrap: Bootstrap<'_>,
    volume_uid: Option<&str>,
) -> BTreeMap<String, String> {
    let (state, peers) = match bootstrap {
        Bootstrap::Seed { .. } => {
            let url = cluster.zone.peer_url(member);
            (annotations::STATE_NEW, names::initial_cluster([(member, url.as_str())]))
        }
        Bootstrap::Join { initial_cluster } => (annotations::STATE_EXISTING, initial_cluster.to_owned()),
        // A restored seed starts on its data or not at all: without it, it would be an empty cluster.
        Bootstrap::Restore { .. } | Bootstrap::Resume { .. } => {
            (annotations::STATE_EXISTING, annotations::DISARMED.to_owned())
        }
    };
    let notes = [
        (annotations::VERSION, version.to_owned()),
        (annotations::INITIAL_CLUSTER_STATE, state.to_owned()),
        (annotations::INITIAL_CLUSTER, peers),
        (annotations::TEMPLATE_HASH, cluster.template_hash.clone()),
    ];
    let volume = volume_uid.map(|uid| (annotations::VOLUME_UID, uid.to_owned()));
    let restored = matches!(bootstrap, Bootstrap::Restore { .. });
    let unstarted = restored.then(|| (annotations::STARTED, "false".to_owned()));
    notes.into_iter().chain(volume).chain(unstarted).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn env(of_user: &[EnvVar]) -> Vec<EnvVar> {
    let fixed =
        |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let ours = [
        from_annotation(ENV_INITIAL_CLUSTER, annotations::INITIAL_CLUSTER),
        from_annotation(ENV_INITIAL_CLUSTER_STATE, annotations::INITIAL_CLUSTER_STATE),
        fixed("ETCD_MAX_LEARNERS", MAX_LEARNERS.to_owned()),
        fixed(ENV_SNAPSHOT_COUNT, SNAPSHOT_COUNT.to_owned()),
    ];
    ours.into_iter().chain(of_user.iter().cloned()).collect()
}

/// A variable that the kubelet sets anew at every start of the container.
pub(crate) fn from_annotation(name: &str, annotation: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.annotations['{annotation}']"),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        value: None,
    }
}

fn data_volume(cluster: &Cluster<'_>, member: &str) -> Volume {
    if cluster.pod.persistent_volume_claim_spec.is_none() {
        return empty_volume(DATA);
    }
    let claim =
        PersistentVolumeClaimVolumeSource { claim_name: names::volume_claim(member), read_only: None };
    Volume { name: DATA.to_owned(), persistent_volume_claim: Some(claim), ..Volume::default() }
}

pub(crate) fn empty_volume(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

pub(crate) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: number.into(), ..ContainerPort::default() }
}
