//! What an instance goes through, step by step.

use std::time::{Duration, Instant};

use api::nginx::conditions::{OPERAND_READY, READY, reason};
use api::nginx::{FORCE_REDEPLOY_ANNOTATION, INSTANCE_LABEL};
use faults::{Fault, Line};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use lab::kit::{TestNamespace, gone, wait_for, wait_for_all};
use serde_json::json;

use crate::support::{Instance, LIMIT, Nginx, Operator, Outcome, condition, in_namespace, with_operator};

/// How soon drift is set right, beside what the API server takes for its answers.
const SOON: Duration = Duration::from_secs(1);
/// How long the operator at rest is listened to.
const REST_OBSERVED: Duration = Duration::from_secs(10);

async fn events(test: &TestNamespace<'_>, kind: &str, name: &str) -> Outcome<Vec<(String, String)>> {
    let list = test.api::<Event>().list(&ListParams::default()).await?;
    let about = list.items.into_iter().filter(|event| {
        event.involved_object.name.as_deref() == Some(name)
            && event.involved_object.kind.as_deref() == Some(kind)
    });
    Ok(about.map(|event| (event.type_.unwrap_or_default(), event.reason.unwrap_or_default())).collect())
}

#[tokio::test]
async fn is_made_reported_scaled_and_removed() {
    with_operator("life", async |test| {
        let web = Instance::create(test, "instance", json!({})).await?;
        let made = web.says(OPERAND_READY, "Unknown", reason::STARTING).await?;
        assert_eq!((made.spec.port, made.spec.replicas), (80, 1), "defaults are shown");
        web.says(READY, "True", reason::RECONCILED).await?;
        let deployment: Deployment = test.api().get("instance").await?;
        assert_eq!(deployment.labels()["app"], "nginx");
        assert_eq!(deployment.labels()[INSTANCE_LABEL], "instance");
        assert_eq!(deployment.owner_references()[0].uid, made.uid().unwrap_or_default());

        let healthy = web.becomes_healthy().await?;
        let status = healthy.status.clone().unwrap_or_default();
        assert_eq!((status.replicas, status.ready_replicas, status.image.as_str()), (1, 1, "nginx:latest"));
        web.says(OPERAND_READY, "True", reason::ALL_REPLICAS_ANSWER).await?;
        let started = events(test, "Pod", "nginx-operator-test").await?;
        assert!(started.contains(&("Normal".into(), "Started".into())), "{started:?}");
        let told = events(test, "NginxOperator", "instance").await?;
        for reason in [reason::CREATED, reason::ALL_REPLICAS_ANSWER, reason::ROLLED_OUT] {
            assert!(told.contains(&("Normal".into(), reason.into())), "{reason} is not in {told:?}");
        }

        test.kubectl(&["scale", "nginxoperator/instance", "--replicas=3"]).await?;
        web.deployment("to have 3 replicas", |d| d.spec.as_ref().and_then(|s| s.replicas) == Some(3)).await?;
        web.becomes_healthy().await?;
        web.edit(json!({ "replicas": 0 })).await?;
        web.says(OPERAND_READY, "True", reason::SCALED_TO_ZERO).await?;

        test.api::<Nginx>().delete("instance", &DeleteParams::background()).await?;
        gone(&test.api::<Deployment>(), "instance", LIMIT).await?;
        gone(&test.api::<Service>(), "instance", LIMIT).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn drift_is_set_right_at_once() {
    with_operator("drift", async |test| {
        let web = Instance::create(test, "web", json!({ "port": 8080, "replicas": 2 })).await?;
        web.says(READY, "True", reason::RECONCILED).await?;
        let (deployments, services): (Api<Deployment>, Api<Service>) = (test.api(), test.api());

        let (mut times, mut answers) = (Vec::new(), Vec::new());
        let began = Instant::now();
        let first = deployments.get("web").await?.uid();
        deployments.delete("web", &DeleteParams::background()).await?;
        wait_for(&deployments, "web", LIMIT, "to be made anew", |d| d.uid() != first).await?;
        times.push(began.elapsed());

        let wrong_port = json!({ "spec": { "ports": [{ "name": "http", "port": 81, "targetPort": 81 }] } });
        let righted = set_right(&services, wrong_port, |service| {
            let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            ports.map(|port| port.port).eq([8080])
        });
        times.push(righted.await?);
        for edit in [
            json!({ "spec": { "replicas": 5 } }),
            json!({ "spec": { "paused": true } }),
            json!({ "metadata": { "labels": { INSTANCE_LABEL: "other" } } }),
            json!({ "metadata": { "labels": { "app": null } } }),
            json!({ "spec": { "template": { "metadata": { "annotations": { FORCE_REDEPLOY_ANNOTATION: "x" } } } } }),
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "nginx", "image": "other" }] } } } }),
        ] {
            let righted = set_right(&deployments, edit, |deployment| {
                let wanted = json!({
                    "metadata": { "labels": { "app": "nginx", INSTANCE_LABEL: "web" } },
                    "spec": {
                        "replicas": 2, "paused": null,
                        "template": {
                            "metadata": { "annotations": { FORCE_REDEPLOY_ANNOTATION: null } },
                            "spec": { "containers": [{ "image": "nginx:latest", "ports": [{ "containerPort": 8080 }] }] },
                        },
                    },
                });
                let found = serde_json::to_value(deployment).unwrap();
                !nginx_operator::operand::differs(&wanted, &found)
            });
            times.push(righted.await?);
            answers.push(answer(&services).await?);
        }
        // A machine that does other things too may be late now and then, and its API server with it.
        times.sort();
        answers.sort();
        let (time, answer) = (times[times.len() / 2], answers[answers.len() / 2]);
        assert!(time < SOON + answer * 10, "{times:?}, and for a write that changes nothing {answers:?}");
        Ok(())
    })
    .await;
}

/// How long a write and a watch take by themselves.
async fn answer(api: &Api<Service>) -> Outcome<Duration> {
    let began = Instant::now();
    api.patch("web", &PatchParams::default(), &Patch::Merge(json!({}))).await?;
    wait_for(api, "web", LIMIT, "to be there", |_| true).await?;
    Ok(began.elapsed())
}

/// Breaks the object `web`, waits until it is as it was, and says how long that took.
async fn set_right<K>(api: &Api<K>, edit: serde_json::Value, right: impl Fn(&K) -> bool) -> Outcome<Duration>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    let began = Instant::now();
    let broken = api.patch("web", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    let version = broken.resource_version();
    wait_for(api, "web", LIMIT, &format!("to recover from {edit}"), |object| {
        object.resource_version() != version && right(object)
    })
    .await?;
    Ok(began.elapsed())
}

#[tokio::test]
async fn a_change_of_force_redeploy_rolls_out_once() {
    in_namespace("redeploy", async |test| {
        let operator = Operator::start(test);
        let web = Instance::create(test, "web", json!({})).await?;
        web.becomes_healthy().await?;
        let mut generation = test.api::<Deployment>().get("web").await?.metadata.generation;
        for value in [json!("now"), json!(""), json!(null)] {
            web.edit(json!({ "forceRedeploy": value })).await?;
            web.becomes_healthy().await?;
            let rolled = test.api::<Deployment>().get("web").await?.metadata.generation;
            assert_eq!(rolled, generation.map(|generation| generation + 1), "{value}");
            generation = rolled;
        }
        operator.stop().await;
        let operator = Operator::start(test);
        web.edit(json!({ "replicas": 2 })).await?;
        web.becomes_healthy().await?;
        let scaled = test.api::<Deployment>().get("web").await?.metadata.generation;
        assert_eq!(scaled, generation.map(|generation| generation + 1), "and a restart rolls out nothing");
        operator.stop().await;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone_and_named() {
    with_operator("taken", async |test| {
        let services: Api<Service> = test.api();
        let theirs: Service = serde_json::from_value(json!({
            "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 1 }], "selector": { "app": "theirs" } },
        }))?;
        let before = services.create(&PostParams::default(), &theirs).await?;
        let web = Instance::create(test, "web", json!({})).await?;
        let refused = web.says(READY, "False", "NameTaken").await?;
        let message = condition(&refused, READY).map(|condition| condition.message.clone()).unwrap_or_default();
        assert!(message.contains("Service web exists") && message.contains("next try in"), "{message}");
        assert!(events(test, "NginxOperator", "web").await?.contains(&("Warning".into(), "NameTaken".into())));
        assert_eq!(services.get("web").await?.resource_version(), before.resource_version(), "untouched");
        services.delete("web", &DeleteParams::default()).await?;
        web.says(READY, "True", reason::RECONCILED).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn pods_that_fail_are_named_and_forgotten_when_they_work() {
    with_operator("failing", async |test| {
        let web = Instance::create(test, "web", json!({ "image": "nginx:nope" })).await?;
        let ours = watcher::Config::default().labels(&api::nginx::selector("web"));
        let pods: Vec<Pod> = wait_for_all(&test.api(), ours, LIMIT, "a pod", |pods| !pods.is_empty()).await?;
        let pod = pods[0].name_any();
        let waiting = json!({ "status": { "containerStatuses": [{
            "name": "nginx", "image": "nginx:nope", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "ErrImagePull", "message": "not found" } },
        }] } });
        test.api::<Pod>().patch_status(&pod, &PatchParams::default(), &Patch::Strategic(waiting)).await?;
        let broken = web.says(OPERAND_READY, "False", reason::IMAGE_PULL_FAILED).await?;
        let message = condition(&broken, OPERAND_READY).map(|c| c.message.clone()).unwrap_or_default();
        assert_eq!(
            message,
            format!("0 of 1 replicas answer; pod {pod}: image nginx:nope cannot be pulled: not found")
        );
        web.edit(json!({ "image": "nginx:1" })).await?;
        web.becomes_healthy().await?;
        web.says(OPERAND_READY, "True", reason::ALL_REPLICAS_ANSWER).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn at_rest_nothing_is_asked_but_the_watches() {
    in_namespace("rest", async |test| {
        let line = Line::new(Fault::None);
        let operator = Operator::start_with(test, line.client(&test.client));
        let one = Instance::create(test, "one", json!({})).await?;
        let two = Instance::create(test, "two", json!({ "port": 8080 })).await?;
        one.becomes_healthy().await?;
        two.becomes_healthy().await?;
        one.says(OPERAND_READY, "True", reason::ALL_REPLICAS_ANSWER).await?;
        two.says(OPERAND_READY, "True", reason::ALL_REPLICAS_ANSWER).await?;
        line.comes_to_rest(LIMIT).await?;
        let before = line.book(|book| book.requests().len());
        let asked = line.asks_within(REST_OBSERVED).await;
        assert!(!asked, "{:#?}", line.book(|book| book.requests()[before..].to_vec()));
        operator.stop().await;
        Ok(())
    })
    .await;
}
