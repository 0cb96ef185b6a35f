//! What the etcd operator is installed with, for one namespace or for all of them.

use etcd_operator::cli::Controller;
use etcd_operator::rights;
use nginx_operator::manifests::yaml;
use runtime::rights::Need;
use serde_json::{Value, json};

use crate::{File, MadeError, VERSION};

pub const NAME: &str = "etcd-operator";
pub const REPOSITORY: &str = "quay.io/coreos/etcd-operator";
pub const CONTROLLERS: [(&str, Controller); 3] =
    [("cluster", Controller::Cluster), ("backup", Controller::Backup), ("restore", Controller::Restore)];

/// Where the file for one namespace puts the operator, as the book does.
const NAMESPACE: &str = "default";
/// Not the name that `example/rbac/create_role.sh` gives: one must not take the other's rights away.
const WIDE: &str = "etcd-operator:cluster-wide";
const DEPLOYMENT: &str = include_str!("../assets/deployment.yaml");

/// Which namespaces an operator looks after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The one that it runs in.
    Namespaced(&'a str),
    /// All of them; it has one of its own.
    ClusterWide,
}

pub fn image() -> String {
    format!("{REPOSITORY}:v{VERSION}")
}

pub fn files() -> Result<Vec<File>, MadeError> {
    let file = |name: &str, scope| -> Result<File, MadeError> {
        let how = match scope {
            Scope::Namespaced(_) => {
                "# The etcd operator for one namespace, \"default\": kubectl apply -f deploy/etcd-operator.yaml\n\
                 # For another, replace it: sed 's/namespace: default/namespace: mine/' …\n"
            }
            Scope::ClusterWide => {
                "# The etcd operator for all namespaces: kubectl apply -f deploy/etcd-operator-cluster-wide.yaml\n"
            }
        };
        let mut all: Vec<Value> = namespace(scope).into_iter().collect();
        all.extend(definitions()?);
        all.extend(user_roles());
        all.extend(operator(scope)?);
        Ok((format!("deploy/{name}.yaml"), format!("{how}{}", yaml(&all)?)))
    };
    Ok(vec![
        file("etcd-operator", Scope::Namespaced(NAMESPACE))?,
        file("etcd-operator-cluster-wide", Scope::ClusterWide)?,
    ])
}

/// The account, its rights, the program.
pub fn operator(scope: Scope<'_>) -> Result<Vec<Value>, MadeError> {
    let mut objects = vec![account()];
    objects.extend(roles(scope));
    objects.push(deployment(scope)?);
    let namespace = match scope {
        Scope::Namespaced(namespace) => namespace,
        Scope::ClusterWide => NAME,
    };
    for object in &mut objects {
        if !object["kind"].as_str().is_some_and(|kind| kind.starts_with("Cluster")) {
            object["metadata"]["namespace"] = json!(namespace);
        }
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            subject["namespace"] = json!(namespace);
        }
    }
    Ok(objects)
}

/// Of every kind that there is.
pub fn definitions() -> Result<Vec<Value>, serde_json::Error> {
    let files = api::crd::files().into_iter().filter(|(path, _)| path.starts_with("deploy/crds/"));
    files.map(|(_, crd)| serde_json::to_value(crd)).collect()
}

/// The operator's own, where it looks after all. Its members are the users' and live elsewhere.
pub fn namespace(scope: Scope<'_>) -> Option<Value> {
    (scope == Scope::ClusterWide).then(|| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": NAME, "labels": { "pod-security.kubernetes.io/enforce": "restricted" } },
        })
    })
}

pub fn account() -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME) })
}

pub fn deployment(scope: Scope<'_>) -> Result<Value, MadeError> {
    let broken = |source| MadeError::Yaml { path: "assets/deployment.yaml".into(), source: Box::new(source) };
    let mut deployment: Value = serde_saphyr::from_str(DEPLOYMENT).map_err(broken)?;
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(image());
    container["args"] = args(scope);
    Ok(deployment)
}

pub fn args(scope: Scope<'_>) -> Value {
    let controllers = CONTROLLERS.map(|(name, _)| name).join(",");
    json!([
        format!("--controllers={controllers}"),
        "--create-crd=false",
        format!("--cluster-wide={}", scope == Scope::ClusterWide),
    ])
}

/// Roles and their bindings, without a namespace.
pub fn roles(scope: Scope<'_>) -> Vec<Value> {
    let mut watched: Vec<Value> =
        CONTROLLERS.iter().flat_map(|(_, one)| rules(&rights::granted(*one))).collect();
    watched.extend(rules(&rights::EVERYONE));
    let home = rules(&rights::granted_at_home());
    match scope {
        Scope::Namespaced(_) => {
            watched.extend(home);
            vec![role("Role", NAME, watched), binding("Role", NAME)]
        }
        Scope::ClusterWide => {
            watched.extend(rules(&rights::optional::EVERYWHERE));
            vec![
                role("ClusterRole", WIDE, watched),
                binding("ClusterRole", WIDE),
                role("Role", NAME, home),
                binding("Role", NAME),
            ]
        }
    }
}

/// As RBAC writes them.
pub fn rules(needs: &[Need]) -> Vec<Value> {
    let rule = |need: &Need| {
        let mut rule =
            json!({ "apiGroups": [need.group], "resources": [need.resource], "verbs": need.verbs });
        if let Some(name) = need.name {
            rule["resourceNames"] = json!([name]);
        }
        rule
    };
    needs.iter().map(rule).collect()
}

/// What people who may view or edit a namespace may do there with our kinds; added to the roles they already have.
pub fn user_roles() -> Vec<Value> {
    let kinds = ["etcdclusters", "etcdbackups", "etcdrestores"];
    let rule = |resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [api::GROUP], "resources": resources, "verbs": verbs });
    let view = vec![rule(&kinds, &["get", "list", "watch"]), rule(&["etcdclusters/scale"], &["get"])];
    let edit = vec![
        rule(&kinds, &["create", "update", "patch", "delete", "deletecollection"]),
        rule(&["etcdclusters/scale"], &["update", "patch"]),
    ];
    let aggregated = |name: &str, to: &[&str], rules| {
        let mut role = role("ClusterRole", &format!("{NAME}:{name}"), rules);
        for to in to {
            role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{to}")] =
                json!("true");
        }
        role
    };
    vec![aggregated("view", &["view", "edit", "admin"], view), aggregated("edit", &["edit", "admin"], edit)]
}

fn role(kind: &str, name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata(name), "rules": rules,
    })
}

fn binding(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata(name),
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME }],
    })
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "labels": { "app.kubernetes.io/name": NAME } })
}
