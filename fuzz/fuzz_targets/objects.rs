//! Custom resources of every kind and version, from any JSON: what is read is written the same.

#![no_main]

use api::nginx::{v1alpha1, v1alpha2};
use api::v1beta2::RestoreRequest;
use api::{EtcdBackup, EtcdCluster, EtcdRestore, names};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The object, if it is one.
fn read<T: Serialize + DeserializeOwned>(json: &Value) -> Option<T> {
    let object: T = serde_json::from_value(json.clone()).ok()?;
    let written = serde_json::to_value(&object).expect("to be written");
    let again: T = serde_json::from_value(written.clone()).expect("what was written");
    assert_eq!(serde_json::to_value(&again).expect("to be written"), written);
    Some(object)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return };
    if let Some(cluster) = read::<EtcdCluster>(&json) {
        let zone = names::Zone::of(&cluster);
        assert_eq!(zone.member_of_peer_url(&zone.peer_url("m-1")), Some("m-1"));
        drop(RestoreRequest::on(&cluster));
        drop(cluster.spec.version().parse::<domain::Version>());
    }
    if let Some(backup) = read::<EtcdBackup>(&json) {
        drop(backup.spec.store());
        assert!(!backup.spec.policy().timeout().is_zero());
    }
    if let Some(restore) = read::<EtcdRestore>(&json) {
        drop(restore.spec.store());
    }
    drop(read::<v1alpha1::NginxOperator>(&json));
    drop(read::<v1alpha2::NginxOperator>(&json));
});
