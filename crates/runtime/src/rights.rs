//! What this process may do, asked of the API server itself before it is needed.

use std::collections::BTreeMap;
use std::fmt;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use thiserror::Error;

/// Questions asked side by side.
const AT_ONCE: usize = 8;

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the namespace that the operator watches, or in all of them.
    Namespaced,
    /// On objects that have no namespace.
    Cluster,
}

/// A rule that the operator's role must contain, as RBAC writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub scope: Scope,
    pub group: &'static str,
    /// `pods`, or with a subresource `pods/log`.
    pub resource: &'static str,
    /// The one object that it is about, if it is about one.
    pub name: Option<&'static str>,
    pub verbs: &'static [&'static str],
}

impl Need {
    pub const fn namespaced(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
    ) -> Self {
        Self { scope: Scope::Namespaced, group, resource, name: None, verbs }
    }

    pub const fn cluster(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
    ) -> Self {
        Self { scope: Scope::Cluster, group, resource, name: None, verbs }
    }

    /// The same for one object only.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }
}

/// One verb of one need that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub need: Need,
    pub verb: &'static str,
    /// Where it was asked for; none means everywhere.
    pub namespace: Option<String>,
    /// Why, if the server said so.
    pub why: Option<String>,
}

#[derive(Debug, Error)]
pub enum RightsError {
    #[error("cannot ask the Kubernetes API what this operator may do: {0}")]
    Unknown(#[source] kube::Error),
    #[error("{}", explain(.0))]
    Missing(Vec<Missing>),
}

/// Fails with every missing right by name, and with the rules to add. `namespace` is the one that is watched;
/// none means all of them.
pub async fn require(client: &Client, needs: &[Need], namespace: Option<&str>) -> Result<(), RightsError> {
    require_each(client, &[(needs, namespace)]).await
}

/// The same for needs in several places, with everything that is missing in one answer.
pub async fn require_each(client: &Client, places: &[(&[Need], Option<&str>)]) -> Result<(), RightsError> {
    let mut all = Vec::new();
    for (needs, namespace) in places {
        all.extend(missing(client, needs, *namespace).await?);
    }
    if all.is_empty() { Ok(()) } else { Err(RightsError::Missing(all)) }
}

/// Whether we may do something that we can also do without.
pub async fn allowed(client: &Client, need: Need, namespace: Option<&str>) -> Result<bool, RightsError> {
    Ok(missing(client, &[need], namespace).await?.is_empty())
}

async fn missing(
    client: &Client,
    needs: &[Need],
    namespace: Option<&str>,
) -> Result<Vec<Missing>, RightsError> {
    let questions = needs.iter().flat_map(|need| {
        let namespace = if need.scope == Scope::Namespaced { namespace } else { None };
        need.verbs.iter().map(move |verb| ask(client, *need, verb, namespace))
    });
    let questions: Vec<_> = questions.collect();
    let answers: Vec<_> = stream::iter(questions).buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

async fn ask(
    client: &Client,
    need: Need,
    verb: &'static str,
    namespace: Option<&str>,
) -> Result<Option<Missing>, RightsError> {
    let (resource, subresource) = match need.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (need.resource, None),
    };
    let question = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(need.group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(verb.to_owned()),
                namespace: namespace.map(str::to_owned),
                name: need.name.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &question).await.map_err(RightsError::Unknown)?;
    let status = answer.status.unwrap_or_default();
    if status.allowed {
        return Ok(None);
    }
    let why = status.evaluation_error.or(status.reason).filter(|why| !why.is_empty());
    Ok(Some(Missing { need, verb, namespace: namespace.map(str::to_owned), why }))
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.need.resource)?;
        if !self.need.group.is_empty() {
            write!(f, " of {}", self.need.group)?;
        }
        if let Some(name) = self.need.name {
            write!(f, " named {name}")?;
        }
        match (self.need.scope, &self.namespace) {
            (Scope::Namespaced, Some(namespace)) => write!(f, " in namespace {namespace}")?,
            (Scope::Namespaced, None) => write!(f, " in all namespaces")?,
            (Scope::Cluster, _) => {}
        }
        if let Some(why) = &self.why {
            write!(f, " ({why})")?;
        }
        Ok(())
    }
}

fn explain(missing: &[Missing]) -> String {
    let mut lines = vec!["this operator's service account may not:".to_owned()];
    lines.extend(missing.iter().map(|missing| format!("  {missing}")));
    let mut roles: BTreeMap<String, Vec<&Missing>> = BTreeMap::new();
    for missing in missing {
        let role = match &missing.namespace {
            Some(namespace) => format!("the Role in namespace {namespace} that a RoleBinding"),
            None => "the ClusterRole that a ClusterRoleBinding".to_owned(),
        };
        roles.entry(role).or_default().push(missing);
    }
    for (role, missing) in roles {
        lines.push(format!("add to the rules of {role} gives it:"));
        for same_need in missing.chunk_by(|a, b| a.need == b.need) {
            let Some(Missing { need, .. }) = same_need.first() else { continue };
            lines.push(format!("- apiGroups: [{:?}]", need.group));
            lines.push(format!("  resources: [{:?}]", need.resource));
            lines.extend(need.name.map(|name| format!("  resourceNames: [{name:?}]")));
            let verbs: Vec<_> = same_need.iter().map(|missing| format!("{:?}", missing.verb)).collect();
            lines.push(format!("  verbs: [{}]", verbs.join(", ")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_right_is_named_with_the_rule_to_add() {
        const PODS: Need = Need::namespaced("", "pods", &["get", "create"]);
        const STATUS: Need = Need::namespaced("x.io", "foos/status", &["patch"]);
        const CRD: Need =
            Need::cluster("apiextensions.k8s.io", "customresourcedefinitions", &["get"]).named("foos.x.io");
        let missing = |need: Need, verb, why: Option<&str>| Missing {
            need,
            verb,
            namespace: (need.scope == Scope::Namespaced).then(|| "default".to_owned()),
            why: why.map(str::to_owned),
        };
        let error = RightsError::Missing(vec![
            missing(PODS, "get", None),
            missing(PODS, "create", None),
            missing(STATUS, "patch", Some("no rule")),
            missing(CRD, "get", None),
        ]);
        let expected = r#"this operator's service account may not:
  get pods in namespace default
  create pods in namespace default
  patch foos/status of x.io in namespace default (no rule)
  get customresourcedefinitions of apiextensions.k8s.io named foos.x.io
add to the rules of the ClusterRole that a ClusterRoleBinding gives it:
- apiGroups: ["apiextensions.k8s.io"]
  resources: ["customresourcedefinitions"]
  resourceNames: ["foos.x.io"]
  verbs: ["get"]
add to the rules of the Role in namespace default that a RoleBinding gives it:
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get", "create"]
- apiGroups: ["x.io"]
  resources: ["foos/status"]
  verbs: ["patch"]"#;
        assert_eq!(error.to_string(), expected);
    }
}
