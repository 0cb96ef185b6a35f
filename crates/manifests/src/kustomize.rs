//! A base with the parts that every install has, and an overlay for each way to run it.

use nginx_operator::manifests::yaml;
use serde_json::{Value, json};

use crate::install::{NAME, Scope, account, args, deployment, namespace, roles, user_roles};
use crate::{File, MadeError};

const ROOT: &str = "deploy/kustomize";
/// An overlay for one namespace, to be copied.
const NAMESPACED: Scope<'static> = Scope::Namespaced("default");

pub fn files() -> Result<Vec<File>, MadeError> {
    let crds: Vec<&str> =
        api::crd::files().iter().filter_map(|(path, _)| path.strip_prefix("deploy/crds/")).collect();
    let base = json!({ "resources": ["../../crds", "operator.yaml", "user-roles.yaml"] });
    let namespaced = json!({ "namespace": "default", "resources": ["../../base", "roles.yaml"] });
    let wide = json!({
        "namespace": NAME,
        "resources": ["../../base", "namespace.yaml", "roles.yaml"],
        "patches": [{ "target": { "kind": "Deployment", "name": NAME }, "patch": cluster_wide()? }],
    });
    let at = |path: &str| format!("{ROOT}/{path}");
    Ok(vec![
        ("deploy/crds/kustomization.yaml".to_owned(), kustomization(json!({ "resources": crds }))?),
        (at("base/kustomization.yaml"), kustomization(base)?),
        (at("base/operator.yaml"), yaml(&[account(), deployment(NAMESPACED)?])?),
        (at("base/user-roles.yaml"), yaml(&user_roles())?),
        (at("overlays/namespaced/kustomization.yaml"), kustomization(namespaced)?),
        (at("overlays/namespaced/roles.yaml"), bound(NAMESPACED, "default")?),
        (at("overlays/cluster-wide/kustomization.yaml"), kustomization(wide)?),
        (at("overlays/cluster-wide/namespace.yaml"), yaml(namespace(Scope::ClusterWide).as_slice())?),
        (at("overlays/cluster-wide/roles.yaml"), bound(Scope::ClusterWide, NAME)?),
    ])
}

fn kustomization(mut what: Value) -> Result<String, MadeError> {
    what["apiVersion"] = json!("kustomize.config.k8s.io/v1beta1");
    what["kind"] = json!("Kustomization");
    Ok(serde_saphyr::to_string(&what)?)
}

/// Kustomize moves a subject with its account.
fn bound(scope: Scope<'_>, namespace: &str) -> Result<String, MadeError> {
    let mut roles = roles(scope);
    for subject in roles.iter_mut().filter_map(|role| role.pointer_mut("/subjects/0")) {
        subject["namespace"] = json!(namespace);
    }
    Ok(yaml(&roles)?)
}

fn cluster_wide() -> Result<String, MadeError> {
    let path = "/spec/template/spec/containers/0/args";
    Ok(serde_saphyr::to_string(
        &json!([{ "op": "replace", "path": path, "value": args(Scope::ClusterWide) }]),
    )?)
}
