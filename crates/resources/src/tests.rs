//! What every builder makes, as people read it. `INSTA_UPDATE=always cargo test -p resources` writes new snapshots.

use api::v1beta2::RestoreRequest;
use insta::assert_snapshot;
use serde_json::json;

use crate::{
    Bootstrap, Cluster, client_service,
    fixture::{plain, with_pod, yaml},
    headless_service, image_check_name, image_check_pod, member_pod, persistent_volume_claim,
    pod_disruption_budget,
};

const MEMBER: &str = "example-etcd-cluster-hszgh6rfmb";
const SEED: Bootstrap<'_> = Bootstrap::Seed { token: "4b5215fa-5401-4a95-a8c6-892317c9bef8" };

fn volume() -> serde_json::Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
}

#[test]
fn seed_pod() {
    let cluster = plain();
    let cluster = Cluster::of(&cluster).unwrap();
    assert_snapshot!(yaml(&member_pod(&cluster, MEMBER, "3.1.10", SEED, None)));
}

#[test]
fn joining_pod_with_everything_that_the_spec_can_say() {
    let cluster = with_pod(&json!({
        "labels": {"team": "storage", "app": "mine", "etcd.database.coreos.com/serving": "true"},
        "annotations": {"note": "hello", "etcd.version": "9.9.9"},
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
        "antiAffinity": true,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "etcdEnv": [{"name": "ETCD_QUOTA_BACKEND_BYTES", "value": "8589934592"}],
        "persistentVolumeClaimSpec": volume(),
        "busyboxImage": "busybox:1.36",
        "securityContext": {"runAsUser": 0},
        "DNSTimeoutInSecond": 5,
        "ClusterDomain": ".cluster.local",
    }));
    let cluster = Cluster::of(&cluster).unwrap();
    let join = Bootstrap::Join { initial_cluster: "a=http://a:2380,b=http://b:2380" };
    assert_snapshot!(yaml(&member_pod(&cluster, MEMBER, "3.5.16", join, Some("a-claims-uid"))));
}

#[test]
fn a_member_that_resumes_cannot_start_without_its_data() {
    let cluster = with_pod(&json!({"persistentVolumeClaimSpec": volume()}));
    let cluster = Cluster::of(&cluster).unwrap();
    let pod = member_pod(&cluster, MEMBER, "3.5.16", Bootstrap::Resume { inherited: false }, Some("uid"));
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations["etcd.database.coreos.com/initial-cluster-state"], "existing");
    assert!(!annotations["etcd.database.coreos.com/initial-cluster"].contains(MEMBER));
    let command = pod.spec.unwrap().containers.remove(0).command.unwrap();
    assert!(!command.iter().any(|flag| flag.contains("token")), "{command:?}");
}

#[test]
fn a_seed_made_from_a_backup_on_s3() {
    let cluster = with_pod(&json!({"persistentVolumeClaimSpec": volume()}));
    let cluster = Cluster::of(&cluster).unwrap();
    let request = RestoreRequest {
        uid: "u".into(),
        name: "example-etcd-cluster".into(),
        image: "quay.io/coreos/etcd-operator:v0.9.4".into(),
        source: json!({"s3": {"path": "mybucket/etcd.backup"}}),
        secret: Some("aws".into()),
        claim: None,
        etcd_version: Some("3.5.16".into()),
        digest: "d1g357".into(),
    };
    let restore = Bootstrap::Restore { request: &request, token: "4b5215fa-5401-4a95-a8c6-892317c9bef8" };
    assert_snapshot!(yaml(&member_pod(&cluster, MEMBER, "3.5.16", restore, Some("a-claims-uid"))));

    let on_volume = RestoreRequest { secret: None, claim: Some("backups".into()), ..request };
    let restore = Bootstrap::Restore { request: &on_volume, token: "t" };
    let spec = member_pod(&cluster, MEMBER, "3.1.10", restore, Some("a-claims-uid")).spec.unwrap();
    let fetch = &spec.init_containers.as_ref().unwrap()[1];
    let backup = fetch.volume_mounts.iter().flatten().find(|mount| mount.mount_path == crate::BACKUP_PATH);
    assert_eq!(backup.and_then(|mount| mount.read_only), Some(true));
    let volumes = spec.volumes.unwrap();
    let claims = volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    assert_eq!(claims.map(|claim| claim.claim_name.as_str()).collect::<Vec<_>>(), [MEMBER, "backups"]);
}

#[test]
fn old_anti_affinity_forbids_two_members_on_a_node() {
    let cluster = with_pod(&json!({"antiAffinity": true}));
    let cluster = Cluster::of(&cluster).unwrap();
    let pod = member_pod(&cluster, MEMBER, "3.1.10", SEED, None);
    assert_snapshot!(yaml(&pod.spec.unwrap().affinity), @r"
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - labelSelector:
          matchLabels:
            app: etcd
            etcd_cluster: example-etcd-cluster
        topologyKey: kubernetes.io/hostname
    ");
}

#[test]
fn services() {
    let cluster = plain();
    let cluster = Cluster::of(&cluster).unwrap();
    assert_snapshot!("headless_service", yaml(&headless_service(&cluster)));
    assert_snapshot!("client_service", yaml(&client_service(&cluster)));
}

#[test]
fn budget() {
    let cluster = plain();
    assert_snapshot!(yaml(&pod_disruption_budget(&Cluster::of(&cluster).unwrap(), 2)));
}

#[test]
fn claims_go_with_the_cluster_unless_they_are_retained() {
    let cluster = plain();
    assert!(persistent_volume_claim(&Cluster::of(&cluster).unwrap(), MEMBER).is_none());

    let cluster = with_pod(&json!({"persistentVolumeClaimSpec": volume()}));
    let claim = persistent_volume_claim(&Cluster::of(&cluster).unwrap(), MEMBER).unwrap();
    assert_snapshot!(yaml(&claim));

    let retain = json!({"persistentVolumeClaimSpec": volume(),
                        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}});
    let cluster = with_pod(&retain);
    let claim = persistent_volume_claim(&Cluster::of(&cluster).unwrap(), MEMBER).unwrap();
    assert_eq!(claim.metadata.owner_references, None);
}

#[test]
fn image_check() {
    let cluster = plain();
    let cluster = Cluster::of(&cluster).unwrap();
    assert_snapshot!(yaml(&image_check_pod(&cluster, "3.2.13", "node1")));

    let name = |version, node| image_check_name(&cluster, version, node);
    assert_eq!(name("3.2.13", "node1"), name("3.2.13", "node1"));
    assert_ne!(name("3.2.13", "node1"), name("3.2.13", "node2"));
    assert_ne!(name("3.2.13", "node1"), name("3.3.12", "node1"));
    let labels = image_check_pod(&cluster, "3.2.13", "node1").metadata.labels.unwrap();
    assert_eq!(api::labels::member(&labels), None);
}
