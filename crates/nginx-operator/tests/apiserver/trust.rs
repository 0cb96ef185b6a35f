//! The CRD trusts what the Secret holds, whoever dies between the two.

use api::nginx::CRD_NAME;
use api::nginx::crd::{Stage, WEBHOOK_SERVICE, crd};
use faults::{Fault, Hit, Line, Point};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use lab::Lab;
use lab::kit::TestNamespace;
use serde_json::json;

use crate::support::{LIMIT, Operator, Outcome, lab_alone, remove_crd};

/// The authorities, once Secret and CRD have the same, and others than `before`.
async fn agreed(test: &TestNamespace<'_>, before: Option<&ByteString>) -> lab::Result<ByteString> {
    let crds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    lab::wait::until("the API server to trust the webhook", LIMIT, async || {
        let secret = test.api::<Secret>().get_opt(WEBHOOK_SERVICE).await?;
        let issued = secret.and_then(|secret| secret.data?.remove("ca.crt"));
        let conversion = crds.get(CRD_NAME).await?.spec.conversion;
        let trusted = conversion.and_then(|conversion| conversion.webhook?.client_config?.ca_bundle);
        let new = issued.is_some() && issued.as_ref() != before;
        Ok(trusted.filter(|trusted| new && issued.as_ref() == Some(trusted)).ok_or("they differ"))
    })
    .await
}

/// A first certificate, and one that is renewed before its time.
async fn renewed(test: &TestNamespace<'_>) -> Outcome {
    let first = agreed(test, None).await?;
    let due = json!({ "metadata": { "annotations": { "operator.example.com/renew-after": "2020-01-01T00:00:00Z" } } });
    test.api::<Secret>().patch(WEBHOOK_SERVICE, &PatchParams::default(), &Patch::Merge(due)).await?;
    // Any change of the CRD wakes who looks after the Secret.
    let crds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    let woken = json!({ "metadata": { "labels": { "look": "again" } } });
    crds.patch(CRD_NAME, &PatchParams::default(), &Patch::Merge(woken)).await?;
    agreed(test, Some(&first)).await?;
    Ok(())
}

/// One life with a renewal in it. Who dies is followed by another. Gives what was written of Secret and CRD.
async fn live(lab: &Lab, death: Option<Point>) -> Outcome<Vec<Point>> {
    let test = TestNamespace::new(lab, "trust").await?;
    let mut writes = Vec::new();
    test.run(async |test| -> Outcome {
        remove_crd(&test.client).await?;
        let crds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
        crds.create(&PostParams::default(), &crd(Stage::Second, &test.name)).await?;
        let line = Line::new(death.clone().map_or(Fault::None, |point| Fault::At(point, Hit::Death)));
        let second = line.successor();
        let first = Operator::start_with(test, line.client(&test.client));
        let survive = async {
            if death.is_none() {
                return Outcome::Ok(first);
            }
            tokio::time::timeout(LIMIT, line.died()).await?;
            first.kill().await;
            Ok(Operator::start_with(test, second.client(&test.client)))
        };
        let (operator, lived) = tokio::join!(survive, renewed(test));
        let operator = operator?;
        lived?;
        line.comes_to_rest(LIMIT).await?;
        agreed(test, None).await?;
        operator.kill().await;
        writes = line.book(|book| book.points().to_vec());
        Ok(())
    })
    .await?;
    writes.retain(|point| ["secrets", "customresourcedefinitions"].iter().any(|of| point.kind.contains(of)));
    Ok(writes)
}

#[tokio::test]
async fn a_death_between_secret_and_crd_leaves_nobody_untrusted() {
    let (lab, alone) = lab_alone().await;
    let done = async {
        let writes = live(lab, None).await?;
        assert_eq!(writes.len(), 4, "made, trusted, renewed, trusted: {writes:?}");
        for point in writes {
            live(lab, Some(point)).await?;
        }
        Outcome::Ok(())
    };
    let done = done.await;
    alone.end(lab).await.unwrap();
    done.unwrap();
}
