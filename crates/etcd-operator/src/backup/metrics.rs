//! What `/metrics` says of backups, beside what every operator counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::scope::Key;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAttempt {
    outcome: &'static str,
}

/// Cheap to clone: every clone counts into the same series.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    attempts: Family<OfAttempt, Counter>,
    ages: Ages,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "backup_attempts",
            "Attempts at backups, by outcome: made, or the reason of the failure",
            metrics.attempts.clone(),
        );
        registry.register_collector(Box::new(metrics.ages.clone()));
        metrics
    }

    pub fn attempted(&self, outcome: &'static str) {
        self.attempts.get_or_create(&OfAttempt { outcome }).inc();
    }

    /// Since when there was no later good backup.
    pub fn last_good(&self, key: &Key, since: Timestamp) {
        self.ages.lock().insert(key.clone(), since);
    }

    /// The EtcdBackup is no more, or wants no more.
    pub fn forget(&self, key: &Key) {
        self.ages.lock().remove(key);
    }

    /// Whoever leads next tells every age; what was told here would grow for ever.
    pub fn forget_all(&self) {
        self.ages.lock().clear();
    }
}

/// An age grows by itself: it is told at the moment of asking.
#[derive(Clone, Debug, Default)]
struct Ages(Arc<Mutex<BTreeMap<Key, Timestamp>>>);

impl Ages {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Ages {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "backup_age_seconds",
            "Age of the last good backup of each periodic EtcdBackup; of the EtcdBackup itself while there is none",
            None,
            MetricType::Gauge,
        )?;
        let now = Timestamp::now();
        for (key, since) in &*self.lock() {
            let age = ConstGauge::new(now.duration_since(*since).as_secs());
            let labels = [("namespace", key.namespace.as_str()), ("backup", key.name.as_str())];
            age.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use runtime::metrics::text;

    #[test]
    fn ages_grow_by_themselves_and_end_with_the_backup() {
        let mut registry = Registry::with_prefix("op");
        let metrics = Metrics::register(&mut registry);
        let key = Key { namespace: "ns".into(), name: "b".into() };
        metrics.last_good(&key, Timestamp::now() - SignedDuration::from_secs(90));
        metrics.attempted("made");
        let shown = text(&registry).unwrap();
        assert!(shown.contains(r#"op_backup_age_seconds{namespace="ns",backup="b"} 9"#), "{shown}");
        assert!(shown.contains(r#"op_backup_attempts_total{outcome="made"} 1"#), "{shown}");
        metrics.forget(&key);
        assert!(!text(&registry).unwrap().contains("backup=\"b\""));
    }

    #[test]
    fn no_age_is_told_when_the_tenure_is_over() {
        let mut registry = Registry::with_prefix("op");
        let metrics = Metrics::register(&mut registry);
        for name in ["a", "b"] {
            metrics.last_good(&Key { namespace: "ns".into(), name: name.into() }, Timestamp::now());
        }
        metrics.forget_all();
        assert!(!text(&registry).unwrap().contains("namespace="));
    }
}
