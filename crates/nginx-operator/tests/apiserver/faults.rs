//! Crashes after every write, lost answers and refused writes: the end is the same, and nothing is made twice.

use std::time::{Duration, Instant};

use api::nginx::conditions::{READY, reason};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::DeleteParams;
use lab::Lab;
use lab::kit::TestNamespace;
use serde_json::{Value, json};

use crate::support::{Fault, Instance, LIMIT, Line, Operator, Outcome, lab};

/// What is left when a life is over: the objects as they are, and how many of each were made.
#[derive(Debug, PartialEq)]
struct End {
    deployment: Value,
    service: Value,
    status: Value,
    made: Vec<String>,
}

/// One life: made, edited twice, its Deployment deleted. `faulty` is met on the way, if it has that many writes.
async fn live(lab: &Lab, fault: Fault) -> Outcome<(End, usize)> {
    let test = TestNamespace::new(lab, "faults").await?;
    let mut end = None;
    test.run(async |test| -> Outcome {
        let line = Line::new(fault);
        let (first, second) = (line.client(&test.client), Line::new(Fault::None));
        let operator = Operator::start_with(test, first);
        let life = async {
            let web = Instance::create(test, "web", json!({ "replicas": 0 })).await?;
            web.says(READY, "True", reason::RECONCILED).await?;
            web.edit(json!({ "port": 8080 })).await?;
            web.says(READY, "True", reason::RECONCILED).await?;
            web.edit(json!({ "forceRedeploy": "now" })).await?;
            web.becomes_healthy().await?;
            let before = test.api::<Deployment>().get("web").await?.uid();
            test.api::<Deployment>().delete("web", &DeleteParams::background()).await?;
            web.deployment("to be made anew", |deployment| deployment.uid() != before).await?;
            web.becomes_healthy().await?;
            web.says(READY, "True", reason::RECONCILED).await.map(drop)
        };
        let survive = async {
            line.died().await;
            operator.kill().await;
            let successor = Operator::start_with(test, second.client(&test.client));
            std::future::pending::<()>().await;
            drop(successor);
        };
        let lived = async {
            life.await?;
            at_rest(&[&line, &second]).await
        };
        tokio::select! { lived = lived => lived?, () = survive => {} }
        let deployment: Deployment = test.api::<Deployment>().get("web").await?;
        let service: Service = test.api::<Service>().get("web").await?;
        let made = line.requests().into_iter().chain(second.requests());
        let mut made: Vec<String> = made
            .filter(|request| is_make(request))
            .map(|request| request.replace(&test.name, "ns"))
            .collect();
        made.sort();
        let writes = line.requests().iter().filter(|request| !request.starts_with("GET")).count();
        end = Some((
            End {
                deployment: json!(deployment.spec),
                service: json!(service.spec.map(|spec| (spec.ports, spec.selector))),
                status: conditions(&test.api().get("web").await?),
                made,
            },
            writes,
        ));
        Ok(())
    })
    .await?;
    end.ok_or_else(|| "the life did not end".into())
}

/// Waits until the operator has asked nothing for longer than its first retry takes: then what is there is the end.
async fn at_rest(lines: &[&Line]) -> Outcome {
    const QUIET: Duration = Duration::from_millis(1500);
    let asked =
        |line: &&Line| line.requests().iter().filter(|request| !request.contains("watch=true")).count();
    let count = || lines.iter().map(asked).sum::<usize>();
    let (mut seen, mut since) = (count(), Instant::now());
    lab::wait::until("the operator to be at rest", LIMIT, async || {
        let now = count();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        Ok(if since.elapsed() > QUIET { Ok(()) } else { Err(format!("{now} requests")) })
    })
    .await?;
    Ok(())
}

fn is_make(request: &str) -> bool {
    (request.starts_with("POST") || request.starts_with("DELETE")) && !request.contains("/events")
}

/// Times and generations apart.
fn conditions(instance: &crate::support::Nginx) -> Value {
    let status = instance.status.clone().unwrap_or_default();
    let said = status.conditions.into_iter();
    json!(
        said.map(|condition| (condition.type_, condition.status, condition.reason, condition.message))
            .collect::<Vec<_>>()
    )
}

#[tokio::test]
async fn the_end_is_the_same_whatever_happens_to_a_write() {
    let (lab, _turn) = lab().await;
    let (undisturbed, writes) = live(lab, Fault::None).await.unwrap();
    let kinds = undisturbed.made.iter().map(|request| request.rsplit('/').next().unwrap());
    let kinds: Vec<&str> = kinds.map(|kind| kind.split('?').next().unwrap()).collect();
    assert_eq!(
        kinds,
        ["secrets", "services", "deployments", "deployments"],
        "the webhook's, then the operand's"
    );
    assert!(writes >= 10, "only {writes} writes");
    for at in 1..=writes {
        let faults = [Fault::DieAfter(at), Fault::LoseAnswerOf(at), Fault::Refuse(at)];
        let lives = faults.map(|fault| async move { (fault, live(lab, fault).await) });
        for (fault, lived) in futures::future::join_all(lives).await {
            let (mut end, _) = lived.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            if matches!(fault, Fault::Refuse(_)) {
                // A make that was refused is asked for again.
                end.made.dedup();
                let mut once = undisturbed.made.clone();
                once.dedup();
                assert_eq!(end.made, once, "{fault:?}");
                end.made.clone_from(&undisturbed.made);
            }
            assert_eq!(end, undisturbed, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn events_that_are_late_repeated_or_lost_change_nothing() {
    let (lab, _turn) = lab().await;
    let (undisturbed, _) = live(lab, Fault::None).await.unwrap();
    let (rough, _) = live(lab, Fault::RoughWatches).await.unwrap();
    assert_eq!(rough, undisturbed);
}
