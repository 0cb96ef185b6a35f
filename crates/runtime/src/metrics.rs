//! The metrics that every operator has. Labels come from closed sets (controllers, reasons, the kinds that our
//! code asks for), so that no object, message or user can make the number of series grow.

use std::fmt::{self, Write};
use std::time::Instant;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requested {
    verb: &'static str,
    resource: String,
    code: Code,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLease {
    lease: String,
}

/// How an API request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    Status(u16),
    Timeout,
    Failed,
    Cancelled,
}

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
        match self {
            Self::Status(code) => write!(encoder, "{code}"),
            Self::Timeout => encoder.write_str("timeout"),
            Self::Failed => encoder.write_str("failed"),
            Self::Cancelled => encoder.write_str("cancelled"),
        }
    }
}

/// Cheap to clone: every clone counts into the same series.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<Reconciled, Counter>,
    durations: Family<OfController, Histogram, fn() -> Histogram>,
    requests: Family<Requested, Counter>,
    leading: Family<OfLease, Gauge>,
    events_failed: Counter,
}

impl Metrics {
    /// Registers the standard metrics; the registry's prefix names the operator.
    pub fn register(registry: &mut Registry, version: &str) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 3.0, 9))),
            requests: Family::default(),
            leading: Family::default(),
            events_failed: Counter::default(),
        };
        let build = Info::new(vec![("version".to_owned(), version.to_owned())]);
        registry.register("build", "The version that runs", build);
        registry.register(
            "reconciles",
            "Reconciles by controller and outcome: ok, cancelled, or the reason of the failure",
            metrics.reconciles.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "Time that one reconcile took",
            metrics.durations.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the Kubernetes API by verb, resource and status code",
            metrics.requests.clone(),
        );
        registry.register(
            "leading",
            "1 while this process leads for the lease, else 0",
            metrics.leading.clone(),
        );
        registry.register(
            "events_failed",
            "Kubernetes Events that could not be written",
            metrics.events_failed.clone(),
        );
        metrics
    }

    /// Starts the clock of one reconcile.
    pub fn reconcile(&self, controller: &'static str) -> Reconcile {
        Reconcile { metrics: self.clone(), controller, outcome: "cancelled", began: Instant::now() }
    }

    /// The gauge of one lease; there is one for each controller.
    pub fn leading(&self, lease: &str) -> Gauge {
        self.leading.get_or_create_owned(&OfLease { lease: lease.to_owned() })
    }

    pub(crate) fn event_failed(&self) {
        self.events_failed.inc();
    }

    pub(crate) fn requested(&self, verb: &'static str, resource: String, code: Code) {
        self.requests.get_or_create(&Requested { verb, resource, code }).inc();
    }
}

/// Everything that is registered, as `/metrics` shows it.
pub fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

/// Counts and measures one reconcile when it goes out of scope, also when it is dropped half-way.
#[must_use]
pub struct Reconcile {
    metrics: Metrics,
    controller: &'static str,
    outcome: &'static str,
    began: Instant,
}

impl Reconcile {
    pub fn ok(mut self) {
        self.outcome = "ok";
    }

    /// `reason` is one of the error's stable, closed set.
    pub fn failed(mut self, reason: &'static str) {
        self.outcome = reason;
    }
}

impl Drop for Reconcile {
    fn drop(&mut self) {
        let Self { metrics, controller, outcome, began } = self;
        metrics.reconciles.get_or_create(&Reconciled { controller, outcome }).inc();
        metrics.durations.get_or_create(&OfController { controller }).observe(began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_a_reconcile_ends_is_counted() {
        let mut registry = Registry::with_prefix("op");
        let metrics = Metrics::register(&mut registry, "0.10.0");
        metrics.reconcile("cluster").ok();
        metrics.reconcile("cluster").failed("EtcdUnreachable");
        drop(metrics.reconcile("cluster"));
        metrics.leading("lease-a").set(1);
        let text = text(&registry).unwrap();
        for line in [
            r#"op_build_info{version="0.10.0"} 1"#,
            r#"op_reconciles_total{controller="cluster",outcome="ok"} 1"#,
            r#"op_reconciles_total{controller="cluster",outcome="EtcdUnreachable"} 1"#,
            r#"op_reconciles_total{controller="cluster",outcome="cancelled"} 1"#,
            r#"op_reconcile_duration_seconds_count{controller="cluster"} 3"#,
            r#"op_leading{lease="lease-a"} 1"#,
            "op_events_failed_total 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
