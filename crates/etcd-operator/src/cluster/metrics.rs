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
    rule: &'static str,
    step: &'static str,
    outcome: &'static str,
}

/// What is told of each cluster: name, help, and where it comes from.
const GAUGES: [(&str, &str, fn(&Report) -> i64); 7] = [
    ("cluster_members", "Members of each cluster", |report| report.size.into()),
    ("cluster_ready_members", "Members that serve clients", |report| number(report.ready.len())),
    ("cluster_ready", "1 while a cluster is as its spec asks for, else 0", |report| {
        holds(report, ConditionKind::Ready)
    }),
    (
        "cluster_quorum_lost",
        "1 while a cluster cannot take writes because a majority of its members is down",
        |report| holds(report, ConditionKind::QuorumLost),
    ),
    ("cluster_alarm", "1 while etcd is out of space, nearly so, or found its data corrupt", |report| {
        holds(report, ConditionKind::Alarm)
    }),
    ("cluster_paused", "1 while spec.paused keeps the operator from healing a cluster", |report| {
        holds(report, ConditionKind::Paused)
    }),
    ("cluster_database_bytes", "Size of the largest member's database on disk", |report| {
        number(report.db_size.unwrap_or_default())
    }),
];

/// Cheap to clone: every clone counts into the same series.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    clusters: [Family<OfCluster, Gauge>; GAUGES.len()],
    steps: Family<OfStep, Counter>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        for ((name, help, _), family) in GAUGES.iter().zip(&metrics.clusters) {
            registry.register(*name, *help, family.clone());
        }
        registry.register(
            "steps",
            "Steps taken, by rule, kind and outcome: done, wait (etcd asks to), stale (look again), or the reason of the failure",
            metrics.steps.clone(),
        );
        metrics
    }

    pub fn report(&self, key: &Key, report: &Report) {
        for ((_, _, value), family) in GAUGES.iter().zip(&self.clusters) {
            family.get_or_create(&of(key)).set(value(report));
        }
    }

    /// The cluster is no more.
    pub fn forget(&self, key: &Key) {
        for family in &self.clusters {
            family.remove(&of(key));
        }
    }

    /// Whoever leads next tells of every cluster; what was told here would be believed for ever.
    pub fn forget_all(&self) {
        self.clusters.iter().for_each(Family::clear);
    }

    pub fn stepped(&self, rule: &'static str, step: &'static str, outcome: &Result<Outcome, ApplyError>) {
        let outcome = match outcome {
            Ok(Outcome::Done) => "done",
            Ok(Outcome::Wait(_)) => "wait",
            Ok(Outcome::Stale(_)) => "stale",
            Err(error) => error.reason(),
        };
        self.steps.get_or_create(&OfStep { rule, step, outcome }).inc();
    }
}

fn holds(report: &Report, kind: ConditionKind) -> i64 {
    let holds = |condition: &domain::Condition| condition.kind == kind && condition.status == Truth::True;
    report.conditions.iter().any(holds).into()
}

fn number(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn of(key: &Key) -> OfCluster {
    OfCluster { namespace: key.namespace.clone(), cluster: key.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::silent;
    use domain::Condition;
    use runtime::metrics::text;

    fn ready() -> Report {
        let ready = Condition {
            kind: ConditionKind::Ready,
            status: Truth::True,
            reason: String::new(),
            message: String::new(),
            announce: None,
        };
        Report {
            size: 3,
            ready: vec!["c-1".into(), "c-2".into()],
            unready: vec!["c-3".into()],
            db_size: Some(20_000),
            conditions: vec![ready],
            ..silent()
        }
    }

    #[test]
    fn nothing_is_told_of_a_cluster_that_is_gone_or_of_any_when_the_tenure_is_over() {
        let mut registry = Registry::with_prefix("op");
        let metrics = Metrics::register(&mut registry);
        let key = |name: &str| Key { namespace: "ns".into(), name: name.into() };
        for name in ["a", "b", "c"] {
            metrics.report(&key(name), &ready());
        }
        metrics.stepped("Scale", "CreateMember", &Ok(Outcome::Done));
        let told = |cluster: &str| {
            let label = format!("cluster=\"{cluster}\"");
            text(&registry).unwrap().lines().filter(|line| line.contains(&label)).count()
        };
        let shown = text(&registry).unwrap();
        assert!(shown.contains(r#"op_cluster_ready{namespace="ns",cluster="a"} 1"#), "{shown}");
        metrics.forget(&key("a"));
        assert_eq!(["a", "b", "c"].map(told), [0, GAUGES.len(), GAUGES.len()]);
        metrics.forget_all();
        assert_eq!(["a", "b", "c"].map(told), [0, 0, 0]);
        // What was counted stays counted.
        let shown = text(&registry).unwrap();
        assert!(
            shown.contains(r#"op_steps_total{rule="Scale",step="CreateMember",outcome="done"} 1"#),
            "{shown}"
        );
    }
}
