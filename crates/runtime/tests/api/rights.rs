use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::PostParams;
use kube::{Api, Client};
use runtime::rights::{self, Need, RightsError};

use crate::server;

const PODS: Need = Need::namespaced("", "pods", &["get", "list", "create"]);
const LOGS: Need = Need::namespaced("", "pods/log", &["get"]);
const LEASES: Need = Need::namespaced("coordination.k8s.io", "leases", &["get"]).named("op");
const NODES: Need = Need::cluster("", "nodes", &["get"]);

/// A client with the rights of a service account, and those of an administrator beside it.
async fn account() -> (Client, Client, String) {
    let admin = server::client().await;
    let namespace = server::namespace(&admin).await;
    let mut config = server::config().await;
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:op"));
    config.auth_info.impersonate_groups = Some(vec!["system:authenticated".into()]);
    (admin, server::client_of(config), namespace)
}

fn rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        resource_names: (!names.is_empty()).then(|| owned(names)),
        verbs: owned(verbs),
        non_resource_urls: None,
    }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: "rbac.authorization.k8s.io".into(), kind: kind.into(), name: name.into() }
}

fn subject(namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: "op".into(),
        namespace: Some(namespace.to_owned()),
        api_group: None,
    }
}

async fn grant(admin: &Client, namespace: &str, rules: Vec<PolicyRule>) {
    let mut role = Role { rules: Some(rules), ..Role::default() };
    role.metadata.name = Some("op".into());
    let api: Api<Role> = Api::namespaced(admin.clone(), namespace);
    api.create(&PostParams::default(), &role).await.unwrap();
    let mut binding = RoleBinding {
        role_ref: reference("Role", "op"),
        subjects: Some(vec![subject(namespace)]),
        ..RoleBinding::default()
    };
    binding.metadata.name = Some("op".into());
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), namespace);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

async fn grant_everywhere(admin: &Client, namespace: &str, rules: Vec<PolicyRule>) {
    let mut role = ClusterRole { rules: Some(rules), ..ClusterRole::default() };
    role.metadata.name = Some(namespace.to_owned());
    let api: Api<ClusterRole> = Api::all(admin.clone());
    api.create(&PostParams::default(), &role).await.unwrap();
    let mut binding = ClusterRoleBinding {
        role_ref: reference("ClusterRole", namespace),
        subjects: Some(vec![subject(namespace)]),
        ..ClusterRoleBinding::default()
    };
    binding.metadata.name = Some(namespace.to_owned());
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

/// The authorizer learns of new rules a moment after they are written.
async fn until_granted(client: &Client, needs: &[Need], namespace: Option<&str>) {
    let stop = tokio_util::sync::CancellationToken::new();
    let policy = runtime::backoff::Policy {
        first: std::time::Duration::from_millis(50),
        most: std::time::Duration::from_millis(500),
    };
    let granted =
        runtime::backoff::until_ok(policy, &stop, "rights", || rights::require(client, needs, namespace));
    tokio::time::timeout(std::time::Duration::from_secs(20), granted).await.expect("granted in time");
}

#[tokio::test]
async fn what_is_missing_is_named_and_what_was_granted_is_not() {
    let (admin, client, namespace) = account().await;
    grant(
        &admin,
        &namespace,
        vec![
            rule("", &["pods"], &[], &["get", "list"]),
            rule("coordination.k8s.io", &["leases"], &["op"], &["get"]),
        ],
    )
    .await;
    until_granted(&client, &[LEASES], Some(&namespace)).await;
    let needs = [PODS, LOGS, LEASES, NODES];
    let error = rights::require(&client, &needs, Some(&namespace)).await.unwrap_err();
    let RightsError::Missing(missing) = &error else { panic!("{error}") };
    let missing: Vec<_> = missing.iter().map(|missing| (missing.need.resource, missing.verb)).collect();
    assert_eq!(missing, [("pods", "create"), ("pods/log", "get"), ("nodes", "get")]);
    assert!(error.to_string().contains(&format!("create pods in namespace {namespace}")), "{error}");
    assert!(!rights::allowed(&client, NODES, None).await.unwrap());
}

#[tokio::test]
async fn rights_in_one_namespace_are_not_rights_in_all() {
    let (admin, client, namespace) = account().await;
    grant(&admin, &namespace, vec![rule("", &["pods"], &[], &["*"])]).await;
    until_granted(&client, &[PODS], Some(&namespace)).await;
    let error = rights::require(&client, &[PODS], None).await.unwrap_err().to_string();
    assert!(error.contains("list pods in all namespaces") && error.contains("ClusterRole"), "{error}");

    let everywhere = vec![rule("", &["pods"], &[], &["*"]), rule("", &["nodes"], &[], &["get"])];
    grant_everywhere(&admin, &namespace, everywhere).await;
    until_granted(&client, &[PODS, NODES], None).await;
    assert!(rights::allowed(&client, NODES, Some(&namespace)).await.unwrap());
}
