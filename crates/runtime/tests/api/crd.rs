use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use runtime::crd::{CrdError, Installed, Wanted};
use serde_json::{Value, json};

use crate::server;

const ANNOTATION: &str = "example.com/operator-version";
const PATIENCE: Duration = Duration::from_secs(20);

fn crd(group: &str, versions: &[&str]) -> CustomResourceDefinition {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(n, name)| {
            json!({
                "name": name, "served": true, "storage": n == 0,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            })
        })
        .collect();
    let crd = json!({
        "metadata": { "name": format!("foos.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions,
            "names": { "kind": "Foo", "plural": "foos" },
        },
    });
    serde_json::from_value(crd).unwrap()
}

fn wanted(group: &str, versions: &[&str], version: &str) -> Wanted {
    Wanted::new(crd(group, versions), ANNOTATION, version.parse().unwrap())
}

/// A group that no other test and no earlier run has used.
async fn group(client: &Client) -> String {
    format!("{}.example.com", server::namespace(client).await)
}

#[tokio::test]
async fn a_crd_goes_up_with_the_operator_and_never_down() {
    let client = server::client().await;
    let group = group(&client).await;
    let install = async |versions: &[&str], version: &str| {
        wanted(&group, versions, version).install(&client, PATIENCE).await.unwrap()
    };
    assert_eq!(install(&["v1"], "0.10.0").await, Installed::Created);
    assert_eq!(install(&["v1"], "0.10.0").await, Installed::Unchanged, "a restart writes nothing");
    assert_eq!(install(&["v2", "v1"], "0.11.0").await, Installed::Updated);
    assert_eq!(install(&["v1"], "0.10.0").await, Installed::KeptNewer("0.11.0".parse().unwrap()));

    // Objects may be stored in v1, which 0.12 no longer knows.
    assert_eq!(install(&["v2"], "0.12.0").await, Installed::Updated);
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let now = crds.get(&format!("foos.{group}")).await.unwrap();
    let versions: Vec<_> = now.spec.versions.iter().map(|v| (v.name.as_str(), v.storage)).collect();
    assert_eq!(versions, [("v2", true), ("v1", false)]);
    assert_eq!(now.annotations()[ANNOTATION], "0.12.0");
}

#[tokio::test]
async fn operators_that_start_together_do_not_fight() {
    let client = server::client().await;
    let group = group(&client).await;
    let wanted: Vec<_> = (0..6).map(|n| wanted(&group, &["v1"], &format!("0.{n}.0"))).collect();
    for result in join_all(wanted.iter().map(|wanted| wanted.install(&client, PATIENCE))).await {
        result.expect("each ends well");
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let end = crds.get(&format!("foos.{group}")).await.unwrap();
    assert_eq!(end.annotations()[ANNOTATION], "0.5.0", "the newest won");
}

#[tokio::test]
async fn a_taken_name_is_an_error_that_says_so() {
    let client = server::client().await;
    let group = group(&client).await;
    wanted(&group, &["v1"], "1.0.0").install(&client, PATIENCE).await.unwrap();
    let mut rival = crd(&group, &["v1"]);
    rival.metadata.name = Some(format!("bars.{group}"));
    rival.spec.names.plural = "bars".into();
    let rival = Wanted::new(rival, ANNOTATION, "1.0.0".parse().unwrap());
    let error = rival.install(&client, PATIENCE).await.unwrap_err();
    assert!(matches!(&error, CrdError::Refused { why, .. } if why.contains("Foo")), "{error}");
}

#[tokio::test]
async fn a_crd_that_is_being_deleted_is_made_again_when_it_is_gone() {
    let client = server::client().await;
    let group = group(&client).await;
    let wanted = wanted(&group, &["v1"], "1.0.0");
    wanted.install(&client, PATIENCE).await.unwrap();
    // An object with a finalizer holds the deletion up.
    let resource = ApiResource {
        group: group.clone(),
        version: "v1".into(),
        api_version: format!("{group}/v1"),
        kind: "Foo".into(),
        plural: "foos".into(),
    };
    let foos: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let mut foo = DynamicObject::new("held", &resource);
    foo.finalizers_mut().push("example.com/hold".into());
    foos.create(&PostParams::default(), &foo).await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.delete(&format!("foos.{group}"), &DeleteParams::default()).await.unwrap();
    let error = wanted.install(&client, PATIENCE).await.unwrap_err();
    assert!(matches!(error, CrdError::BeingDeleted(_)), "{error}");

    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    foos.patch("held", &PatchParams::default(), &release).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let policy = runtime::backoff::Policy { first: Duration::from_millis(100), most: Duration::from_secs(1) };
    let install = runtime::backoff::until_ok(policy, &stop, "install", || wanted.install(&client, PATIENCE));
    let installed = tokio::time::timeout(PATIENCE, install).await.expect("in time");
    assert_eq!(installed, Some(Installed::Created));
}
