//! What the operator says of a cluster: status, conditions, events.

use std::time::Duration;

use api::conditions::{Condition, ConditionStatus};
use api::v1beta2::{EtcdCluster, EtcdClusterStatus};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::runtime::watcher::{self, watch_object};
use lab::kit::{wait_for, wait_for_all};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use super::{Cluster, Outcome};

/// A condition's status, and since when.
type Turn = (ConditionStatus, Option<Timestamp>);

/// Notes each turn of a condition.
pub struct Turns {
    seen: UnboundedReceiver<Turn>,
    watch: JoinHandle<()>,
}

impl Turns {
    /// All turns so far, in order.
    pub fn end(mut self) -> Vec<Turn> {
        self.watch.abort();
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

impl Cluster<'_> {
    /// Notes each turn of a condition, from now on.
    pub fn turns(&self, kind: &'static str) -> Turns {
        let (note, seen) = unbounded_channel();
        let changes = watch_object(self.api(), &self.name);
        let watch = tokio::spawn(async move {
            let mut changes = std::pin::pin!(changes);
            let mut last = None;
            while let Some(change) = changes.next().await {
                // A watch that breaks is set up again by itself.
                let Ok(Some(cluster)) = change else { continue };
                let conditions = cluster.status.unwrap_or_default().conditions;
                let Some(now) = conditions.iter().find(|c| c.type_ == kind) else { continue };
                let turn = (now.status, now.last_transition_time.clone().map(|time| time.0));
                if last.as_ref() == Some(&turn) {
                    continue;
                }
                last = Some(turn);
                if note.send(turn).is_err() {
                    return;
                }
            }
        });
        Turns { seen, watch }
    }

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
        let about =
            watcher::Config::default().fields(&format!("involvedObject.name={},reason={reason}", self.name));
        let message = |events: &[Event]| events.iter().find_map(|event| event.message.clone());
        let what = format!("the event {reason}");
        let told =
            wait_for_all(&self.test.api(), about, within, &what, |events| message(events).is_some()).await?;
        message(&told).ok_or_else(|| what.into())
    }
}
