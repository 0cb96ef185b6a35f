//! How the operand is, and why. Pure: no client required.

use api::nginx::conditions::reason;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use runtime::conditions::Status;

/// What one condition will say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub status: Status,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub operand: Verdict,
    pub progressing: Verdict,
    /// Pods that there are, and pods that answer.
    pub replicas: i32,
    pub ready: i32,
}

/// How long a container may keep failing at its start before we call it a loop.
const RESTARTS_OF_A_LOOP: i32 = 2;

/// `deployment` is the operand's as it was seen last, `pods` are its pods in any order.
pub fn assess(wanted: i32, deployment: Option<&Deployment>, pods: &[&Pod]) -> Health {
    let nothing = DeploymentStatus::default();
    let status = deployment.and_then(|deployment| deployment.status.as_ref()).unwrap_or(&nothing);
    let rollout = Rollout::of(wanted, deployment, status);
    let (replicas, ready) = (status.replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
    let available = status.available_replicas.unwrap_or(0);
    Health {
        operand: operand(wanted, available, &rollout, status, pods),
        progressing: rollout.verdict(wanted),
        replicas,
        ready,
    }
}

fn operand(
    wanted: i32,
    available: i32,
    rollout: &Rollout,
    status: &DeploymentStatus,
    pods: &[&Pod],
) -> Verdict {
    if wanted == 0 {
        return verdict(Status::True, reason::SCALED_TO_ZERO, "no replicas are asked for");
    }
    let count = format!("{available} of {wanted} replicas answer");
    // An evicted pod stays beside the one that took its place.
    let counts = |pod: &&&Pod| available < wanted || !ended(pod);
    let pods: Vec<&Pod> = pods.iter().filter(counts).copied().collect();
    if let Some((reason, why)) = failing(&pods).or_else(|| refused(status)) {
        return verdict(Status::False, reason, format!("{count}; {why}"));
    }
    match rollout {
        _ if available >= wanted => verdict(Status::True, reason::ALL_REPLICAS_ANSWER, count),
        Rollout::UnderWay { .. } => verdict(Status::Unknown, reason::STARTING, count),
        Rollout::Done | Rollout::Stalled(_) => verdict(Status::False, reason::REPLICAS_MISSING, count),
    }
}

/// Where a rollout is.
enum Rollout {
    UnderWay { updated: i32 },
    Stalled(String),
    Done,
}

impl Rollout {
    fn of(wanted: i32, deployment: Option<&Deployment>, status: &DeploymentStatus) -> Self {
        let updated = status.updated_replicas.unwrap_or(0);
        let generation = deployment.and_then(|deployment| deployment.metadata.generation);
        if deployment.is_none() || status.observed_generation < generation {
            return Self::UnderWay { updated: 0 };
        }
        let progressing =
            status.conditions.iter().flatten().find(|condition| condition.type_ == "Progressing");
        match progressing.and_then(|condition| condition.reason.as_deref()) {
            Some("ProgressDeadlineExceeded") => {
                let message = progressing.and_then(|condition| condition.message.clone());
                Self::Stalled(message.unwrap_or_default())
            }
            Some("NewReplicaSetAvailable")
                if updated >= wanted && status.replicas.unwrap_or(0) <= updated =>
            {
                Self::Done
            }
            // With no pods to wait for, the controller has nothing to report.
            _ if wanted == 0 && status.replicas.unwrap_or(0) == 0 => Self::Done,
            _ => Self::UnderWay { updated },
        }
    }

    fn verdict(&self, wanted: i32) -> Verdict {
        match self {
            Self::UnderWay { updated } => {
                let message = format!("{updated} of {wanted} replicas are as asked for");
                verdict(Status::True, reason::ROLLING_OUT, message)
            }
            Self::Stalled(why) => verdict(Status::False, reason::ROLLOUT_STALLED, why.clone()),
            Self::Done => verdict(Status::False, reason::ROLLED_OUT, "every replica is as asked for"),
        }
    }
}

/// The first pod by name that fails, and why: always the same one, so that the message is at rest.
fn failing(pods: &[&Pod]) -> Option<(&'static str, String)> {
    let mut failing: Vec<_> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| pod_failure(pod).map(|(reason, why)| (pod.name_any(), reason, why)))
        .collect();
    failing.sort();
    let more = failing.len().saturating_sub(1);
    let (name, reason, why) = failing.into_iter().next()?;
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    Some((reason, format!("pod {name}: {why}{more}")))
}

/// Kubernetes never starts it again.
fn ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

fn pod_failure(pod: &Pod) -> Option<(&'static str, String)> {
    let status = pod.status.as_ref()?;
    if let Some(failure) = status.container_statuses.iter().flatten().find_map(container_failure) {
        return Some(failure);
    }
    if status.phase.as_deref() == Some("Failed") {
        let why = status.message.clone().or_else(|| status.reason.clone());
        return Some((reason::CONTAINER_FAILED, why.unwrap_or_else(|| "it failed".to_owned())));
    }
    let scheduled = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled")?;
    (scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable")).then(|| {
        let why = scheduled.message.clone().unwrap_or_else(|| "no node fits".to_owned());
        (reason::UNSCHEDULABLE, format!("no node fits: {why}"))
    })
}

fn container_failure(container: &ContainerStatus) -> Option<(&'static str, String)> {
    let state = container.state.as_ref();
    let ended = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let exit = ended.map(|ended| {
        let reason = ended.reason.as_deref().unwrap_or("it ended");
        format!("{reason}, exit code {}", ended.exit_code)
    });
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        let (word, message) =
            (waiting.reason.as_deref().unwrap_or_default(), waiting.message.as_deref().unwrap_or_default());
        return match word {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable" => {
                let image = &container.image;
                Some((
                    reason::IMAGE_PULL_FAILED,
                    format!("image {image} cannot be pulled: {}", settled(word, message)),
                ))
            }
            "CrashLoopBackOff" => {
                let exit = exit.unwrap_or_else(|| "it ended".to_owned());
                Some((
                    reason::CRASH_LOOP,
                    format!("container {} ends again and again: {exit}", container.name),
                ))
            }
            "" | "ContainerCreating" | "PodInitializing" => None,
            other => {
                Some((reason::CONTAINER_FAILED, format!("container {}: {other}: {message}", container.name)))
            }
        };
    }
    let terminated = state.and_then(|state| state.terminated.as_ref())?;
    (container.restart_count >= RESTARTS_OF_A_LOOP).then(|| {
        let reason = terminated.reason.as_deref().unwrap_or("it ended");
        let message = format!(
            "container {} ends again and again: {reason}, exit code {}",
            container.name, terminated.exit_code
        );
        (reason::CRASH_LOOP, message)
    })
}

/// The kubelet alternates between the error and the wait for the next try; both shall read the same.
fn settled(word: &str, message: &str) -> String {
    let text = message.split_once(": ").map_or(message, |(first, rest)| {
        if first.starts_with("Back-off pulling image") { rest } else { message }
    });
    let text = text.strip_prefix("ErrImagePull: ").unwrap_or(text);
    if text.is_empty() || text.starts_with("Back-off") { word.to_owned() } else { text.to_owned() }
}

/// The Deployment could not even make its pods: a quota, or an admission rule.
fn refused(status: &DeploymentStatus) -> Option<(&'static str, String)> {
    let failure = status.conditions.iter().flatten().find(|condition| condition.type_ == "ReplicaFailure")?;
    (failure.status == "True").then(|| {
        let why = failure.message.as_deref().unwrap_or("no reason was given");
        (reason::PODS_REFUSED, format!("pods are refused: {why}"))
    })
}

fn verdict(status: Status, reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict { status, reason, message: message.into() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn deployment(status: Value) -> Deployment {
        serde_json::from_value(json!({ "metadata": { "generation": 2 }, "status": status })).unwrap()
    }

    /// A Deployment whose rollout is done, with so many pods that answer.
    fn done(answer: i32) -> Deployment {
        deployment(json!({
            "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": answer,
            "availableReplicas": answer,
            "conditions": [{ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" }],
        }))
    }

    fn rolling(answer: i32, updated: i32) -> Deployment {
        deployment(json!({
            "observedGeneration": 2, "replicas": 4, "updatedReplicas": updated, "availableReplicas": answer,
            "conditions": [{ "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated" }],
        }))
    }

    fn pod(name: &str, status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).unwrap()
    }

    fn waiting(name: &str, reason: &str, message: &str) -> Pod {
        pod(
            name,
            json!({ "containerStatuses": [{
            "name": "nginx", "image": "nginx:nope", "imageID": "", "ready": false, "restartCount": 3,
            "state": { "waiting": { "reason": reason, "message": message } },
            "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } },
        }] }),
        )
    }

    #[rstest]
    #[case(3, Some(done(3)), Status::True, reason::ALL_REPLICAS_ANSWER, reason::ROLLED_OUT)]
    #[case(3, Some(done(2)), Status::False, reason::REPLICAS_MISSING, reason::ROLLED_OUT)]
    #[case(3, Some(rolling(3, 1)), Status::True, reason::ALL_REPLICAS_ANSWER, reason::ROLLING_OUT)]
    #[case(3, Some(rolling(0, 3)), Status::Unknown, reason::STARTING, reason::ROLLING_OUT)]
    #[case(1, None, Status::Unknown, reason::STARTING, reason::ROLLING_OUT)]
    #[case(0, Some(deployment(json!({ "observedGeneration": 2 }))), Status::True, reason::SCALED_TO_ZERO, reason::ROLLED_OUT)]
    #[case(3, Some(deployment(json!({ "observedGeneration": 1, "availableReplicas": 3 }))), Status::True, reason::ALL_REPLICAS_ANSWER, reason::ROLLING_OUT)]
    fn states(
        #[case] wanted: i32,
        #[case] deployment: Option<Deployment>,
        #[case] status: Status,
        #[case] operand: &str,
        #[case] progressing: &str,
    ) {
        let health = assess(wanted, deployment.as_ref(), &[]);
        assert_eq!((health.operand.status, health.operand.reason), (status, operand));
        assert_eq!(health.progressing.reason, progressing);
        assert_eq!(health.progressing.status, Status::from(progressing == reason::ROLLING_OUT));
    }

    #[rstest]
    #[case(
        "ErrImagePull",
        "not found",
        reason::IMAGE_PULL_FAILED,
        "image nginx:nope cannot be pulled: not found"
    )]
    #[case(
        "ImagePullBackOff",
        "Back-off pulling image \"nginx:nope\": ErrImagePull: not found",
        reason::IMAGE_PULL_FAILED,
        "image nginx:nope cannot be pulled: not found"
    )]
    #[case(
        "CrashLoopBackOff",
        "back-off 10s",
        reason::CRASH_LOOP,
        "container nginx ends again and again: Error, exit code 1"
    )]
    #[case(
        "CreateContainerConfigError",
        "no user",
        reason::CONTAINER_FAILED,
        "container nginx: CreateContainerConfigError: no user"
    )]
    fn a_pod_that_fails_is_named_with_its_reason(
        #[case] word: &str,
        #[case] message: &str,
        #[case] reason: &str,
        #[case] why: &str,
    ) {
        let (bad, worse) = (waiting("web-b", word, message), waiting("web-c", word, message));
        let fine = waiting("web-a", "ContainerCreating", "");
        let health = assess(3, Some(&rolling(3, 1)), &[&worse, &bad, &fine]);
        assert_eq!(health.operand.status, Status::False);
        assert_eq!(health.operand.reason, reason);
        assert_eq!(health.operand.message, format!("3 of 3 replicas answer; pod web-b: {why} (and 1 more)"));
    }

    #[test]
    fn an_evicted_pod_counts_until_another_answers_in_its_place() {
        let evicted = pod(
            "web-a",
            json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory.",
            "containerStatuses": [{
                "name": "nginx", "image": "nginx", "imageID": "", "ready": false, "restartCount": 3,
                "state": { "terminated": { "exitCode": 137, "reason": "Error" } },
            }] }),
        );
        let health = assess(3, Some(&done(3)), &[&evicted]);
        assert_eq!(
            (health.operand.status, health.operand.reason),
            (Status::True, reason::ALL_REPLICAS_ANSWER)
        );
        let health = assess(3, Some(&done(2)), &[&evicted]);
        assert_eq!(health.operand.status, Status::False);
        assert!(health.operand.message.starts_with("2 of 3 replicas answer; pod web-a: "), "{health:?}");
    }

    #[test]
    fn no_node_and_no_right_to_make_pods_are_told_apart() {
        let unscheduled = pod(
            "web-a",
            json!({ "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
        }] }),
        );
        let health = assess(1, Some(&rolling(0, 1)), &[&unscheduled]);
        assert_eq!(health.operand.reason, reason::UNSCHEDULABLE);
        assert!(health.operand.message.ends_with("pod web-a: no node fits: 0/3 nodes are available"));

        let refused = deployment(json!({ "observedGeneration": 2, "conditions": [
            { "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota" },
        ] }));
        let health = assess(1, Some(&refused), &[]);
        assert_eq!(health.operand.message, "0 of 1 replicas answer; pods are refused: exceeded quota");
    }

    #[test]
    fn a_rollout_past_its_deadline_is_stalled() {
        let stalled = deployment(
            json!({ "observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 3, "conditions": [
            { "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too long" },
        ] }),
        );
        let health = assess(3, Some(&stalled), &[]);
        assert_eq!(health.progressing, verdict(Status::False, reason::ROLLOUT_STALLED, "too long"));
    }
}
