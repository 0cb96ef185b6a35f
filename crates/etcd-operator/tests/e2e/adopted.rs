//! Members that an operator of old made are taken over as they are.

use api::conditions::ConditionStatus;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::ResourceExt;
use kube::api::DeleteParams;
use lab::kit::{TestNamespace, shared_lab, wait_for};
use rstest::rstest;
use serde_json::{Value, json};

use crate::heal::volume;
use crate::support::predecessor::{self, CLIENT_SERVICE, LOCK, MEMBERS, VERSION};
use crate::support::{Cluster, LIMIT, Operator, Outcome};

const NEXT: &str = "3.4.15";

/// Nothing is touched while the other operator runs. Then the members and Services are ours, and not one member restarts: what
/// is lost is healed, a resize, an upgrade and an edit of the template are followed.
#[rstest]
#[case::on_empty_dirs("adopted", json!({}))]
#[case::on_volumes("adopted-volumes", json!({"persistentVolumeClaimSpec": volume()}))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_the_operator_before(#[case] prefix: &str, #[case] pod: Value) {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, prefix).await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let on_volumes = pod.get("persistentVolumeClaimSpec").is_some();
        let spec = json!({"size": 3, "version": VERSION, "paused": true, "pod": pod});
        let cluster = Cluster::create(test, "c", spec).await?;
        cluster.says("to be paused", LIMIT, |status| status.control_paused).await?;
        predecessor::members(&cluster).await?;
        predecessor::runs(&cluster).await?;
        let load = cluster.traffic().await?;
        let before = cluster.footprints().await?;
        let services = test.api::<Service>();
        let for_clients = services.get(CLIENT_SERVICE).await?;

        cluster.edit(json!({"paused": false})).await?;
        let told = cluster.condition("Degraded", ConditionStatus::True, LIMIT).await?;
        assert!(told.message.contains("etcd-operator-of-old"), "{}", told.message);
        cluster.event("Rival", LIMIT).await?;
        let touched = |pod: &Pod| pod.annotations().len() > 1 || pod.labels().len() > 3;
        let pods = cluster.pods().await?;
        assert!(!pods.iter().any(touched), "touched beside another operator: {pods:?}");
        assert_eq!(services.get(CLIENT_SERVICE).await?, for_clients, "touched beside another operator");

        test.api::<Endpoints>().delete(LOCK, &DeleteParams::default()).await?;
        cluster.settled(3, VERSION).await?;
        let after = cluster.footprints().await?;
        assert_eq!(before, after, "taken over without a restart");
        let selects = |service: &Service| service.spec.as_ref().and_then(|spec| spec.selector.clone());
        let serving = Some(api::labels::serving("c"));
        let what = "to lead to members that serve";
        let now = wait_for(&services, CLIENT_SERVICE, LIMIT, what, |now| selects(now) == serving).await?;
        assert_eq!(now.uid(), for_clients.uid(), "its address stays");

        let victim = cluster.victim_named(MEMBERS[0]).await?;
        test.kubectl(&["delete", "pod", MEMBERS[0]]).await?;
        cluster.settled(3, VERSION).await?;
        if on_volumes {
            victim.came_back_on_its_volume(&cluster).await?;
        } else {
            victim.was_replaced(&cluster).await?;
        }
        cluster.edit(json!({"size": 4})).await?;
        cluster.settled(4, VERSION).await?;
        cluster.edit(json!({"size": 3})).await?;
        cluster.settled(3, VERSION).await?;
        cluster.edit(json!({"version": NEXT})).await?;
        cluster.settled(3, NEXT).await?;

        let old: Vec<_> = cluster.pods().await?.iter().map(ResourceExt::uid).collect();
        cluster.edit(json!({"pod": {"annotations": {"changed": "yes"}}})).await?;
        cluster
            .pods_are("to be of the new template", |pods| {
                pods.len() == 3 && pods.iter().all(|pod| !old.contains(&pod.uid()))
            })
            .await?;
        cluster.settled(3, NEXT).await?;
        load.end_without_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}
