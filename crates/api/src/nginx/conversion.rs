//! From one version to another and back, and nothing is lost on the way.
//!
//! It works on plain JSON, so that fields that these types do not know pass through, and it never fails for an object
//! of ours: one object that cannot be converted would take every list of them down with it.

use serde_json::{Value, json};

use super::{DEFAULT_PORT_NAME, KIND, PORTS_ANNOTATION, Port, Version};

/// What was sent is not an `NginxOperator` of a version that we know.
#[derive(Debug, PartialEq, Eq)]
pub struct NotConvertible {
    kind: String,
    api_version: String,
}

impl std::fmt::Display for NotConvertible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, api_version } = self;
        write!(
            f,
            "cannot convert kind {kind:?} of {api_version:?}; upgrade the nginx operator that serves conversion"
        )
    }
}

impl std::error::Error for NotConvertible {}

/// The same object in another version.
pub fn convert(mut object: Value, to: Version) -> Result<Value, NotConvertible> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let Some(from) = Version::of_api_version(&api_version).filter(|_| kind == KIND && object.is_object())
    else {
        return Err(NotConvertible { kind, api_version });
    };
    match (from, to) {
        (Version::V1alpha1, Version::V1alpha2) => up(&mut object),
        (Version::V1alpha2, Version::V1alpha1) => down(&mut object),
        (Version::V1alpha1, Version::V1alpha1) | (Version::V1alpha2, Version::V1alpha2) => {}
    }
    object["apiVersion"] = json!(to.api_version());
    Ok(object)
}

/// `port` becomes the first of `ports`; its name and the others come from the annotation, if there is one.
fn up(object: &mut Value) {
    let kept = take_kept_ports(object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let port = spec.remove("port");
    let ports = match (kept, port) {
        (None, None) => return,
        (Some(ports), None) => ports,
        (None, Some(port)) => vec![json!({ "name": DEFAULT_PORT_NAME, "port": port })],
        (Some(mut ports), Some(port)) => {
            if let Some(first) = ports.first_mut() {
                first["port"] = port;
            }
            ports
        }
    };
    spec.insert("ports".to_owned(), Value::Array(ports));
}

/// The first of `ports` becomes `port`. What `port` alone cannot say is kept in an annotation.
fn down(object: &mut Value) {
    take_kept_ports(object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let Some(ports) = spec.remove("ports") else { return };
    let Some(port) = ports.get(0).and_then(|first| first.get("port")).cloned() else { return };
    spec.insert("port".to_owned(), port.clone());
    if ports != json!([{ "name": DEFAULT_PORT_NAME, "port": port }]) {
        object["metadata"]["annotations"][PORTS_ANNOTATION] = json!(ports.to_string());
    }
}

/// The ports in the annotation, which is gone afterwards. What somebody put there that is no list of ports is none.
fn take_kept_ports(object: &mut Value) -> Option<Vec<Value>> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(PORTS_ANNOTATION)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    let ports: Vec<Port> = serde_json::from_str(text.as_str()?).ok()?;
    let ports: Vec<Value> =
        ports.iter().map(|Port { name, port }| json!({ "name": name, "port": port })).collect();
    (!ports.is_empty()).then_some(ports)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn old(port: i32) -> Value {
        json!({
            "apiVersion": "operator.example.com/v1alpha1", "kind": "NginxOperator",
            "metadata": { "name": "instance", "annotations": { "note": "keep me" } },
            "spec": { "port": port, "replicas": 2, "forceRedeploy": "x", "unknown": true },
            "status": { "readyReplicas": 1 },
        })
    }

    fn new(ports: Value) -> Value {
        json!({
            "apiVersion": "operator.example.com/v1alpha2", "kind": "NginxOperator",
            "metadata": { "name": "instance", "uid": "u" },
            "spec": { "ports": ports, "replicas": 0 },
        })
    }

    fn to(version: Version, object: Value) -> Value {
        convert(object, version).unwrap()
    }

    #[test]
    fn one_port_named_http_needs_no_annotation() {
        let up = to(Version::V1alpha2, old(8080));
        assert_eq!(up["apiVersion"], "operator.example.com/v1alpha2");
        assert_eq!(up["spec"]["ports"], json!([{ "name": "http", "port": 8080 }]));
        assert_eq!(up["spec"].get("port"), None);
        assert_eq!(to(Version::V1alpha1, up), old(8080));
        assert_eq!(
            to(Version::V1alpha1, new(json!([{ "name": "http", "port": 80 }])))["metadata"]
                .get("annotations"),
            None
        );
    }

    #[test]
    fn several_ports_survive_an_update_by_a_client_of_the_old_version() {
        let ports = json!([{ "name": "web", "port": 80 }, { "name": "admin", "port": 8080 }]);
        let mut down = to(Version::V1alpha1, new(ports));
        assert_eq!(down["spec"]["port"], 80);
        down["spec"]["port"] = json!(81);
        down["spec"]["replicas"] = json!(3);
        let up = to(Version::V1alpha2, down);
        assert_eq!(
            up["spec"]["ports"],
            json!([{ "name": "web", "port": 81 }, { "name": "admin", "port": 8080 }])
        );
        assert_eq!(up["spec"]["replicas"], 3);
        assert_eq!(up["metadata"], json!({ "name": "instance", "uid": "u" }), "and no trace is left");
    }

    #[test]
    fn what_a_person_broke_in_the_annotation_stops_nothing() {
        for broken in ["", "[]", "{}", "[{\"name\":1}]"] {
            let mut object = old(80);
            object["metadata"]["annotations"][PORTS_ANNOTATION] = json!(broken);
            assert_eq!(
                to(Version::V1alpha2, object)["spec"]["ports"],
                json!([{ "name": "http", "port": 80 }]),
                "{broken}"
            );
        }
        for spec in [json!(null), json!({}), json!({ "ports": [] }), json!({ "ports": "x", "port": "y" })] {
            for version in Version::ALL {
                let mut object = new(json!(null));
                object["spec"] = spec.clone();
                for target in Version::ALL {
                    object["apiVersion"] = json!(version.api_version());
                    to(target, object.clone());
                }
            }
        }
    }

    #[test]
    fn what_is_not_ours_is_refused_by_name() {
        for (kind, api_version) in [("Pod", "operator.example.com/v1alpha1"), ("NginxOperator", "x/v1")] {
            let error =
                convert(json!({ "kind": kind, "apiVersion": api_version }), Version::V1alpha2).unwrap_err();
            assert!(error.to_string().contains(kind) && error.to_string().contains(api_version), "{error}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back_is_the_same(ports in prop::collection::vec(("[a-z]{1,15}", 1..=65535_i32), 1..5)) {
            let ports: Vec<Value> = ports.into_iter().map(|(name, port)| json!({ "name": name, "port": port })).collect();
            let object = new(Value::Array(ports));
            prop_assert_eq!(to(Version::V1alpha2, to(Version::V1alpha1, object.clone())), object);
        }

        /// Its `port` may have been edited since the annotation was written.
        #[test]
        fn an_old_one_with_kept_ports_comes_back(
            ports in prop::collection::vec(("[a-z]{1,15}", 1..=65535_i32), 1..5),
            edited in prop::option::of(1..=65535_i32),
        ) {
            let port = edited.unwrap_or(ports[0].1);
            let needed = ports.len() > 1 || ports[0].0 != DEFAULT_PORT_NAME;
            let ports: Vec<Value> = ports.into_iter().map(|(name, port)| json!({ "name": name, "port": port })).collect();
            let mut object = old(port);
            object["metadata"]["annotations"][PORTS_ANNOTATION] = json!(Value::Array(ports).to_string());
            let up = to(Version::V1alpha2, object.clone());
            let back = to(Version::V1alpha1, up.clone());
            prop_assert_eq!(&back["spec"], &object["spec"]);
            prop_assert_eq!(to(Version::V1alpha2, back.clone()), up);
            if edited.is_none() && needed {
                prop_assert_eq!(back, object);
            }
        }
    }
}
