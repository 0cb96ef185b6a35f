//! The operator's own manifests, from the assets, for a namespace and an image of the user's choice.

use api::nginx::Version;
use api::nginx::crd::{DEFAULT_NAMESPACE, Stage, crd};
use serde_json::{Value, json};
use thiserror::Error;

macro_rules! asset {
    ($path:literal) => {
        ($path, include_str!(concat!("../assets/", $path)))
    };
}

/// In the order in which they are applied.
const V1ALPHA1: [(&str, &str); 4] = [
    asset!("v1alpha1/service-account.yaml"),
    asset!("v1alpha1/role.yaml"),
    asset!("v1alpha1/role-binding.yaml"),
    asset!("v1alpha1/deployment.yaml"),
];

const V1ALPHA2: [(&str, &str); 9] = [
    asset!("v1alpha1/service-account.yaml"),
    asset!("v1alpha1/role.yaml"),
    asset!("v1alpha1/role-binding.yaml"),
    asset!("v1alpha2/cluster-role.yaml"),
    asset!("v1alpha2/cluster-role-binding.yaml"),
    asset!("v1alpha2/webhook-role.yaml"),
    asset!("v1alpha2/webhook-role-binding.yaml"),
    asset!("v1alpha2/webhook-service.yaml"),
    asset!("v1alpha2/deployment.yaml"),
];

#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("asset {name} of this program is broken: {source}")]
    Broken { name: &'static str, source: Box<serde_saphyr::Error> },
    #[error("cannot write the CRD: {0}")]
    Definition(#[from] serde_json::Error),
    #[error("cannot write YAML: {0}")]
    Write(#[from] serde_saphyr::ser::Error),
}

/// The objects that an operator which knows the API up to `newest` is installed with.
pub fn operator(newest: Version, namespace: &str, image: Option<&str>) -> Result<Vec<Value>, ManifestError> {
    let files = match newest {
        Version::V1alpha1 => V1ALPHA1.as_slice(),
        Version::V1alpha2 => V1ALPHA2.as_slice(),
    };
    let parse = |(name, text): &(&'static str, &str)| {
        serde_saphyr::from_str(text)
            .map_err(|source| ManifestError::Broken { name, source: Box::new(source) })
    };
    let mut objects = files.iter().map(parse).collect::<Result<Vec<Value>, _>>()?;
    for object in &mut objects {
        place(object, namespace);
        if let (Some(image), Some("Deployment")) = (image, object["kind"].as_str()) {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        }
    }
    Ok(objects)
}

/// The CRD of one stage of its life.
pub fn definition(stage: Stage, namespace: &str) -> Result<Value, ManifestError> {
    Ok(serde_json::to_value(crd(stage, namespace))?)
}

/// The files of this repository that are made from the types and the assets, with the path of each.
pub fn files() -> Result<[(&'static str, String); 6], ManifestError> {
    let definition = |stage| yaml(&[definition(stage, DEFAULT_NAMESPACE)?]);
    let operator = |newest| yaml(&operator(newest, DEFAULT_NAMESPACE, None)?);
    Ok([
        ("example/nginx/crd.yaml", definition(Stage::Second)?),
        ("example/nginx/operator.yaml", operator(Version::V1alpha2)?),
        ("example/nginx/v1alpha1/crd.yaml", definition(Stage::First)?),
        ("example/nginx/v1alpha1/operator.yaml", operator(Version::V1alpha1)?),
        ("example/nginx/upgrade/crd-both-served.yaml", definition(Stage::Transition)?),
        ("example/nginx/upgrade/crd-v1alpha1-retired.yaml", definition(Stage::Retired)?),
    ])
}

/// As `kubectl apply -f` takes them.
pub fn yaml(objects: &[Value]) -> Result<String, ManifestError> {
    let documents = objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

/// Objects without a namespace get its name into their own, so that operators of two namespaces do not share one.
fn place(object: &mut Value, namespace: &str) {
    if object["kind"].as_str().is_some_and(|kind| kind.starts_with("Cluster")) {
        for name in ["/metadata/name", "/roleRef/name"] {
            if let Some(Value::String(name)) = object.pointer_mut(name) {
                *name = format!("{name}:{namespace}");
            }
        }
    } else {
        object["metadata"]["namespace"] = json!(namespace);
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        subject["namespace"] = json!(namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(newest: Version) -> Vec<(String, String, String, Option<String>)> {
        let mut all = Vec::new();
        let list = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for object in operator(newest, "ns", None).unwrap() {
            for rule in object["rules"].as_array().into_iter().flatten() {
                let names = list(&rule["resourceNames"]).into_iter().next();
                for group in list(&rule["apiGroups"]) {
                    for resource in list(&rule["resources"]) {
                        for verb in list(&rule["verbs"]) {
                            all.push((group.clone(), resource.clone(), verb, names.clone()));
                        }
                    }
                }
            }
        }
        all
    }

    /// What the program asks for at start, what it uses if it may, and its lease.
    fn needs(newest: Version) -> Vec<(String, String, String, Option<String>)> {
        let mut needs = [crate::operator::NEEDS.as_slice(), &crate::operator::OPTIONAL].concat();
        if newest > Version::V1alpha1 {
            needs.extend(crate::webhook::NEEDS);
            needs.extend(crate::storage::NEEDS);
        }
        let mut all: Vec<_> = needs
            .iter()
            .flat_map(|need| need.verbs.iter().map(move |verb| (need, *verb)))
            .map(|(need, verb)| {
                (need.group.into(), need.resource.into(), verb.into(), need.name.map(Into::into))
            })
            .collect();
        all.extend(
            ["get", "create", "update"]
                .map(|verb| ("coordination.k8s.io".into(), "leases".into(), verb.into(), None)),
        );
        all
    }

    #[test]
    fn the_roles_grant_what_the_program_needs_and_nothing_else() {
        for newest in Version::ALL {
            let (mut granted, mut needed) = (grants(newest), needs(newest));
            for rights in [&mut granted, &mut needed] {
                rights.sort();
                rights.dedup();
            }
            assert_eq!(granted, needed, "{newest}");
        }
    }

    #[test]
    fn the_files_are_up_to_date() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, made) in files().unwrap() {
            let committed = std::fs::read_to_string(root.join(path)).unwrap_or_default();
            assert!(
                committed == made,
                "{path} is stale: run `cargo run -p nginx-operator --example files -- .`"
            );
        }
    }

    #[test]
    fn everything_is_placed_in_the_namespace_and_runs_the_image() {
        let objects = operator(Version::V1alpha2, "team-a", Some("registry/op:1")).unwrap();
        for object in &objects {
            let kind = object["kind"].as_str().unwrap();
            let expected = if kind.starts_with("Cluster") { Value::Null } else { json!("team-a") };
            assert_eq!(object["metadata"]["namespace"], expected, "{kind}");
        }
        let text = yaml(&objects).unwrap();
        assert!(text.contains("image: registry/op:1"), "{text}");
        assert!(text.contains("nginx-operator:team-a"), "{text}");
        let again: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(again, objects);
    }
}
