//! The state of every operand, read from the cache when somebody asks: nothing to update, nothing to clean up.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use api::nginx::NginxOperator;
use api::nginx::conditions::OPERAND_READY;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use runtime::conditions::find;

/// Cheap to clone: every clone shows the same operands.
#[derive(Clone, Default)]
pub struct Operands(Arc<RwLock<Option<Store<NginxOperator>>>>);

impl Operands {
    /// Shows these instances from now on, or none: only who leads knows them.
    pub fn show(&self, instances: Option<Store<NginxOperator>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = instances;
    }
}

impl fmt::Debug for Operands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operands")
    }
}

const GAUGES: [(&str, &str, fn(&NginxOperator) -> i64); 3] = [
    ("operand_ready", "1 if the operand is healthy, 0 if not, -1 if that is unknown", ready),
    ("operand_replicas", "Replicas that are asked for", |instance| instance.spec.replicas.into()),
    ("operand_replicas_ready", "Replicas that answer", |instance| {
        instance.status.as_ref().map_or(0, |status| status.ready_replicas.into())
    }),
];

fn ready(instance: &NginxOperator) -> i64 {
    let conditions = instance.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    match find(conditions, OPERAND_READY).map(|condition| condition.status.as_str()) {
        Some("True") => 1,
        Some("False") => 0,
        _ => -1,
    }
}

impl Collector for Operands {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let store = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(store) = store else { return Ok(()) };
        let instances = store.state();
        for (name, help, value) in GAUGES {
            let gauge = ConstGauge::new(0_i64);
            let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            for instance in &instances {
                let labels =
                    [("namespace", instance.namespace().unwrap_or_default()), ("name", instance.name_any())];
                ConstGauge::new(value(instance)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use api::nginx::NginxOperatorSpec;
    use kube::runtime::reflector::store;
    use kube::runtime::watcher::Event;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn operands_come_and_go_with_the_cache() {
        let mut registry = Registry::with_prefix("nginx_operator");
        let operands = Operands::default();
        registry.register_collector(Box::new(operands.clone()));
        let text = || runtime::metrics::text(&registry).unwrap();
        assert!(!text().contains("operand"));

        let (instances, mut writer) = store();
        let mut instance = NginxOperator::new("web", NginxOperatorSpec::default());
        instance.metadata.namespace = Some("ns".into());
        writer.apply_watcher_event(&Event::Apply(instance.clone()));
        operands.show(Some(instances));
        let line = r#"nginx_operator_operand_ready{namespace="ns",name="web"} -1"#;
        assert!(text().contains(line), "{}", text());
        assert!(text().contains(r#"nginx_operator_operand_replicas{namespace="ns",name="web"} 1"#));
        writer.apply_watcher_event(&Event::Delete(instance));
        assert!(!text().contains("web"), "{}", text());
    }
}
