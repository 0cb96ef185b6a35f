//! What the operator says of a cluster: status, conditions, events.

use std::time::Duration;

use api::conditions::{Condition, ConditionStatus};
use api::v1beta2::{EtcdCluster, EtcdClusterStatus};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use lab::kit::wait_for;
use lab::wait::until;

use super::{Cluster, Outcome};

impl Cluster<'_> {
    /// Waits until the status is as asked for.
    pub async fn says(
        &self,
        what: &str,
        within: Duration,
        holds: impl Fn(&EtcdClusterStatus) -> bool,
    ) -> Outcome<EtcdClusterStatus> {
        let holds = |cluster: &EtcdCluster| cluster.status.as_ref().is_some_and(&holds);
        let seen = wait_for(&self.api(), &self.name, within, what, holds).await?;
        Ok(seen.status.unwrap_or_default())
    }

    /// Waits until a condition has that status, and gives it.
    pub async fn condition(
        &self,
        kind: &str,
        status: ConditionStatus,
        within: Duration,
    ) -> Outcome<Condition> {
        let what = format!("to have condition {kind}={status:?}");
        let found = |said: &EtcdClusterStatus| {
            said.conditions.iter().find(|c| c.type_ == kind && c.status == status).cloned()
        };
        let said = self.says(&what, within, |said| found(said).is_some()).await?;
        found(&said).ok_or_else(|| what.into())
    }

    /// Waits for an event about this cluster, and gives its message.
    pub async fn event(&self, reason: &str, within: Duration) -> Outcome<String> {
        let fields = format!("involvedObject.name={},reason={reason}", self.name);
        let events = self.test.api::<Event>();
        let message = until(&format!("the event {reason}"), within, async || {
            let found = events.list(&ListParams::default().fields(&fields)).await?.items;
            Ok(found.into_iter().find_map(|event| event.message).ok_or("there is none"))
        })
        .await?;
        Ok(message)
    }
}
