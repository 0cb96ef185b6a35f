//! The operator that made a cluster's pods, before ours: its lock says whether it still runs.

use std::sync::Arc;
use std::time::Duration;

use domain::Moment;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Endpoints, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use serde::Deserialize;

use super::{Context, pods};

/// The coreos operator's election is an annotation on Endpoints of this name.
const LOCK: &str = "etcd-operator";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Whoever has not renewed for so many of its terms is gone.
const TERMS: u32 = 2;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    holder_identity: String,
    lease_duration_seconds: u32,
    renew_time: Timestamp,
}

/// Asked only while there are pods that no operator of ours made, and none of ours has taken over.
pub async fn look(context: &Context, found: &[&Arc<Pod>], now: Moment) -> Option<String> {
    if !found.iter().any(|pod| pods::is_inherited(pod)) {
        return None;
    }
    let locks = context.watches.scope.api::<PartialObjectMeta<Endpoints>>(&context.client);
    let named = ListParams::default().fields(&format!("metadata.name={LOCK}"));
    match locks.list(&named).await {
        Ok(locks) => locks.items.iter().find_map(|lock| holder(lock, now)),
        Err(error) => Some(format!(
            "whether it still runs cannot be known: list endpoints {LOCK} must be allowed and answered ({error})"
        )),
    }
}

fn holder(lock: &PartialObjectMeta<Endpoints>, now: Moment) -> Option<String> {
    let held: Held = serde_json::from_str(lock.annotations().get(LEADER)?).ok()?;
    let renewed = Moment(u64::try_from(held.renew_time.as_millisecond()).unwrap_or_default());
    let term = Duration::from_secs(held.lease_duration_seconds.into());
    let runs = now.since(renewed) <= term * TERMS;
    (runs && !held.holder_identity.is_empty()).then(|| {
        format!(
            "it still runs, as {} in namespace {}: stop it, as by kubectl delete deployment, and this one takes over",
            held.holder_identity,
            lock.namespace().unwrap_or_default(),
        )
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::renewed_just_now("etcd-operator-1", "2026-11-16T00:00:00Z", true)]
    #[case::may_have_missed_one("etcd-operator-1", "2026-11-15T23:59:35Z", true)]
    #[case::gone("etcd-operator-1", "2026-11-15T23:59:29Z", false)]
    #[case::given_back("", "2026-11-16T00:00:00Z", false)]
    fn who_renews_still_runs(#[case] holder_identity: &str, #[case] renewed: &str, #[case] runs: bool) {
        let leader = json!({
            "holderIdentity": holder_identity, "leaseDurationSeconds": 15, "renewTime": renewed,
            "acquireTime": "2026-11-01T00:00:00Z", "leaderTransitions": 0,
        });
        let mut lock = PartialObjectMeta::<Endpoints>::default();
        lock.annotations_mut().insert(LEADER.to_owned(), leader.to_string());
        let now: Timestamp = "2026-11-16T00:00:00Z".parse().unwrap();
        assert_eq!(holder(&lock, Moment(u64::try_from(now.as_millisecond()).unwrap())).is_some(), runs);
    }

    #[test]
    fn endpoints_of_a_service_are_no_lock() {
        assert_eq!(holder(&PartialObjectMeta::default(), Moment(0)), None);
    }
}
