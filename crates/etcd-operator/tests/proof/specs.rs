//! Specs from the CRDs' own schemas: every refusal names the field, and what is accepted gives the same state by any path.

use std::time::Duration;

use api::EtcdCluster;
use faults::specs::{Case, tried};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use lab::kit::TestNamespace;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::Outcome;
use crate::end::seen;
use crate::world::{NAME, World, lab};

const VERSION: &str = "3.5.16";
/// Edits of a walk that does not try all; each is also undone, and done again.
const EDITS: usize = 3;
/// What a walk edits: the rest needs images or nodes that are not here.
const EDITED: [&str; 6] = [
    "spec.size",
    "spec.pod.labels",
    "spec.pod.annotations",
    "spec.pod.tolerations",
    "spec.pod.resources",
    "spec.memberUnresponsiveSeconds",
];

fn bases() -> [(CustomResourceDefinition, Value); 3] {
    let s3 = json!({"path": "bucket/key", "awsSecret": "aws"});
    [
        (api::crd::etcd_cluster_crd(), json!({"size": 1, "version": VERSION})),
        (
            api::crd::etcd_backup_crd(),
            json!({"etcdEndpoints": ["http://c-client:2379"], "storageType": "S3", "s3": s3}),
        ),
        (
            api::crd::etcd_restore_crd(),
            json!({"etcdCluster": {"name": "c"}, "backupStorageType": "S3", "s3": s3}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_names_the_field() {
    let test = TestNamespace::new(lab().await, "specs").await.unwrap();
    test.run(async |test| -> Outcome {
        for (crd, spec) in bases() {
            let kind = crd.spec.names.kind.clone();
            let tried = tried(&test.client, &test.name, &crd, &spec).await?;
            let (accepted, refused) = (tried.accepted.len(), tried.refused);
            println!("{kind}: {} fields, {refused} specs refused, {accepted} accepted", tried.fields);
            assert!(refused > 20 && accepted > 20, "{kind}: {refused} refused, {accepted} accepted");
            assert!(tried.wrong.is_empty(), "{kind}: {}\n{}", tried.wrong.len(), tried.wrong.join("\n"));
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_spec_by_any_path_gives_the_same_state() {
    let test = TestNamespace::new(lab().await, "walk").await.unwrap();
    test.run(async |test| -> Outcome {
        let [(crd, base), ..] = bases();
        let tried = tried(&test.client, &test.name, &crd, &base).await?;
        let walked = |case: &&Case| {
            let small = (1..=3).contains(&case.object["spec"]["size"].as_i64().unwrap_or_default());
            small && EDITED.iter().any(|field| case.field.starts_with(field))
        };
        let all: Vec<&Case> = tried.accepted.iter().filter(walked).collect();
        let edits = if faults::all() { all.len() } else { EDITS };
        let picked: Vec<&Case> =
            all.choose_multiple(&mut StdRng::seed_from_u64(faults::seed()), edits).copied().collect();
        println!("{} of {} specs are walked", picked.len(), all.len());
        let world = World::new(test, &[], Duration::ZERO)?;
        world.operated(walk(&world, &base, &picked)).await
    })
    .await
    .unwrap();
}

/// To each of the specs and back, then from one to the next.
async fn walk(world: &World<'_>, base: &Value, edits: &[&Case]) -> Outcome {
    world.create("EtcdCluster", NAME, base.clone()).await?;
    let mut states = Vec::new();
    let first = settled(world, base).await?;
    for edit in edits {
        println!("to {}: {}", edit.field, edit.object["spec"]);
        states.push(to(world, &edit.object["spec"]).await?);
        assert_eq!(to(world, base).await?, first, "{} undone", edit.field);
    }
    for (edit, then) in edits.iter().zip(states) {
        assert_eq!(to(world, &edit.object["spec"]).await?, then, "{} by another path", edit.field);
    }
    Ok(())
}

async fn to(world: &World<'_>, spec: &Value) -> Outcome<Value> {
    let patch: json_patch::Patch =
        serde_json::from_value(json!([{"op": "replace", "path": "/spec", "value": spec}]))?;
    let patch = Patch::<()>::Json(patch);
    world.api::<EtcdCluster>().patch(NAME, &PatchParams::default(), &patch).await?;
    settled(world, spec).await
}

async fn settled(world: &World<'_>, spec: &Value) -> Outcome<Value> {
    let size = usize::try_from(spec["size"].as_u64().unwrap_or_default())?;
    world.says(size, VERSION).await?;
    // Whoever is refused a pod asks again and again, and looks only before that.
    world.at_rest(0).await?;
    seen(world).await
}
