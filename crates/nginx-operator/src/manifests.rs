//! The operator's own manifests, from the assets, for a namespace and an image of the user's choice.

use api::nginx::Version;
use api::nginx::crd::{Stage, crd};
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

#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("asset {name} of this program is broken: {source}")]
    Broken { name: &'static str, source: Box<serde_saphyr::Error> },
    #[error("cannot write YAML: {0}")]
    Write(#[from] serde_saphyr::ser::Error),
}

/// The objects that an operator which knows the API up to `newest` is installed with.
pub fn operator(newest: Version, namespace: &str, image: Option<&str>) -> Result<Vec<Value>, ManifestError> {
    let files = match newest {
        Version::V1alpha1 => V1ALPHA1.as_slice(),
        Version::V1alpha2 => V1ALPHA1.as_slice(),
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

/// The CRD that goes with it.
pub fn definition(newest: Version, namespace: &str) -> Result<Value, ManifestError> {
    let stage = match newest {
        Version::V1alpha1 => Stage::First,
        Version::V1alpha2 => Stage::Second,
    };
    let text = serde_saphyr::to_string(&crd(stage, namespace))?;
    serde_saphyr::from_str(&text)
        .map_err(|source| ManifestError::Broken { name: "CRD", source: Box::new(source) })
}

/// As `kubectl apply -f` takes them.
pub fn yaml(objects: &[Value]) -> Result<String, ManifestError> {
    let documents = objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

fn place(object: &mut Value, namespace: &str) {
    if !object["kind"].as_str().unwrap_or_default().starts_with("Cluster") {
        object["metadata"]["namespace"] = json!(namespace);
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        subject["namespace"] = json!(namespace);
    }
}
