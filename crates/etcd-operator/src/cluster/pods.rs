//! Pods and claims, in the planner's words.

use std::net::IpAddr;

use api::{annotations, labels};
use domain::{
    Check, Failing, IMAGE_REASONS, ImageCheck, Moment, Name, Node, NodeState, Pod, PodPhase, Uid, Version,
};
use k8s_openapi::api::core::v1::{self, ContainerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use resources::{CONTAINER, ENV_SNAPSHOT_COUNT};

use super::image::{is_updated, split_image};
use super::members::Target;
use super::watches::Claim;

/// Why else than for its image a container that waits will not start without somebody's help.
const UNUSABLE: [&str; 3] = ["CreateContainerError", "CreateContainerConfigError", "RunContainerError"];

/// What etcd does from 3.2 on where nobody sets it.
const DEFAULT_SNAPSHOT_COUNT: u64 = 100_000;

pub fn is_image_check(pod: &v1::Pod) -> bool {
    pod.labels().get(labels::APP).is_some_and(|app| app == labels::APP_IMAGE_CHECK)
}

pub fn is_member(pod: &v1::Pod) -> bool {
    pod.labels().get(labels::APP).is_some_and(|app| app == labels::APP_ETCD)
}

/// Where a pod's member can be asked.
pub fn target(pod: &v1::Pod) -> Option<Target> {
    let ip: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    Some(Target { name: pod.name_any().into(), uid: uid(pod), ip })
}

/// The planner's view of a member's pod; `patched` is when we last changed its image.
pub fn member(pod: &v1::Pod, patched: Option<Moment>) -> Pod {
    let image = image(pod).unwrap_or_default();
    let (repository, version) = split_image(image);
    let annotation = |key: &str| pod.annotations().get(key).map(String::as_str);
    let created = moment(pod.metadata.creation_timestamp.as_ref());
    let armed = is_armed(pod);
    Pod {
        name: pod.name_any().into(),
        uid: uid(pod),
        phase: phase(pod),
        node: node(pod).map(|name| Node { name, state: NodeState::Unknown }),
        repository: repository.to_owned(),
        version: version
            .or_else(|| annotation(annotations::VERSION)?.parse().ok())
            .unwrap_or(Version::new(0, 0, 0)),
        armed,
        peers: if armed {
            peers(annotation(annotations::INITIAL_CLUSTER).unwrap_or_default())
        } else {
            Vec::new()
        },
        serving: labels::is_serving(pod.labels()),
        ready: is_ready(pod),
        addressed: None,
        begun: has_begun(pod),
        waiting: waiting(pod),
        failing: failing(pod),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        template: annotation(annotations::TEMPLATE_HASH).unwrap_or_default().to_owned(),
        snapshot_count: snapshot_count(pod),
        claim: annotation(annotations::VOLUME_UID).map(Uid::from),
        created,
        changed: [patched, first_started(pod)].into_iter().flatten().fold(created, Moment::max),
        updated: is_updated(pod, image, patched),
    }
}

/// Whether no operator of ours made it, or took it over.
pub fn is_inherited(pod: &v1::Pod) -> bool {
    !pod.annotations().contains_key(annotations::TEMPLATE_HASH)
}

/// The same of a claim: ours name their member.
pub fn is_inherited_claim(claim: &Claim) -> bool {
    !claim.labels().contains_key(labels::NODE)
}

/// The planner's view of a throw-away pod; `None` for one that nobody can make sense of.
pub fn image_check(pod: &v1::Pod) -> Option<ImageCheck> {
    let (repository, version) = split_image(image(pod)?);
    let ended = etcd_status(pod)
        .and_then(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref())
        .map(|time| moment(Some(time)));
    Some(ImageCheck {
        pod: pod.name_any().into(),
        uid: uid(pod),
        repository: repository.to_owned(),
        version: version?,
        node: node(pod)?,
        outcome: outcome(pod),
        at: ended.unwrap_or_else(|| moment(pod.metadata.creation_timestamp.as_ref())),
    })
}

fn outcome(pod: &v1::Pod) -> Check {
    let status = pod.status.as_ref();
    match phase(pod) {
        PodPhase::Succeeded => return Check::Passed,
        PodPhase::Failed => {
            let ended = etcd_status(pod).and_then(|status| status.state.as_ref()?.terminated.as_ref());
            let code = ended.map(|ended| format!("etcd --version ended with code {}", ended.exit_code));
            let said = status.and_then(|status| status.message.clone().or_else(|| status.reason.clone()));
            return Check::Failed(code.or(said).unwrap_or_else(|| "the pod failed".into()));
        }
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => {}
    }
    match waiting_state(pod) {
        Some((reason, message)) if UNUSABLE.iter().chain(&IMAGE_REASONS).any(|one| *one == reason) => {
            Check::Failed(format!("{reason}: {message}"))
        }
        _ => Check::Running,
    }
}

/// `owner`: the UID of our EtcdCluster.
pub fn claim(claim: &Claim, owner: &str) -> domain::Claim {
    domain::Claim {
        name: claim.name_any().into(),
        uid: claim.uid().unwrap_or_default().into(),
        deleting: claim.metadata.deletion_timestamp.is_some(),
        owned: claim.owner_references().iter().any(|reference| reference.uid == owner),
    }
}

/// Where the volume of a claim is to be made. Its pod is bound to that node only when it is there.
pub fn chosen_node(claim: &Claim) -> Option<Name> {
    let bound = claim.annotations().contains_key("pv.kubernetes.io/bind-completed");
    let chosen = claim.annotations().get("volume.kubernetes.io/selected-node");
    chosen.filter(|_| !bound).map(|node| Name::from(node.as_str()))
}

pub fn moment(time: Option<&Time>) -> Moment {
    Moment(time.and_then(|time| u64::try_from(time.0.as_millisecond()).ok()).unwrap_or_default())
}

fn uid(pod: &v1::Pod) -> Uid {
    pod.uid().unwrap_or_default().into()
}

fn node(pod: &v1::Pod) -> Option<Name> {
    pod.spec.as_ref()?.node_name.as_deref().map(Name::from)
}

fn image(pod: &v1::Pod) -> Option<&str> {
    etcd_container(pod)?.image.as_deref()
}

fn etcd_container(pod: &v1::Pod) -> Option<&v1::Container> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == CONTAINER).or(containers.first())
}

/// Of a variable that is set twice the last one counts. Pods of coreos set none, and have etcd's default.
fn snapshot_count(pod: &v1::Pod) -> u64 {
    let env = etcd_container(pod).and_then(|etcd| etcd.env.as_deref()).unwrap_or_default();
    let set = env.iter().rfind(|env| env.name == ENV_SNAPSHOT_COUNT);
    set.and_then(|env| env.value.as_deref()?.parse().ok()).unwrap_or(DEFAULT_SNAPSHOT_COUNT)
}

/// Bootstrap arguments are live until they were disarmed, and so are the init containers of a restored seed. Pods of
/// coreos carry none in annotations, and cannot be.
pub fn is_armed(pod: &v1::Pod) -> bool {
    let says = |key: &str| pod.annotations().get(key).map(String::as_str);
    says(annotations::INITIAL_CLUSTER).is_some_and(|peers| peers != annotations::DISARMED)
        || says(annotations::STARTED) == Some("false")
}

/// The container that failed most often, unless it runs now.
fn failing(pod: &v1::Pod) -> Option<Failing> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let failed = all.filter_map(|container| {
        let (now, before) = (container.state.as_ref()?, container.last_state.as_ref());
        let ended = now.terminated.as_ref().or_else(|| {
            now.waiting.as_ref().and_then(|_| before.and_then(|state| state.terminated.as_ref()))
        })?;
        let said = ended.message.as_deref().map(str::trim).filter(|said| !said.is_empty());
        let words = said.map_or_else(|| format!("it ended with code {}", ended.exit_code), last_line);
        let words = format!("{}: {words}", container.name);
        // The first end is not yet counted as a restart.
        let times = u32::try_from(container.restart_count).ok()? + u32::from(now.terminated.is_some());
        let spoils = container.name == resources::RESTORE;
        (ended.exit_code != 0).then_some(Failing { times: times.max(1), words, spoils })
    });
    failed.max_by_key(|failing| failing.times)
}

fn last_line(text: &str) -> String {
    text.lines().next_back().unwrap_or_default().to_owned()
}

/// What the init container of that name said when it ended well.
pub fn said_at_end<'a>(pod: &'a v1::Pod, container: &str) -> Option<&'a str> {
    let statuses = pod.status.as_ref()?.init_container_statuses.as_deref()?;
    let status = statuses.iter().find(|status| status.name == container)?;
    let ended = status.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code == 0)?;
    ended.message.as_deref()
}

/// Names in a value of `--initial-cluster`.
fn peers(initial_cluster: &str) -> Vec<Name> {
    let names =
        initial_cluster.split(',').filter_map(|peer| peer.split_once('=')).map(|(name, _)| name.into());
    names.collect()
}

fn phase(pod: &v1::Pod) -> PodPhase {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        None | Some("Pending" | "") => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) => PodPhase::Unknown,
    }
}

fn is_ready(pod: &v1::Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn has_begun(pod: &v1::Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.any(|container| {
        let now =
            container.state.as_ref().is_some_and(|now| now.running.is_some() || now.terminated.is_some());
        now || container.last_state.as_ref().is_some_and(|before| before.terminated.is_some())
    })
}

fn waiting(pod: &v1::Pod) -> Option<String> {
    waiting_state(pod).map(|(reason, _)| reason.to_owned())
}

/// Why a container of the pod waits, if not merely for its turn.
fn waiting_state(pod: &v1::Pod) -> Option<(&str, &str)> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.filter_map(|container| container.state.as_ref()?.waiting.as_ref())
        .filter_map(|waiting| {
            Some((waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default()))
        })
        .find(|(reason, _)| !["PodInitializing", "ContainerCreating"].contains(reason))
}

pub fn etcd_status(pod: &v1::Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    statuses.iter().find(|status| status.name == CONTAINER).or(statuses.first())
}

/// When etcd first ran in this pod: until then nobody could answer. Not told of a pod where it started many times.
fn first_started(pod: &v1::Pod) -> Option<Moment> {
    let status = etcd_status(pod)?;
    let started = match status.restart_count {
        0 => status.state.as_ref()?.running.as_ref()?.started_at.as_ref(),
        1 => status.last_state.as_ref()?.terminated.as_ref()?.started_at.as_ref(),
        _ => None,
    };
    started.map(|started| moment(Some(started)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn pod(status: Value) -> v1::Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "c-1", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "etcd", "etcd_cluster": "c", "etcd_node": "c-1"},
                "annotations": {
                    annotations::INITIAL_CLUSTER: "c-0=http://c-0:2380,c-1=http://c-1:2380",
                    annotations::INITIAL_CLUSTER_STATE: "existing",
                    annotations::TEMPLATE_HASH: "t",
                },
            },
            "spec": {"nodeName": "node1", "containers": [{"name": "etcd", "image": "reg:5000/etcd:v3.5.16"}]},
            "status": status,
        }))
        .unwrap()
    }

    #[rstest]
    #[case::of_coreos(json!(null), 100_000)]
    #[case::ours(json!([{"name": "ETCD_SNAPSHOT_COUNT", "value": "2500"}]), 2_500)]
    #[case::of_the_user(json!([{"name": "ETCD_SNAPSHOT_COUNT", "value": "2500"}, {"name": "ETCD_SNAPSHOT_COUNT", "value": "500"}]), 500)]
    fn snapshots_come_as_often_as_the_pod_says(#[case] env: Value, #[case] count: u64) {
        let mut pod = pod(json!({}));
        pod.spec.as_mut().unwrap().containers[0].env = serde_json::from_value(env).unwrap();
        assert_eq!(member(&pod, None).snapshot_count, count);
    }

    #[rstest]
    #[case::nowhere_yet(json!({}), None)]
    #[case::is_to_be_made(json!({"volume.kubernetes.io/selected-node": "node2"}), Some("node2"))]
    #[case::is_there(
        json!({"volume.kubernetes.io/selected-node": "node2", "pv.kubernetes.io/bind-completed": "yes"}),
        None
    )]
    fn a_volume_that_is_not_there_has_a_node_all_the_same(
        #[case] annotations: Value,
        #[case] node: Option<&str>,
    ) {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c-1", "annotations": annotations},
        });
        let claim = serde_json::from_value(claim).unwrap();
        assert_eq!(chosen_node(&claim), node.map(Name::from));
    }

    #[test]
    fn a_running_member_is_read_in_full() {
        let pod = pod(json!({
            "phase": "Running", "podIP": "10.0.0.7",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "etcd", "image": "reg:5000/etcd:v3.5.16", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }],
        }));
        let seen = member(&pod, None);
        assert_eq!((seen.repository.as_str(), seen.version), ("reg:5000/etcd", Version::new(3, 5, 16)));
        assert_eq!(seen.peers, vec![Name::from("c-0"), Name::from("c-1")]);
        assert!(seen.armed && seen.ready && seen.updated && !seen.serving && !seen.deleting);
        assert_eq!(seen.created, Moment(1_767_225_600_000));
        assert_eq!(
            member(&pod, Some(seen.created + std::time::Duration::from_secs(1)))
                .changed
                .since(seen.created)
                .as_secs(),
            1
        );
        assert_eq!(target(&pod).unwrap().ip.to_string(), "10.0.0.7");
        assert!(is_member(&pod) && !is_image_check(&pod));
    }

    #[rstest]
    #[case::nothing_said(json!({}), false)]
    #[case::no_volume(said(json!({"waiting": {"reason": "PodInitializing"}}), json!({})), false)]
    #[case::no_secret(said(json!({"waiting": {"reason": "CreateContainerConfigError"}}), json!({})), false)]
    #[case::fetches(said(json!({"running": {}}), json!({})), true)]
    #[case::fetched(said(json!({"terminated": {"exitCode": 0}}), json!({})), true)]
    #[case::fails(said(json!({"waiting": {"reason": "CrashLoopBackOff"}}), json!({"terminated": {"exitCode": 1}})), true)]
    fn a_pod_has_begun_with_its_first_container(#[case] status: Value, #[case] begun: bool) {
        assert_eq!(member(&pod(status), None).begun, begun);
    }

    /// Of an init container; etcd waits for it.
    fn said(state: Value, before: Value) -> Value {
        let status = |name: &str, state: Value, before: Value| {
            json!({
                "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state, "lastState": before,
            })
        };
        let etcd = status("etcd", json!({"waiting": {"reason": "PodInitializing"}}), json!({}));
        json!({"initContainerStatuses": [status("fetch", state, before)], "containerStatuses": [etcd]})
    }

    #[rstest]
    #[case::runs(json!({"restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:40Z"}}}), 40)]
    #[case::crashed(json!({"restartCount": 0, "state": {"terminated": {"exitCode": 1}}}), 0)]
    #[case::again(json!({
        "restartCount": 1, "state": {"running": {"startedAt": "2026-01-01T00:02:00Z"}},
        "lastState": {"terminated": {"exitCode": 1, "startedAt": "2026-01-01T00:00:40Z"}},
    }), 40)]
    #[case::again_and_again(json!({
        "restartCount": 2, "state": {"running": {"startedAt": "2026-01-01T00:09:00Z"}},
        "lastState": {"terminated": {"exitCode": 1, "startedAt": "2026-01-01T00:08:00Z"}},
    }), 0)]
    fn silence_counts_from_when_etcd_first_ran(#[case] mut etcd: Value, #[case] seconds: u64) {
        etcd["name"] = json!("etcd");
        etcd["image"] = json!("");
        etcd["imageID"] = json!("");
        etcd["ready"] = json!(false);
        let seen = member(&pod(json!({"containerStatuses": [etcd]})), None);
        assert_eq!(seen.changed.since(seen.created).as_secs(), seconds);
    }

    #[test]
    fn a_disarmed_pod_names_no_peers() {
        let mut pod = pod(json!({}));
        pod.annotations_mut().insert(annotations::INITIAL_CLUSTER.into(), annotations::DISARMED.into());
        let seen = member(&pod, None);
        assert!(!seen.armed && seen.peers.is_empty());
        assert!(target(&pod).is_none());
    }

    #[rstest]
    #[case(json!({"phase": "Succeeded"}), Check::Passed)]
    #[case(json!({"phase": "Pending"}), Check::Running)]
    #[case(
        json!({"phase": "Pending", "containerStatuses": [{"name": "etcd", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}),
        Check::Failed("ErrImagePull: not found".into())
    )]
    #[case(
        json!({"phase": "Pending", "containerStatuses": [{"name": "etcd", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ImageInspectError", "message": "broken"}}}]}),
        Check::Failed("ImageInspectError: broken".into())
    )]
    #[case(
        json!({"phase": "Pending", "containerStatuses": [{"name": "etcd", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]}),
        Check::Running
    )]
    #[case(
        json!({"phase": "Failed", "containerStatuses": [{"name": "etcd", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 2}}}]}),
        Check::Failed("etcd --version ended with code 2".into())
    )]
    fn image_checks_end_one_way_or_another(#[case] status: Value, #[case] expected: Check) {
        assert_eq!(image_check(&pod(status)).unwrap().outcome, expected);
    }
}
