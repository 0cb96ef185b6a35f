//! The releases of the nginx operator.

use api::nginx::Version;
use api::nginx::crd::Stage;
use nginx_operator::NAME;
use nginx_operator::manifests::{ManifestError, definition, operator};
use runtime::client::MINIMUM_VERSION;
use serde_json::{Value, json};

use super::{Package, Release};

/// A green hexagon with an N.
const ICON: &str = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCA2NCA2NCI+PHBhdGggZD0iTTMyIDJsMjYgMTV2MzBMMzIgNjIgNiA0N1YxN3oiIGZpbGw9IiMyYTdmNjIiLz48cGF0aCBkPSJNMjIgNDRWMjBoNGwxMiAxNlYyMGg0djI0aC00TDI2IDI4djE2eiIgZmlsbD0iI2ZmZiIvPjwvc3ZnPg==";

/// Where the CRD looks for the webhook, and thus where the lifecycle manager must install the operator.
const NAMESPACE: &str = NAME;

const DESCRIPTION: &str = "\
Declare an nginx deployment as an `NginxOperator`. The operator deploys it, keeps it running when it fails, upgrades it
without a lost request and reports its health in conditions, events and metrics.

Install it in the namespace `nginx-operator`: the conversion webhook is looked for there. From 0.2.0 on both versions of the API
are served; v1alpha2 becomes the stored one when you apply the CRD that `nginx-operator manifests --crd` prints.";

pub fn package() -> Package {
    Package {
        name: NAME,
        title: "nginx operator",
        summary: "Deploys nginx, keeps it running and reports its health",
        description: DESCRIPTION,
        categories: "Networking",
        keywords: &["nginx", "web", "http"],
        icon: ICON,
        namespace: NAMESPACE,
        minimum_kubernetes: format!("{MINIMUM_VERSION}.0"),
    }
}

pub fn releases() -> Result<Vec<Release>, ManifestError> {
    let image = |version| format!("{NAME}:{version}");
    let example = |version: Version, spec: Value| {
        json!({
            "apiVersion": version.api_version(), "kind": api::nginx::KIND,
            "metadata": { "name": "instance" }, "spec": spec,
        })
    };
    let old = example(Version::V1alpha1, json!({ "port": 80, "replicas": 1 }));
    let new = example(Version::V1alpha2, json!({ "ports": [{ "name": "http", "port": 80 }], "replicas": 1 }));
    Ok(vec![
        Release {
            version: "0.1.0",
            replaces: None,
            capabilities: "Seamless Upgrades",
            image: image("0.1.0"),
            objects: operator(Version::V1alpha1, NAMESPACE, None)?,
            crds: vec![definition(Stage::First, NAMESPACE)?],
            examples: vec![old.clone()],
        },
        Release {
            version: "0.2.0",
            replaces: Some("0.1.0"),
            capabilities: "Seamless Upgrades",
            image: image("0.2.0"),
            objects: operator(Version::V1alpha2, NAMESPACE, None)?,
            // The lifecycle manager writes the CRD before the new operator serves its webhook: storage is flipped after that.
            crds: vec![definition(Stage::Transition, NAMESPACE)?],
            examples: vec![old, new],
        },
    ])
}
