//! What `/metrics` says of clusters, beside what every operator counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use domain::{ConditionKind, Report, Truth};

use super::apply::{ApplyError, Outcome};
use super::watches::Key;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCluster {
    namespace: String,
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStep {
    step: &'static str,
    outcome: &'static str,
}

/// Cheap to clone: every clone counts into the same series.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    size: Family<OfCluster, Gauge>,
    ready: Family<OfCluster, Gauge>,
    quorum_lost: Family<OfCluster, Gauge>,
    database: Family<OfCluster, Gauge>,
    steps: Family<OfStep, Counter>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("cluster_members", "Members of each cluster", metrics.size.clone());
        registry.register("cluster_ready_members", "Members that serve clients", metrics.ready.clone());
        registry.register(
            "cluster_quorum_lost",
            "1 while a cluster cannot take writes because a majority of its members is down",
            metrics.quorum_lost.clone(),
        );
        registry.register(
            "cluster_database_bytes",
            "Size of the largest member's database on disk",
            metrics.database.clone(),
        );
        registry.register(
            "steps",
            "Steps taken, by kind and outcome: done, wait (etcd asks to), stale (look again), or the reason of the failure",
            metrics.steps.clone(),
        );
        metrics
    }

    pub fn report(&self, key: &Key, report: &Report) {
        let lost = report
            .conditions
            .iter()
            .any(|condition| condition.kind == ConditionKind::QuorumLost && condition.status == Truth::True);
        let labels = of(key);
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.size.get_or_create(&labels).set(report.size.into());
        self.ready.get_or_create(&labels).set(number(report.ready.len()));
        self.quorum_lost.get_or_create(&labels).set(lost.into());
        let bytes = i64::try_from(report.db_size.unwrap_or_default()).unwrap_or(i64::MAX);
        self.database.get_or_create(&labels).set(bytes);
    }

    /// The cluster is no more.
    pub fn forget(&self, key: &Key) {
        let labels = of(key);
        self.size.remove(&labels);
        self.ready.remove(&labels);
        self.quorum_lost.remove(&labels);
        self.database.remove(&labels);
    }

    pub fn stepped(&self, step: &'static str, outcome: &Result<Outcome, ApplyError>) {
        let outcome = match outcome {
            Ok(Outcome::Done) => "done",
            Ok(Outcome::Wait(_)) => "wait",
            Ok(Outcome::Stale(_)) => "stale",
            Err(error) => error.reason(),
        };
        self.steps.get_or_create(&OfStep { step, outcome }).inc();
    }
}

fn of(key: &Key) -> OfCluster {
    OfCluster { namespace: key.namespace.clone(), cluster: key.name.clone() }
}
