//! From what is asked for and what was seen to what is to be done. Pure: no client required.

use api::nginx::{KIND, NginxOperator, Port, Version};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::operand::{Assets, Wanted, differs, without_nulls};

/// What was seen of the operand's objects.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub deployment: Option<Deployment>,
    pub service: Option<Service>,
}

/// The kinds that an operand is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Deployment,
    Service,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::Service => "Service",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create {
        kind: Kind,
        object: Value,
    },
    /// Sets right what differs, if nobody has written since we looked.
    Patch {
        kind: Kind,
        patch: Value,
    },
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    #[error(
        "{kind} {name} exists and belongs to {owner}; delete or rename it, or give this {KIND} another name",
        kind = .kind.as_str()
    )]
    NotOurs { kind: Kind, name: String, owner: String },
    #[error("ports {first} and {second} have the same number {port}; give each a number of its own")]
    SamePort { first: String, second: String, port: i32 },
    #[error("spec.ports is empty; write at least one, such as [{{name: http, port: 80}}]")]
    NoPort,
    #[error("{kind} {name} cannot be compared with what is wanted: {why}", kind = .kind.as_str())]
    Incomparable { kind: Kind, name: String, why: String },
}

impl PlanError {
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotOurs { .. } => "NameTaken",
            Self::SamePort { .. } | Self::NoPort => "SpecInvalid",
            Self::Incomparable { .. } => "Incomparable",
        }
    }
}

/// The steps that lead from what was found to what is asked for: none, if nothing differs.
pub fn plan(
    assets: &Assets,
    instance: &NginxOperator,
    version: Version,
    found: &Found,
) -> Result<Vec<Step>, PlanError> {
    check_ports(&instance.spec.ports)?;
    let Wanted { deployment, service } = assets.wanted(instance, version);
    let steps = [
        step(instance, Kind::Service, &service, found.service.as_ref())?,
        step(instance, Kind::Deployment, &deployment, found.deployment.as_ref())?,
    ];
    Ok(steps.into_iter().flatten().collect())
}

/// The schema of v1alpha2 refuses these, but a v1alpha1 client does not see the ports that it may collide with.
fn check_ports(ports: &[Port]) -> Result<(), PlanError> {
    if ports.is_empty() {
        return Err(PlanError::NoPort);
    }
    for (index, Port { name, port }) in ports.iter().enumerate() {
        if let Some(first) = ports[..index].iter().find(|earlier| earlier.port == *port) {
            return Err(PlanError::SamePort { first: first.name.clone(), second: name.clone(), port: *port });
        }
    }
    Ok(())
}

fn step<K>(
    instance: &NginxOperator,
    kind: Kind,
    wanted: &Value,
    found: Option<&K>,
) -> Result<Option<Step>, PlanError>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let Some(object) = found else {
        return Ok(Some(Step::Create { kind, object: without_nulls(wanted) }));
    };
    if let Some(owner) = foreign_owner(instance, object) {
        return Err(PlanError::NotOurs { kind, name: object.name_any(), owner });
    }
    if object.meta().deletion_timestamp.is_some() {
        // It comes back when it is gone: its last event wakes us.
        return Ok(None);
    }
    let found = serde_json::to_value(object).map_err(|error| PlanError::Incomparable {
        kind,
        name: object.name_any(),
        why: error.to_string(),
    })?;
    if !differs(wanted, &found) {
        return Ok(None);
    }
    let mut patch = wanted.clone();
    patch["metadata"]["uid"] = json!(object.uid());
    patch["metadata"]["resourceVersion"] = json!(object.resource_version());
    Ok(Some(Step::Patch { kind, patch }))
}

/// Who owns the object, if it is not this very instance.
fn foreign_owner<K: Resource<DynamicType = ()>>(instance: &NginxOperator, object: &K) -> Option<String> {
    match object.owner_references().iter().find(|owner| owner.controller == Some(true)) {
        None => Some("nobody that we know".to_owned()),
        Some(owner) if Some(&owner.uid) == instance.meta().uid.as_ref() => None,
        Some(owner) if owner.kind == KIND && owner.name == instance.name_any() => {
            Some(format!("an earlier {KIND} of this name, and goes away with it"))
        }
        Some(owner) => Some(format!("{} {}", owner.kind, owner.name)),
    }
}

#[cfg(test)]
mod tests {
    use api::nginx::NginxOperatorSpec;

    use super::*;

    fn instance() -> NginxOperator {
        let mut instance = NginxOperator::new("web", NginxOperatorSpec::default());
        instance.metadata.uid = Some("u-1".into());
        instance
    }

    fn plan_for(instance: &NginxOperator, found: &Found) -> Result<Vec<Step>, PlanError> {
        plan(&Assets::load().unwrap(), instance, Version::V1alpha2, found)
    }

    /// What the API server has after the steps were applied to nothing.
    fn made(instance: &NginxOperator) -> Found {
        let mut found = Found::default();
        for step in plan_for(instance, &Found::default()).unwrap() {
            let Step::Create { kind, mut object } = step else { panic!("{step:?}") };
            object["metadata"]["uid"] = json!("child");
            object["metadata"]["resourceVersion"] = json!("7");
            match kind {
                Kind::Deployment => found.deployment = serde_json::from_value(object).unwrap(),
                Kind::Service => found.service = serde_json::from_value(object).unwrap(),
            }
        }
        found
    }

    fn patched(steps: &[Step]) -> Vec<Kind> {
        let kind = |step: &Step| match step {
            Step::Patch { kind, patch } => {
                assert_eq!(patch["metadata"]["uid"], "child", "only the object that we looked at");
                assert_eq!(patch["metadata"]["resourceVersion"], "7", "and only as we saw it");
                *kind
            }
            Step::Create { .. } => panic!("{step:?}"),
        };
        steps.iter().map(kind).collect()
    }

    #[test]
    fn what_is_as_wanted_is_left_alone() {
        let found = made(&instance());
        assert_eq!(plan_for(&instance(), &found), Ok(vec![]));
    }

    #[test]
    fn what_is_missing_is_made_and_only_that() {
        let found = Found { deployment: None, ..made(&instance()) };
        let steps = plan_for(&instance(), &found).unwrap();
        assert!(matches!(steps[..], [Step::Create { kind: Kind::Deployment, .. }]), "{steps:?}");
    }

    #[test]
    fn drift_is_set_right_where_it_is() {
        let mut found = made(&instance());
        found.deployment.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(5);
        assert_eq!(patched(&plan_for(&instance(), &found).unwrap()), [Kind::Deployment]);

        let mut found = made(&instance());
        found.service.as_mut().unwrap().labels_mut().remove("app");
        assert_eq!(patched(&plan_for(&instance(), &found).unwrap()), [Kind::Service]);

        let mut found = made(&instance());
        found.deployment.as_mut().unwrap().spec.as_mut().unwrap().paused = Some(true);
        assert_eq!(patched(&plan_for(&instance(), &found).unwrap()), [Kind::Deployment]);
    }

    #[test]
    fn a_restart_by_hand_and_labels_of_others_stay() {
        let mut found = made(&instance());
        let deployment = found.deployment.as_mut().unwrap();
        deployment.labels_mut().insert("team".into(), "x".into());
        let template = deployment.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
        template
            .annotations
            .as_mut()
            .unwrap()
            .insert("kubectl.kubernetes.io/restartedAt".into(), "now".into());
        assert_eq!(plan_for(&instance(), &found), Ok(vec![]));
    }

    #[test]
    fn a_force_redeploy_that_is_taken_back_takes_its_annotation_along() {
        let mut forced = instance();
        forced.spec.force_redeploy = Some("now".into());
        let steps = plan_for(&instance(), &made(&forced)).unwrap();
        assert_eq!(patched(&steps), [Kind::Deployment]);
        assert_eq!(plan_for(&forced, &made(&forced)), Ok(vec![]), "once and only once");
    }

    #[test]
    fn what_is_not_ours_is_never_taken_over() {
        let mut found = made(&instance());
        found.deployment.as_mut().unwrap().metadata.owner_references = None;
        let error = plan_for(&instance(), &found).unwrap_err();
        assert_eq!(error.reason(), "NameTaken");
        assert_eq!(
            error.to_string(),
            "Deployment web exists and belongs to nobody that we know; delete or rename it, or give this NginxOperator another name"
        );
        let mut successor = instance();
        successor.metadata.uid = Some("u-2".into());
        let error = plan_for(&successor, &made(&instance())).unwrap_err();
        assert!(error.to_string().contains("an earlier NginxOperator of this name"), "{error}");
    }

    #[test]
    fn ports_that_collide_are_named() {
        let mut instance = instance();
        instance.spec.ports.push(Port { name: "admin".into(), port: 80 });
        let error = plan_for(&instance, &Found::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ports http and admin have the same number 80; give each a number of its own"
        );
        instance.spec.ports.clear();
        assert_eq!(plan_for(&instance, &Found::default()), Err(PlanError::NoPort));
    }
}
