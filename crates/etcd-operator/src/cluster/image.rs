//! The image that a pod asks for, and whether its container runs it.

use domain::{Moment, Version};
use k8s_openapi::api::core::v1::{self, ContainerStatus};

use super::pods::{etcd_status, moment};

/// `repository:vX.Y.Z` taken apart. A colon before a slash is that of a registry's port.
pub fn split_image(image: &str) -> (&str, Option<Version>) {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag.parse().ok()),
        _ => (image, None),
    }
}

/// Our change reached the container. An image has many names, of whichever cluster on that node brought it first, and the
/// kubelet may write any of them: where we know of a change, the container's age does not mislead.
pub fn is_updated(pod: &v1::Pod, image: &str, patched: Option<Moment>) -> bool {
    let Some(status) = etcd_status(pod) else { return true };
    let observed = pod.status.as_ref().and_then(|status| status.observed_generation);
    let unseen = observed.is_some_and(|observed| pod.metadata.generation.is_some_and(|now| observed < now));
    match patched {
        Some(patched) => same_image(&status.image, image) || started_since(status, patched),
        None => !unseen && same_version(&status.image, image),
    }
}

fn started_since(status: &ContainerStatus, patched: Moment) -> bool {
    let running = status.state.as_ref().and_then(|state| state.running.as_ref());
    let started = running.and_then(|running| running.started_at.as_ref());
    // In whole seconds; a member that had only just started would not have been changed.
    started.is_some() && moment(started).0 + 1000 > patched.0
}

/// What names no version, such as a digest or the `latest` that a person used on that node, compares with nothing. The
/// member itself tells its version.
fn same_version(running: &str, wanted: &str) -> bool {
    running.contains('@')
        || split_image(running).1.is_none_or(|version| Some(version) == split_image(wanted).1)
}

/// The kubelet writes names out in full.
fn same_image(running: &str, wanted: &str) -> bool {
    let full = |image: &str| {
        let short = image.strip_prefix("docker.io/").unwrap_or(image);
        short.strip_prefix("library/").unwrap_or(short).to_owned()
    };
    full(running) == full(wanted) || (split_image(running).1.is_none() && same_version(running, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use serde_json::{Value, json};

    const WANTED: &str = "reg:5000/etcd:v3.5.16";

    fn pod(status: Value) -> v1::Pod {
        serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
    }

    #[rstest]
    #[case("docker.io/library/etcd:v3.5.16", "etcd:v3.5.16", true)]
    #[case("quay.io/coreos/etcd:v3.5.16", "quay.io/coreos/etcd:v3.5.16", true)]
    #[case("quay.io/coreos/etcd:v3.5.16", "quay.io/coreos/etcd:v3.5.35", false)]
    #[case("quay.io/coreos/etcd:latest", "quay.io/coreos/etcd:v3.5.35", true)]
    #[case("quay.io/coreos/etcd@sha256:abc", "quay.io/coreos/etcd:v3.5.35", true)]
    #[case("sha256:abc", "quay.io/coreos/etcd:v3.5.35", true)]
    #[case("", "quay.io/coreos/etcd:v3.5.35", true)]
    fn what_runs_is_compared_with_what_is_wanted(
        #[case] running: &str,
        #[case] wanted: &str,
        #[case] same: bool,
    ) {
        assert_eq!(same_image(running, wanted), same);
    }

    #[test]
    fn a_container_that_started_after_our_change_runs_it_under_whatever_name() {
        let pod = pod(json!({"phase": "Running", "containerStatuses": [{
            "name": "etcd", "image": "mirror.example/etcd:v3.5.16", "imageID": "", "ready": true, "restartCount": 1,
            "state": {"running": {"startedAt": "2026-01-01T00:01:00Z"}},
        }]}));
        let started = moment(Some(&Time("2026-01-01T00:01:00Z".parse().unwrap())));
        let updated = |patched| is_updated(&pod, WANTED, patched);
        assert!(updated(None), "nobody changed it: another cluster's name of the same image");
        assert!(updated(Some(started)));
        assert!(!updated(Some(started + std::time::Duration::from_secs(1))));
    }

    #[rstest]
    #[case::as_it_was_made("v3.5.16", (1, Some(1)), true)]
    #[case::older_kubelets_do_not_tell("v3.5.16", (2, None), true)]
    #[case::an_earlier_process_changed_it("v3.5.16", (2, Some(1)), false)]
    #[case::another_version("v3.5.15", (2, Some(2)), false)]
    fn a_change_that_is_not_remembered_shows(
        #[case] tag: &str,
        #[case] (now, observed): (i64, Option<i64>),
        #[case] updated: bool,
    ) {
        let mut pod = pod(json!({"observedGeneration": observed, "containerStatuses": [{
            "name": "etcd", "image": format!("mirror.example/etcd:{tag}"), "imageID": "", "ready": true, "restartCount": 0,
        }]}));
        pod.metadata.generation = Some(now);
        assert_eq!(is_updated(&pod, WANTED, None), updated);
    }
}
