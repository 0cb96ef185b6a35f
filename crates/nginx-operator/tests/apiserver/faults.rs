//! A fault at every write, and bad watches: the end is the same, and nothing is made twice. All of them with `FAULTS=all`, else
//! every crash, and one other at each write, which `FAULTS_SEED` chooses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::nginx::CRD_NAME;
use api::nginx::conditions::{OPERAND_READY, READY, reason};
use faults::{Fault, Hit, Line, Point, Rough, all, seed};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::DeleteParams;
use lab::Lab;
use lab::kit::{TestNamespace, gone};
use serde_json::{Value, json};

use crate::support::{Instance, LIMIT, Nginx, Operator, Outcome, lab};

/// Lives at the same time, on two cores.
const SIDE_BY_SIDE: usize = 6;
/// A life with a fault may ask for so many times as much as one without, and so much more.
const BOUND: (usize, usize) = (3, 200);

/// What is there before the instance is deleted: the objects as they are, and how many of each were made.
#[derive(Debug, PartialEq)]
struct End {
    deployment: Value,
    service: Value,
    status: Value,
    made: BTreeMap<String, usize>,
}

/// One life, and on what way its end came about.
struct Life {
    end: End,
    points: Vec<Point>,
    requests: usize,
    met: bool,
}

/// Made, edited twice, its Deployment deleted, scaled, deleted.
async fn live(lab: &Lab, fault: Fault) -> Outcome<Life> {
    let test = TestNamespace::new(lab, "faults").await?;
    let mut life = None;
    test.run(async |test| -> Outcome {
        let line = Line::new(fault.clone());
        let second = line.successor();
        let operator = Operator::start_with(test, line.client(&test.client));
        let steps = async {
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
            web.edit(json!({ "replicas": 1 })).await?;
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
            steps.await?;
            line.comes_to_rest(LIMIT).await?;
            // Whoever saw the Deployment late may have called it healthy before its pod was there.
            let web = Instance { test, name: "web" };
            web.becomes_healthy().await?;
            web.says(OPERAND_READY, "True", reason::ALL_REPLICAS_ANSWER).await?;
            line.comes_to_rest(LIMIT).await?;
            let end = end_of(test, line.book(|book| book.made().clone())).await?;
            test.api::<Nginx>().delete("web", &DeleteParams::background()).await?;
            nothing_left(test).await?;
            // Whoever rests brings nothing back.
            line.comes_to_rest(LIMIT).await?;
            nothing_left(test).await?;
            Outcome::Ok(end)
        };
        let end = tokio::select! {
            lived = lived => lived?,
            () = survive => return Err("nobody survives".into()),
        };
        life = Some(line.book(|book| Life {
            end,
            points: book.points().to_vec(),
            requests: book.requests().len(),
            met: book.met(&fault),
        }));
        Ok(())
    })
    .await?;
    life.ok_or_else(|| "the life did not end".into())
}

async fn end_of(test: &TestNamespace<'_>, made: BTreeMap<String, usize>) -> Outcome<End> {
    let deployment: Deployment = test.api::<Deployment>().get("web").await?;
    let service: Service = test.api::<Service>().get("web").await?;
    Ok(End {
        deployment: json!(deployment.spec),
        service: json!(service.spec.map(|spec| (spec.ports, spec.selector))),
        status: conditions(&test.api().get("web").await?),
        made,
    })
}

/// What the instance owned has gone with it.
async fn nothing_left(test: &TestNamespace<'_>) -> Outcome {
    gone(&test.api::<Deployment>(), "web", LIMIT).await?;
    Ok(gone(&test.api::<Service>(), "web", LIMIT).await?)
}

/// Times and generations apart.
fn conditions(instance: &Nginx) -> Value {
    let status = instance.status.clone().unwrap_or_default();
    let said = status.conditions.into_iter();
    json!(
        said.map(|condition| (condition.type_, condition.status, condition.reason, condition.message))
            .collect::<Vec<_>>()
    )
}

fn faults(points: &[Point]) -> Vec<Fault> {
    let mut chosen = Vec::new();
    for (nth, point) in points.iter().enumerate() {
        let mut here: Vec<Fault> = Hit::ALL.into_iter().map(|hit| Fault::At(point.clone(), hit)).collect();
        here.push(Fault::StaleStart(point.clone()));
        if !all() {
            let (crash, others) = here.split_at(1);
            let other = (nth + usize::try_from(seed()).unwrap_or(0)) % others.len();
            here = vec![crash[0].clone(), others[other].clone()];
        }
        chosen.extend(here);
    }
    let late = Duration::from_millis(150);
    let watches = [
        Rough { late: Duration::from_secs(1), ..Rough::default() },
        // Enough events for the first list of a small namespace to come through.
        Rough { late, twice: true, expires_after: Some(6), ..Rough::default() },
        Rough { expires_after: Some(6), ..Rough::default() },
        // The operator sees its own writes long after everything else.
        Rough { late: Duration::from_secs(1), only: Some(CRD_NAME), ..Rough::default() },
    ];
    let reads = (0..if all() { 10 } else { 1 }).map(|seed| Fault::Reads { seed, most: 30 });
    chosen.into_iter().chain(watches.map(Fault::Watches)).chain(reads).collect()
}

#[tokio::test]
async fn the_end_is_the_same_whatever_happens() {
    let (lab, _turn) = lab().await;
    let began = Instant::now();
    let undisturbed = live(lab, Fault::None).await.unwrap();
    let made = undisturbed.end.made.iter().map(|(what, times)| (what.as_str(), *times)).collect::<Vec<_>>();
    assert_eq!(
        made,
        [("create deployments.apps", 2), ("create secrets", 1), ("create services", 1)],
        "the webhook's Secret, and the operand"
    );
    let faults = faults(&undisturbed.points);
    let total = faults.len();
    let lives = stream::iter(faults).map(|fault| async move { (fault.clone(), live(lab, fault).await) });
    let mut lives = lives.buffer_unordered(SIDE_BY_SIDE);
    let mut unmet = 0;
    while let Some((fault, lived)) = lives.next().await {
        let lived = lived.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(lived.end, undisturbed.end, "{fault:?}");
        if !lived.met {
            println!("not met: {fault:?}");
            unmet += 1;
        }
        let (times, more) = BOUND;
        assert!(lived.requests <= undisturbed.requests * times + more, "{fault:?}: {}", lived.requests);
    }
    println!("{} writes, {total} faults, {unmet} not met, {:?}", undisturbed.points.len(), began.elapsed());
    // How often status is written is a matter of chance; all else is not.
    assert!(unmet * 4 <= total, "too many were not met");
}
