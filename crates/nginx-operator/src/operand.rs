//! What an `NginxOperator` asks for, as objects. Pure: no client required.
//!
//! An object is written as a JSON merge patch: what it names must be so, `null` must not be there, and what it does
//! not name belongs to others. Server-side apply would not do: it keys the ports of a Service by number, so that an
//! edit of one by hand would leave two.

use api::nginx::{
    self, CONFIGURATION_ANNOTATION, FORCE_REDEPLOY_ANNOTATION, INSTANCE_LABEL, NginxOperator, Port, Version,
};
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use thiserror::Error;

const DEPLOYMENT: &str = include_str!("../assets/v1alpha1/nginx-deployment.yaml");
const SERVICE: &str = include_str!("../assets/v1alpha1/nginx-service.yaml");
const CONFIGURATION: &str = include_str!("../assets/v1alpha1/nginx.conf");

#[derive(Debug, Error)]
#[error("asset {name} of this program is broken: {source}")]
pub struct AssetError {
    name: &'static str,
    source: Box<serde_saphyr::Error>,
}

/// The files that the operand is made from.
#[derive(Clone, Debug)]
pub struct Assets {
    deployment: Value,
    service: Value,
}

/// What shall exist for one instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub deployment: Value,
    pub service: Value,
}

impl Assets {
    pub fn load() -> Result<Self, AssetError> {
        let parse = |name, text| {
            serde_saphyr::from_str(text).map_err(|source| AssetError { name, source: Box::new(source) })
        };
        Ok(Self {
            deployment: parse("nginx-deployment.yaml", DEPLOYMENT)?,
            service: parse("nginx-service.yaml", SERVICE)?,
        })
    }

    /// The image where the spec names none.
    pub fn default_image(&self) -> &str {
        self.deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
    }

    /// The spec laid over the files. `version` is the one that owner references shall name.
    pub fn wanted(&self, instance: &NginxOperator, version: Version) -> Wanted {
        let metadata = json!({
            "name": instance.name_any(),
            "labels": nginx::labels(&instance.name_any()),
            "ownerReferences": [owner(instance, version)],
        });
        Wanted {
            deployment: self.deployment(instance, &metadata),
            service: self.service(instance, &metadata),
        }
    }

    fn deployment(&self, instance: &NginxOperator, metadata: &Value) -> Value {
        let spec = &instance.spec;
        let labels = nginx::labels(&instance.name_any());
        let ports: Vec<Value> = (0..)
            .zip(&spec.ports)
            .map(|(index, Port { port, .. })| json!({ "name": container_port(index), "containerPort": port }))
            .collect();
        let mut wanted = self.deployment.clone();
        lay_over(&mut wanted["metadata"], metadata);
        lay_over(
            &mut wanted["spec"],
            &json!({
                "replicas": spec.replicas,
                // A paused Deployment would take no change.
                "paused": null,
                "selector": { "matchLabels": labels },
                "template": { "metadata": {
                    "labels": labels,
                    "annotations": {
                        CONFIGURATION_ANNOTATION: configuration(&spec.ports),
                        FORCE_REDEPLOY_ANNOTATION: spec.force_redeploy,
                    },
                } },
            }),
        );
        let container = &mut wanted["spec"]["template"]["spec"]["containers"][0];
        container["ports"] = json!(ports);
        if let Some(image) = &spec.image {
            container["image"] = json!(image);
        }
        wanted
    }

    fn service(&self, instance: &NginxOperator, metadata: &Value) -> Value {
        let ports: Vec<Value> = (0..)
            .zip(&instance.spec.ports)
            .map(|(index, Port { name, port })| {
                json!({ "name": name, "port": port, "targetPort": container_port(index), "protocol": "TCP" })
            })
            .collect();
        let mut wanted = self.service.clone();
        lay_over(&mut wanted["metadata"], metadata);
        lay_over(
            &mut wanted["spec"],
            &json!({ "selector": nginx::labels(&instance.name_any()), "ports": ports }),
        );
        wanted
    }
}

/// Ports of the container are named by their place, so that a port can be renamed without touching a pod.
fn container_port(index: usize) -> String {
    if index == 0 { "http".to_owned() } else { format!("http-{index}") }
}

fn configuration(ports: &[Port]) -> String {
    let listen: Vec<String> = ports.iter().map(|Port { port, .. }| format!("listen {port};")).collect();
    CONFIGURATION.replace("@LISTEN@", &listen.join("\n        "))
}

fn owner(instance: &NginxOperator, version: Version) -> Value {
    json!({
        "apiVersion": version.api_version(), "kind": nginx::KIND,
        "name": instance.name_any(), "uid": instance.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Maps are merged, everything else is replaced. Nulls stay: they say what must not be there.
fn lay_over(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// Whether the object that was found is not as wanted.
pub fn differs(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            wanted.iter().any(|(key, value)| differs(value, found.get(key).unwrap_or(&Value::Null)))
        }
        // The API server adds defaults to the items of a list, and never an item.
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() != found.len()
                || wanted.iter().zip(found).any(|(wanted, found)| differs(wanted, found))
        }
        (wanted, found) => wanted != found,
    }
}

/// The object to create: in a new one there is nothing to take away.
pub fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// The instance that a labelled object belongs to.
pub fn instance_of<K: ResourceExt>(object: &K) -> Option<&str> {
    object.labels().get(INSTANCE_LABEL).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use api::nginx::NginxOperatorSpec;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Service;

    use super::*;

    fn instance(edit: impl FnOnce(&mut NginxOperatorSpec)) -> NginxOperator {
        let mut instance = NginxOperator::new("web", NginxOperatorSpec::default());
        instance.metadata.uid = Some("u-1".into());
        edit(&mut instance.spec);
        instance
    }

    fn wanted(edit: impl FnOnce(&mut NginxOperatorSpec)) -> Wanted {
        Assets::load().unwrap().wanted(&instance(edit), Version::V1alpha2)
    }

    fn template(wanted: &Wanted) -> &Value {
        &wanted.deployment["spec"]["template"]
    }

    #[test]
    fn the_files_are_what_kubernetes_takes_them_for() {
        let Wanted { deployment, service } = wanted(|_| {});
        let typed: Deployment = serde_json::from_value(without_nulls(&deployment)).unwrap();
        let again = serde_json::to_value(&typed).unwrap();
        assert!(
            !differs(&deployment, &again),
            "a field is unknown to Kubernetes:\n{deployment:#}\n{again:#}"
        );
        let typed: Service = serde_json::from_value(without_nulls(&service)).unwrap();
        assert!(!differs(&service, &serde_json::to_value(&typed).unwrap()));
        assert_eq!(Assets::load().unwrap().default_image(), "nginx:latest");
    }

    #[test]
    fn ports_reach_configuration_container_and_service() {
        let wanted = wanted(|spec| {
            spec.ports =
                vec![Port { name: "web".into(), port: 8080 }, Port { name: "admin".into(), port: 81 }];
        });
        let configuration =
            template(&wanted)["metadata"]["annotations"][CONFIGURATION_ANNOTATION].as_str().unwrap();
        assert!(configuration.contains("        listen 8080;\n        listen 81;\n"), "{configuration}");
        assert_eq!(configuration.matches("listen 81;").count(), 1, "{configuration}");
        assert_eq!(
            template(&wanted)["spec"]["containers"][0]["ports"],
            json!([{ "name": "http", "containerPort": 8080 }, { "name": "http-1", "containerPort": 81 }])
        );
        assert_eq!(
            wanted.service["spec"]["ports"],
            json!([
                { "name": "web", "port": 8080, "targetPort": "http", "protocol": "TCP" },
                { "name": "admin", "port": 81, "targetPort": "http-1", "protocol": "TCP" },
            ])
        );
    }

    #[test]
    fn a_port_is_renamed_and_an_operand_scaled_without_touching_a_pod() {
        let before = wanted(|_| {});
        let renamed = wanted(|spec| spec.ports[0].name = "web".into());
        let scaled = wanted(|spec| spec.replicas = 0);
        assert_eq!(before.deployment, renamed.deployment);
        assert_ne!(before.service, renamed.service);
        assert_eq!(template(&before), template(&scaled));
        assert_eq!(scaled.deployment["spec"]["replicas"], 0, "zero is not unset");
    }

    #[test]
    fn every_change_of_force_redeploy_changes_the_pods_and_nothing_else() {
        let values = [None, Some(String::new()), Some("a".to_owned()), Some("b".to_owned())];
        let all: Vec<Wanted> =
            values.into_iter().map(|value| wanted(|spec| spec.force_redeploy = value)).collect();
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(template(one), template(other));
                assert_eq!(template(one)["spec"], template(other)["spec"]);
                assert_eq!(one.service, other.service);
            }
        }
    }

    #[test]
    fn two_instances_share_no_name_and_no_selector() {
        let assets = Assets::load().unwrap();
        let [one, two] = ["one", "two"].map(|name| {
            assets.wanted(&NginxOperator::new(name, NginxOperatorSpec::default()), Version::V1alpha2)
        });
        for (one, two) in [(&one.deployment, &two.deployment), (&one.service, &two.service)] {
            assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
            assert_ne!(one["spec"]["selector"], two["spec"]["selector"]);
        }
    }

    #[test]
    fn only_what_is_named_counts_as_a_difference() {
        let wanted = json!({ "a": 1, "gone": null, "list": [{ "name": "x" }] });
        let same = json!({ "a": 1, "other": 2, "list": [{ "name": "x", "default": true }] });
        assert!(!differs(&wanted, &same));
        for other in [
            json!({ "a": 2, "list": [{ "name": "x" }] }),
            json!({ "a": 1, "gone": "", "list": [{ "name": "x" }] }),
            json!({ "a": 1, "list": [{ "name": "y" }] }),
            json!({ "a": 1, "list": [{ "name": "x" }, { "name": "y" }] }),
            json!({ "a": 1 }),
        ] {
            assert!(differs(&wanted, &other), "{other}");
        }
        assert_eq!(without_nulls(&wanted), json!({ "a": 1, "list": [{ "name": "x" }] }));
    }
}
