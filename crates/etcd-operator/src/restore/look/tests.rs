//! Tables: what the cluster is, who survived, whose the restore is.

use super::*;
use rstest::rstest;
use serde_json::{Value, json};

fn cluster(status: Value, request: Option<&str>) -> EtcdCluster {
    let request = request
        .map(|uid| json!({"uid": uid, "name": uid, "image": "i", "source": {}, "digest": "d"}).to_string());
    let annotations = request.map(|text| json!({api::annotations::RESTORE: text})).unwrap_or(json!({}));
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": "c", "annotations": annotations},
        "spec": {"size": 3, "version": "3.5.16"}, "status": status,
    }))
    .unwrap()
}

#[rstest]
#[case::never_begun(json!({}), "Empty")]
#[case::lost(json!({"clusterID": "a", "conditions": [
    {"type": "Available", "status": "False"}, {"type": "QuorumLost", "status": "True"},
]}), "Lost")]
#[case::healthy(json!({"clusterID": "a", "conditions": [{"type": "Available", "status": "True"}]}), "Healthy")]
#[case::silent(json!({"clusterID": "a", "conditions": [
    {"type": "Available", "status": "Unknown"}, {"type": "QuorumLost", "status": "Unknown"},
]}), "Unknown")]
#[case::no_word(json!({"clusterID": "a"}), "Unknown")]
fn the_cluster_tells_what_it_is(#[case] status: Value, #[case] is: &str) {
    let backup = Backup { place: place(), contents: BackupContents::default(), version: None, spec: None };
    let target = target(Some(&cluster(status, None)), &EtcdRestore::default(), &backup);
    assert!(format!("{target:?}").starts_with(is), "{target:?}");
}

fn place() -> Place {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Place::memory(Vec::<u8>::new())).unwrap()
}

/// The next process goes on where this one was told to end.
#[rstest]
#[case::stopped(SaveError::Stopped, true)]
#[case::damaged(SaveError::Damaged(snapshot::Damage::Empty), false)]
fn a_survivor_that_is_not_saved(#[case] source: SaveError, #[case] passing: bool) {
    let error = LookError::Survivor { member: "c-1".into(), source };
    assert_eq!((error.is_passing(), error.yields_to_force()), (passing, !passing));
}

/// What is wrong with the store is said as a backup would say it.
#[test]
fn a_store_gives_its_own_reason() {
    let store = StoreError::NoBucket { place: "s3://wrong/k".into() };
    assert_eq!(LookError::from(ManifestError::from(store)).reason(), "BucketNotFound");
    let no_manifest = ManifestError::Unreadable { place: "b".into(), why: "no JSON".into() };
    assert_eq!(LookError::from(no_manifest).reason(), "BadManifest");
}

/// Of a cluster without a recorded ID, whose UID is `u`.
#[rstest]
#[case::nothing(json!([]), json!([]), &[])]
#[case::of_coreos(json!([pod("a", Some("u"))]), json!([]), &["a"])]
#[case::retained(json!([]), json!([claim("a", None)]), &["a"])]
#[case::orphaned(json!([pod("a", None), pod("b", None)]), json!([claim("a", None)]), &["a", "b"])]
#[case::goes_with_its_owner(json!([pod("a", Some("gone"))]), json!([claim("a", Some("gone"))]), &[])]
#[case::being_deleted(json!([with(pod("a", None), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))]), json!([]), &[])]
#[case::ended(json!([with(pod("a", Some("u")), "/status/phase", json!("Failed"))]), json!([]), &[])]
#[case::our_seed(json!([pod("seed", Some("u"))]), json!([claim("seed", Some("u"))]), &[])]
#[case::its_joiner(json!([with(pod("a", Some("u")), "/metadata/annotations", json!({
    api::annotations::INITIAL_CLUSTER: "seed=http://seed:2380,a=http://a:2380",
}))]), json!([]), &[])]
#[case::seed_of_a_restore_before(json!([pod("restored", Some("u"))]), json!([]), &[])]
fn what_nobody_has_recorded(#[case] pods: Value, #[case] claims: Value, #[case] names: &[&str]) {
    let status = json!({"seed": "seed", "restore": {"uid": "r", "seed": "restored", "stage": "Failed"}});
    let mut cluster = cluster(status, None);
    cluster.metadata.uid = Some("u".into());
    let (pods, claims): (Vec<_>, Vec<_>) =
        (serde_json::from_value(pods).unwrap(), serde_json::from_value(claims).unwrap());
    assert_eq!(unrecorded(Some(&cluster), &pods, &claims), names);
}

/// Without an EtcdCluster, whatever had one as its owner goes.
#[test]
fn what_outlived_its_cluster() {
    let pods: [Pod; 2] =
        [pod("a", Some("u")), pod("b", None)].map(|pod| serde_json::from_value(pod).unwrap());
    assert_eq!(unrecorded(None, &pods, &[]), ["b"]);
}

fn pod(name: &str, owner: Option<&str>) -> Value {
    json!({"metadata": metadata(name, owner), "status": {"phase": "Running"}})
}

fn claim(name: &str, owner: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(name, owner)})
}

fn metadata(name: &str, owner: Option<&str>) -> Value {
    let owner = owner.map(|uid| json!({"apiVersion": "v1", "kind": "EtcdCluster", "name": "c", "uid": uid}));
    json!({"name": name, "annotations": {}, "deletionTimestamp": null, "ownerReferences": Vec::from_iter(owner)})
}

fn with(mut object: Value, at: &str, value: Value) -> Value {
    *object.pointer_mut(at).unwrap() = value;
    object
}

#[rstest]
#[case::none(json!({}), None, None)]
#[case::our_own(json!({}), Some("u1"), None)]
#[case::just_asked(json!({}), Some("u2"), Some("u2"))]
#[case::filling(json!({"restore": {"uid": "u2", "seed": "s", "stage": "Filling"}}), Some("u2"), Some("u2"))]
#[case::lost_again(json!({
    "restore": {"uid": "u2", "seed": "s", "stage": "Filling"},
    "conditions": [{"type": "QuorumLost", "status": "True"}],
}), Some("u2"), None)]
#[case::lost_before(json!({
    "restore": {"uid": "u2", "seed": "s", "stage": "Seeding"},
    "conditions": [{"type": "QuorumLost", "status": "True"}],
}), Some("u2"), Some("u2"))]
#[case::done(json!({"restore": {"uid": "u2", "seed": "s", "stage": "Done"}}), Some("u2"), None)]
#[case::failed(json!({"restore": {"uid": "u2", "seed": "s", "stage": "Failed"}}), Some("u2"), None)]
#[case::of_an_earlier_one(json!({"restore": {"uid": "u0", "seed": "s", "stage": "Done"}}), Some("u2"), Some("u2"))]
fn no_two_at_once(#[case] status: Value, #[case] request: Option<&str>, #[case] other: Option<&str>) {
    assert_eq!(under_way(&cluster(status, request), "u1").as_deref(), other);
}

#[rstest]
#[case::never_asked(json!({}), None, false)]
#[case::asked(json!({}), Some("u1"), true)]
#[case::of_another(json!({}), Some("u2"), false)]
#[case::taken_back(json!({"restore": {"uid": "u1", "seed": "s", "stage": "Seeding"}}), None, false)]
#[case::given_up(json!({"restore": {"uid": "u1", "seed": "s", "stage": "Failed"}}), None, false)]
#[case::too_late(json!({"restore": {"uid": "u1", "seed": "s", "stage": "Filling"}}), None, true)]
#[case::done(json!({"restore": {"uid": "u1", "seed": "s", "stage": "Done"}}), None, true)]
fn who_is_served(#[case] status: Value, #[case] request: Option<&str>, #[case] served: bool) {
    assert_eq!(serves(&cluster(status, request), "u1"), served);
}

#[tokio::test]
async fn no_learner_and_nobody_behind_stands_for_all() {
    let of = |(name, learner, applied): (&str, bool, u64)| {
        let member = Member::connect("127.0.0.1:1", Expect::default()).unwrap();
        let status = etcd::Status {
            identity: etcd::Identity { cluster: ClusterId(1), member: domain::MemberId(applied) },
            version: Version::new(3, 5, 16),
            leader: None,
            learner,
            raft_term: 1,
            raft_index: 99,
            applied_index: Some(applied),
            db_size: 0,
            db_size_in_use: None,
            quota: None,
            errors: Vec::new(),
        };
        (name.to_owned(), Candidate { member, status })
    };
    let all = [("behind", false, 7), ("furthest", false, 9), ("learner", true, 9)].map(of).to_vec();
    assert_eq!(furthest(all).map(|(name, _)| name).as_deref(), Some("furthest"));
}
