//! An operator from its manifests, an instance as its user sees it, and a client that never stops asking.

mod client;

use std::path::Path;
use std::time::Duration;

use api::nginx::conditions::{OPERAND_READY, PROGRESSING, reason};
use api::nginx::crd::Stage;
use api::nginx::{CRD_NAME, NginxOperatorStatus, Version};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use lab::Lab;
use lab::kit::{TestNamespace, gone, wait_for};
use nginx_operator::{manifests, source};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use client::Client;

pub const LIMIT: Duration = Duration::from_mins(3);
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The same limit, for kubectl.
fn in_time() -> String {
    format!("--timeout={}s", LIMIT.as_secs())
}

/// Puts this build's image into the lab, once.
async fn published(lab: &'static Lab) {
    static DONE: OnceCell<()> = OnceCell::const_new();
    DONE.get_or_init(|| async {
        let binary = Path::new(env!("CARGO_BIN_EXE_nginx-operator"));
        tokio::task::spawn_blocking(move || lab.publish(binary)).await.unwrap().unwrap();
    })
    .await;
}

/// Applies the CRD of one stage; who goes back to an earlier one must remove it first.
pub async fn apply_crd(test: &TestNamespace<'_>, stage: Stage) -> Outcome {
    let crd = manifests::definition(stage, &test.name)?;
    let crd = manifests::yaml(&[crd])?;
    test.kubectl_with_input(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &crd).await?;
    let crd = format!("crd/{CRD_NAME}");
    test.kubectl(&["wait", "--for=condition=Established", &crd, &in_time()]).await?;
    Ok(())
}

pub async fn remove_crd(client: &kube::Client) -> Outcome {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    forgiving(crds.delete(CRD_NAME, &DeleteParams::default()).await)?;
    Ok(gone(&crds, CRD_NAME, LIMIT).await?)
}

/// Removes what has no namespace to go with.
pub async fn clean(client: &kube::Client, namespace: &str) -> Outcome {
    let name = format!("nginx-operator:{namespace}");
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    forgiving(roles.delete(&name, &DeleteParams::default()).await)?;
    forgiving(bindings.delete(&name, &DeleteParams::default()).await)?;
    remove_crd(client).await
}

fn forgiving<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

/// Installs the operator as its users do, and waits until it is there.
pub async fn install(test: &TestNamespace<'static>, newest: Version) -> Outcome {
    published(test.lab).await;
    let objects = manifests::yaml(&manifests::operator(newest, &test.name, None)?)?;
    test.kubectl_with_input(&["apply", "-f", "-"], &objects).await?;
    test.kubectl(&["rollout", "status", "deployment/nginx-operator", &in_time()]).await?;
    Ok(())
}

/// Scales the operator itself, and waits until it is so.
pub async fn scale_operator(test: &TestNamespace<'_>, replicas: u8) -> Outcome {
    test.kubectl(&["scale", "deployment/nginx-operator", &format!("--replicas={replicas}")]).await?;
    if replicas == 0 {
        test.kubectl(&["wait", "--for=delete", "pod", "-l", "name=nginx-operator", &in_time()]).await?;
    }
    test.kubectl(&["rollout", "status", "deployment/nginx-operator", &in_time()]).await?;
    Ok(())
}

/// An instance as its user sees it.
pub struct Instance<'a> {
    test: &'a TestNamespace<'static>,
    pub name: &'static str,
    version: Version,
}

impl<'a> Instance<'a> {
    pub async fn create(
        test: &'a TestNamespace<'static>,
        version: Version,
        name: &'static str,
        spec: Value,
    ) -> Outcome<Self> {
        let object = json!({
            "apiVersion": version.api_version(), "kind": "NginxOperator", "metadata": { "name": name }, "spec": spec,
        });
        test.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).await?;
        Ok(Self { test, name, version })
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.test.client.clone(), &self.test.name, &source::resource(self.version))
    }

    pub async fn get(&self, version: Version) -> Outcome<DynamicObject> {
        let resource = source::resource(version);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.test.client.clone(), &self.test.name, &resource);
        Ok(api.get(self.name).await?)
    }

    pub async fn edit(&self, spec: Value) -> Outcome {
        let patch = json!({ "spec": spec }).to_string();
        let kind = format!("nginxoperators.{}.operator.example.com", self.version);
        self.test.kubectl(&["patch", &kind, self.name, "--type=merge", "-p", &patch]).await?;
        Ok(())
    }

    /// Waits until a condition of the spec of now says so; gives its message.
    pub async fn says(&self, type_: &str, status: &str, reason: &str) -> Outcome<String> {
        let what = format!("to say {type_} {status} {reason}");
        let api = self.api();
        let seen = wait_for(&api, self.name, LIMIT, &what, |instance| {
            let generation = instance.metadata.generation;
            said(instance, type_).is_some_and(|condition| {
                (condition.status.as_str(), condition.reason.as_str()) == (status, reason)
                    && condition.observed_generation == generation
            })
        });
        let seen = seen.await?;
        Ok(said(&seen, type_).map(|condition| condition.message).unwrap_or_default())
    }

    /// Waits until the rollout of the spec of now is done and every replica answers.
    pub async fn healthy(&self) -> Outcome {
        self.says(PROGRESSING, "False", reason::ROLLED_OUT).await?;
        self.says(OPERAND_READY, "True", reason::ALL_REPLICAS_ANSWER).await?;
        Ok(())
    }

    pub async fn deployment(&self) -> Outcome<Deployment> {
        Ok(self.test.api::<Deployment>().get(self.name).await?)
    }

    /// Name and restarts of every pod that is not on its way out.
    pub async fn pods(&self) -> Outcome<Vec<(String, i32)>> {
        let selector = api::nginx::selector(self.name);
        let list = self.test.api::<Pod>().list(&ListParams::default().labels(&selector)).await?;
        let live = list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let restarts = |pod: &Pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            statuses.map(|status| status.restart_count).sum()
        };
        let mut pods: Vec<_> = live.map(|pod| (pod.name_any(), restarts(&pod))).collect();
        pods.sort();
        Ok(pods)
    }
}

fn said(
    instance: &DynamicObject,
    type_: &str,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let status: NginxOperatorStatus = serde_json::from_value(instance.data.get("status")?.clone()).ok()?;
    status.conditions.into_iter().find(|condition| condition.type_ == type_)
}
