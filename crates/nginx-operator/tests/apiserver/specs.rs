//! Specs from the CRD's own schema: every refusal names the field, and what is accepted gives the same state by any path.

use api::nginx::conditions::{READY, reason};
use api::nginx::crd::{Stage, crd};
use faults::specs::{Case, Tried, tried};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use lab::kit::TestNamespace;
use serde_json::{Value, json};

use crate::support::{Instance, Nginx, Operator, Outcome, install_crd, lab, lab_alone};

/// More pods than this are not asked for: the controller manager would make them.
const FEW: i64 = 2;

#[tokio::test]
async fn specs_are_refused_by_name_or_give_the_same_state_by_any_path() {
    let (lab, _turn) = lab().await;
    let test = TestNamespace::new(lab, "specs").await.unwrap();
    test.run(async |test| -> Outcome {
        let base = json!({ "replicas": 0 });
        let tried = asked(test, Stage::First, &base).await?;
        let operator = Operator::start(test);
        let few = |case: &&Case| case.object["spec"]["replicas"].as_i64().is_none_or(|count| count <= FEW);
        let web = Instance::create(test, "web", base.clone()).await?;
        let first = state(&web).await?;
        for (number, case) in tried.accepted.iter().filter(few).enumerate() {
            let spec = &case.object["spec"];
            let edited = to(&web, spec).await?;
            let name = format!("fresh{number}");
            let fresh = Instance::create(test, &name, spec.clone()).await?;
            assert_eq!(
                nameless(&state(&fresh).await?, &name),
                nameless(&edited, "web"),
                "{spec} from the start"
            );
            // One edit after the other, and now and then a way back.
            if number % 3 == 0 {
                assert_eq!(to(&web, &base).await?, first, "{spec} undone");
            }
        }
        operator.stop().await;
        Ok(())
    })
    .await
    .unwrap();
}

/// Nothing is stored: the API server has to convert nothing.
#[tokio::test]
async fn the_second_version_refuses_by_name_as_well() {
    let (lab, alone) = lab_alone().await;
    let test = TestNamespace::new(lab, "specs").await.unwrap();
    let done = test.run(async |test| -> Outcome {
        install_crd(&test.client, Stage::Second).await?;
        asked(test, Stage::Second, &json!({ "replicas": 0 })).await.map(drop)
    });
    let done = done.await;
    alone.end(lab).await.unwrap();
    done.unwrap();
}

/// What the API server says to the newest version of that stage.
async fn asked(test: &TestNamespace<'_>, stage: Stage, base: &Value) -> Outcome<Tried> {
    let tried = tried(&test.client, &test.name, &crd(stage, "default"), base).await?;
    let (fields, refused, accepted) = (tried.fields, tried.refused, tried.accepted.len());
    println!("{stage:?}: {fields} fields, {refused} specs refused, {accepted} accepted");
    assert!(refused > 5 && accepted > 5, "{tried:?}");
    assert!(tried.wrong.is_empty(), "{}", tried.wrong.join("\n"));
    Ok(tried)
}

async fn to(web: &Instance<'_>, spec: &Value) -> Outcome<Value> {
    // A merge patch leaves what it does not name; null takes it out.
    let mut whole = json!({ "port": null, "replicas": null, "forceRedeploy": null, "image": null });
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    let patch = Patch::Merge(json!({ "spec": whole }));
    web.test.api::<Nginx>().patch(web.name, &PatchParams::default(), &patch).await?;
    state(web).await
}

/// What the operator made of it.
async fn state(web: &Instance<'_>) -> Outcome<Value> {
    web.says(READY, "True", reason::RECONCILED).await?;
    let deployment: Deployment = web.test.api::<Deployment>().get(web.name).await?;
    let service: Service = web.test.api::<Service>().get(web.name).await?;
    Ok(json!([deployment.spec, service.spec.map(|spec| (spec.ports, spec.selector))]))
}

fn nameless(state: &Value, name: &str) -> String {
    state.to_string().replace(&format!("\"{name}\""), "\"*\"")
}
