//! What is stored moves to the new version, with the cluster's migrator or without one, whatever happens on the way.

use api::nginx::crd::{Stage, crd};
use api::nginx::{CRD_NAME, Version};
use faults::{Fault, Hit, Line, Point};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use lab::kit::{TestNamespace, wait_for};
use nginx_operator::{source, storage};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Instance, LIMIT, Outcome, install_crd, lab_alone, remove_crd};

const NAMES: [&str; 3] = ["one", "two", "three"];

fn stored(crd: &CustomResourceDefinition) -> Vec<String> {
    crd.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default()
}

/// Name and resource version of each instance: the latter changes only if it is stored anew.
async fn versions(test: &TestNamespace<'_>) -> Outcome<Vec<(String, Option<String>)>> {
    let resource = source::resource(Version::V1alpha2);
    let api: Api<DynamicObject> = Api::namespaced_with(test.client.clone(), &test.name, &resource);
    let list = api.list(&ListParams::default()).await?;
    Ok(list.items.iter().map(|object| (object.name_any(), object.resource_version())).collect())
}

/// Instances stored in v1alpha1, a CRD that stores v1alpha2, and a process that meets `fault` and is followed by another.
/// Gives what was written.
async fn moved(test: &TestNamespace<'_>, migrator: bool, fault: Fault) -> Outcome<Vec<Point>> {
    let crds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    remove_crd(&test.client).await?;
    install_crd(&test.client, Stage::First).await?;
    for name in NAMES {
        Instance::create(test, name, json!({ "replicas": 0 })).await?;
    }
    // No node, no webhook: the API server converts by itself, as far as it can.
    let mut second = crd(Stage::Second, "default");
    second.spec.conversion = None;
    crds.patch(CRD_NAME, &PatchParams::apply("test").force(), &Patch::Apply(&second)).await?;
    let both = ["v1alpha1", "v1alpha2"];
    wait_for(&crds, CRD_NAME, LIMIT, "to store v1alpha2", |crd| stored(crd) == both).await?;
    lab::wait::until("v1alpha2 to be served", LIMIT, async || {
        Ok(versions(test).await.map(drop).map_err(|error| error.to_string()))
    })
    .await?;
    let before = versions(test).await?;

    let first = Line::new(fault.clone());
    if !migrator {
        first.hide("/storagemigration.k8s.io/");
    }
    let second = first.successor();
    let stop = CancellationToken::new();
    let (client, successor) = (first.client(&test.client), second.client(&test.client));
    let work = async {
        tokio::select! {
            () = storage::keep(&client, &stop) => {}
            () = first.died() => storage::keep(&successor, &stop).await,
        }
    };
    let done = async {
        let done =
            wait_for(&crds, CRD_NAME, LIMIT, "to store v1alpha2 only", |crd| stored(crd) == ["v1alpha2"]);
        let done = done.await;
        // We may see it before the one who wrote it hears of it.
        let rest = first.comes_to_rest(LIMIT).await;
        stop.cancel();
        (done, rest)
    };
    let ((), (done, rest)) = tokio::join!(work, done);
    done?;
    rest?;
    let after = versions(test).await?;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.0, after.0);
        assert_ne!(before.1, after.1, "{} was not stored anew: {fault:?}", after.0);
    }
    assert_eq!(after.len(), NAMES.len());
    Ok(first.book(|book| book.points().to_vec()))
}

#[tokio::test]
async fn everything_is_stored_anew_without_a_migrator_and_after_a_crash_at_every_write() {
    let (lab, alone) = lab_alone().await;
    let test = TestNamespace::new(lab, "storage").await.unwrap();
    let done = test
        .run(async |test| -> Outcome {
            let writes = moved(test, false, Fault::None).await?;
            assert_eq!(writes.len(), NAMES.len() + 1, "each instance, then the CRD's status");
            let (first, last) = (writes.first(), writes.last());
            for point in &writes {
                for hit in Hit::ALL {
                    let chosen = match hit {
                        Hit::Death => true,
                        Hit::AnswerLost => Some(point) == last,
                        Hit::ServerError => Some(point) == first,
                        _ => false,
                    };
                    if chosen || faults::all() {
                        moved(test, false, Fault::At(point.clone(), hit)).await?;
                    }
                }
            }
            Ok(())
        })
        .await;
    alone.end(lab).await.unwrap();
    done.unwrap();
}

/// The second life finds the migration of the first, which is for a CRD that is gone, and puts another in its place.
#[tokio::test]
async fn the_clusters_migrator_is_asked_anew_for_each_crd_and_after_a_crash() {
    let (lab, alone) = lab_alone().await;
    let test = TestNamespace::new(lab, "migrator").await.unwrap();
    let done = test
        .run(async |test| -> Outcome {
            let migrations = |verb: &str, writes: &[Point]| {
                let kind = format!("{verb} storageversionmigrations");
                writes.iter().find(|point| point.kind.starts_with(&kind)).cloned()
            };
            let writes = moved(test, true, Fault::None).await?;
            let create = migrations("create", &writes).ok_or("nobody asked the migrator")?;
            let writes = moved(test, true, Fault::At(create, Hit::Death)).await?;
            let delete = migrations("delete", &writes).ok_or("the old migration was taken for a new one")?;
            moved(test, true, Fault::At(delete, Hit::Death)).await?;
            Ok(())
        })
        .await;
    alone.end(lab).await.unwrap();
    done.unwrap();
}
