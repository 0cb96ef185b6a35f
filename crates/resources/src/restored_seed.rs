//! What makes a member's data from a backup before etcd starts: fetch and verify, etcd's own tool, and a second look.
//!
//! None needs a shell, and none does anything in a pod that starts over on the data of a member that has started: the
//! kubelet reads that from the pod's annotation each time.

use api::{annotations, names, v1beta2::RestoreRequest};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};

use crate::member_pod::{DATA, DATA_DIR, DATA_PATH, TMP, empty_volume, from_annotation, mount};
use crate::{Cluster, security};

/// The init container that is etcd's own tool. It does not go on where it ended half-way, nor begin anew there.
pub const RESTORE: &str = "restore-backup";
/// The init container that compares what was restored with the backup; its last words are what it found.
pub const VERIFY: &str = "verify-restored";
/// Where a backup on a volume is found, as the request's source has it.
pub const BACKUP_PATH: &str = "/var/backup";

const OPERATOR: &str = "/usr/local/bin/etcd-operator";
const SCRATCH: &str = "restore";
const SCRATCH_PATH: &str = "/var/restore";
const FILE: &str = "/var/restore/backup.db";
const SECRET: &str = "backup-secret";
const SECRET_PATH: &str = "/etc/backup-secret";
const BACKUP: &str = "backup";
const ENV_STARTED: &str = "STARTED";
/// Far more than any cluster writes between a backup and its loss: watchers never see a revision twice.
const BUMP: &str = "--bump-revision=1000000000";

pub fn init_containers(
    cluster: &Cluster<'_>,
    member: &str,
    version: &str,
    request: &RestoreRequest,
    token: &str,
) -> Vec<Container> {
    vec![fetch(request), restore(cluster, member, version, token), verify(request)]
}

pub fn volumes(request: &RestoreRequest) -> Vec<Volume> {
    let secret = request.secret.as_ref().map(|name| Volume {
        name: SECRET.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name.clone()),
            // A pod that starts over needs no backup any more, and must not wait for a Secret that was deleted.
            optional: Some(true),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    });
    let claim = request.claim.as_ref().map(|name| Volume {
        name: BACKUP.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: name.clone(),
            read_only: Some(true),
        }),
        ..Volume::default()
    });
    [empty_volume(SCRATCH)].into_iter().chain(secret).chain(claim).collect()
}

fn fetch(request: &RestoreRequest) -> Container {
    let mut mounts = vec![mount(DATA, DATA_PATH), mount(SCRATCH, SCRATCH_PATH)];
    let mut command = vec!["snapshot".to_owned(), "fetch".to_owned()];
    command.push(format!("--source={}", request.source));
    if request.secret.is_some() {
        command.push(format!("--secret-dir={SECRET_PATH}"));
        mounts.push(read_only(SECRET, SECRET_PATH));
    }
    if request.claim.is_some() {
        mounts.push(read_only(BACKUP, BACKUP_PATH));
    }
    command.push(format!("--to={FILE}"));
    command.push(format!("--expect-digest={}", request.digest));
    // Half of what an earlier try made is in the way of etcd's tool.
    command.push(format!("--clear={DATA_DIR}"));
    command.push(format!("--done=$({ENV_STARTED})"));
    own("fetch-backup", request, command, mounts)
}

fn verify(request: &RestoreRequest) -> Container {
    let mounts = vec![mount(DATA, DATA_PATH), mount(SCRATCH, SCRATCH_PATH)];
    let command = vec![
        "snapshot".to_owned(),
        "verify".to_owned(),
        format!("--data-dir={DATA_DIR}"),
        format!("--expect-digest={}", request.digest),
        format!("--then-remove={FILE}"),
        format!("--done=$({ENV_STARTED})"),
        "--json".to_owned(),
    ];
    own(VERIFY, request, command, mounts)
}

fn own(name: &str, request: &RestoreRequest, arguments: Vec<String>, mounts: Vec<VolumeMount>) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(request.image.clone()),
        command: Some([OPERATOR.to_owned()].into_iter().chain(arguments).collect()),
        env: Some(vec![from_annotation(ENV_STARTED, annotations::STARTED)]),
        security_context: Some(security::of_container()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts.into_iter().chain([mount(TMP, "/tmp")]).collect()),
        ..Container::default()
    }
}

/// etcd's own tool, on the version that the member starts on. Where there is nothing to do any more it prints its help:
/// without a shell, that is the one way to let it be.
fn restore(cluster: &Cluster<'_>, member: &str, version: &str, token: &str) -> Container {
    let url = cluster.zone.peer_url(member);
    let mut command = vec![
        format!("/usr/local/bin/{}", tool(version)),
        "snapshot".to_owned(),
        "restore".to_owned(),
        FILE.to_owned(),
        format!("--data-dir={DATA_DIR}"),
        format!("--name={member}"),
        format!("--initial-cluster={}", names::initial_cluster([(member, url.as_str())])),
        format!("--initial-advertise-peer-urls={url}"),
        format!("--initial-cluster-token={token}"),
        format!("--help=$({ENV_STARTED})"),
    ];
    if bumps_revisions(version) {
        command.extend([BUMP.to_owned(), "--mark-compacted".to_owned()]);
    }
    let api = EnvVar { name: "ETCDCTL_API".to_owned(), value: Some("3".to_owned()), value_from: None };
    Container {
        name: RESTORE.to_owned(),
        image: Some(cluster.image(version)),
        command: Some(command),
        env: Some(vec![from_annotation(ENV_STARTED, annotations::STARTED), api]),
        security_context: Some(security::of_container()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![mount(DATA, DATA_PATH), mount(SCRATCH, SCRATCH_PATH), mount(TMP, "/tmp")]),
        ..Container::default()
    }
}

fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(name, path) }
}

/// `etcdutl` came with 3.5, and 3.6 has nothing else.
fn tool(version: &str) -> &'static str {
    if numbers(version) >= [3, 5, 0] { "etcdutl" } else { "etcdctl" }
}

/// From 3.4.27 and 3.5.10 on.
fn bumps_revisions(version: &str) -> bool {
    let version = numbers(version);
    version >= [3, 5, 10] || ([3, 4, 27]..[3, 5, 0]).contains(&version)
}

fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_tool_and_its_flags() {
        for (version, program, bumps) in [
            ("3.1.10", "etcdctl", false),
            ("3.4.15", "etcdctl", false),
            ("3.4.27", "etcdctl", true),
            ("3.5.9", "etcdutl", false),
            ("3.5.16", "etcdutl", true),
            ("3.6.16", "etcdutl", true),
            ("3.10.0", "etcdutl", true),
        ] {
            assert_eq!((tool(version), bumps_revisions(version)), (program, bumps), "{version}");
        }
    }
}
