//! A lab to join, an operator to run in it, and what a kubelet would do.

use std::time::Duration;

use api::nginx::crd::{Stage, crd};
use api::nginx::{CRD_NAME, Version, conditions, v1alpha1};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use lab::kit::{TestNamespace, gone, shared_name, wait_for};
use lab::{Lab, Options};
use nginx_operator::operator::{Instruments, Settings, run};
use nginx_operator::source::Scope;
use nginx_operator::webhook;
use runtime::lease::Timing;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// For everything that is only a matter of machine speed.
pub const LIMIT: Duration = Duration::from_mins(2);
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
pub type Nginx = v1alpha1::NginxOperator;

static LAB: OnceCell<Lab> = OnceCell::const_new();
/// The CRD is one for all: who changes it needs the lab alone.
static TURN: RwLock<()> = RwLock::const_new(());

async fn joined() -> &'static Lab {
    LAB.get_or_init(|| async {
        let name = format!("{}nginx", shared_name());
        let options = Options { quiet: true, controllers: true, ..Options::api_only(&name) };
        Lab::up(&options).await.unwrap()
    })
    .await
}

/// The lab with the first CRD in it.
pub async fn lab() -> (&'static Lab, RwLockReadGuard<'static, ()>) {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let lab = joined().await;
    let turn = TURN.read().await;
    INSTALLED
        .get_or_init(|| async {
            let client = lab.client().await.unwrap();
            remove_crd(&client).await.unwrap();
            install_crd(&client, Stage::First).await.unwrap();
        })
        .await;
    (lab, turn)
}

/// Runs a test in a namespace of its own, with the first CRD in the lab.
pub async fn in_namespace(prefix: &str, test: impl AsyncFnOnce(&TestNamespace<'static>) -> Outcome) {
    let (lab, _turn) = lab().await;
    TestNamespace::new(lab, prefix).await.unwrap().run(test).await.unwrap();
}

/// The same beside an operator.
pub async fn with_operator(prefix: &str, test: impl AsyncFnOnce(&TestNamespace<'static>) -> Outcome) {
    in_namespace(prefix, async |namespace| {
        let operator = Operator::start(namespace);
        test(namespace).await?;
        operator.stop().await;
        Ok(())
    })
    .await;
}

/// The lab without a CRD and without anybody else; the first CRD is back when the test is done.
pub async fn lab_alone() -> (&'static Lab, Alone) {
    let (lab, turn) = lab().await;
    drop(turn);
    let turn = TURN.write().await;
    remove_crd(&lab.client().await.unwrap()).await.unwrap();
    (lab, Alone { _turn: turn })
}

pub struct Alone {
    _turn: RwLockWriteGuard<'static, ()>,
}

impl Alone {
    pub async fn end(self, lab: &Lab) -> Outcome {
        let client = lab.client().await?;
        remove_crd(&client).await?;
        install_crd(&client, Stage::First).await
    }
}

pub async fn remove_crd(client: &Client) -> Outcome {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    match crds.delete(CRD_NAME, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        other => drop(other?),
    }
    Ok(gone(&crds, CRD_NAME, LIMIT).await?)
}

pub async fn install_crd(client: &Client, stage: Stage) -> Outcome {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &crd(stage, "default")).await?;
    let version = if stage == Stage::First { Version::V1alpha1 } else { Version::V1alpha2 };
    wait_for(&crds, CRD_NAME, LIMIT, "to be established", |crd| {
        let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await?;
    let resource = nginx_operator::source::resource(version);
    let served: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &resource);
    lab::wait::until("the API server to serve it", LIMIT, async || {
        Ok(served.list(&ListParams::default().limit(1)).await.map(drop).map_err(|error| error.to_string()))
    })
    .await?;
    Ok(())
}

/// An operator in this process, for one namespace.
pub struct Operator {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Operator {
    pub fn start(test: &TestNamespace<'_>) -> Self {
        Self::start_with(test, test.client.clone())
    }

    /// With a client that may do to requests what it likes. Every operator of a test is the same pod restarted.
    pub fn start_with(test: &TestNamespace<'_>, client: Client) -> Self {
        let settings = Settings {
            scope: Scope::Namespace(test.name.clone()),
            home: test.name.clone(),
            pod_name: "nginx-operator-test".to_owned(),
            pod_uid: Some("test".to_owned()),
            newest: Version::V1alpha2,
            listen: ([127, 0, 0, 1], 0).into(),
            webhook: Some(webhook::Settings {
                listen: ([127, 0, 0, 1], 0).into(),
                home: test.name.clone(),
                pod_name: "nginx-operator-test".to_owned(),
                life: Duration::from_hours(1),
            }),
            timing: Timing::default(),
        };
        let stop = CancellationToken::new();
        let running = run(client, settings, Instruments::default(), stop.clone());
        let task = tokio::spawn(async move { running.await.unwrap() });
        Self { stop, task }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Ends it as a kill would: nothing is finished, nothing is given back.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// An instance as its user sees it.
pub struct Instance<'a> {
    pub test: &'a TestNamespace<'a>,
    pub name: &'a str,
}

impl<'a> Instance<'a> {
    pub async fn create(test: &'a TestNamespace<'a>, name: &'a str, spec: Value) -> Outcome<Self> {
        let object: Nginx = serde_json::from_value(json!({
            "apiVersion": "operator.example.com/v1alpha1", "kind": "NginxOperator",
            "metadata": { "name": name }, "spec": spec,
        }))?;
        test.api().create(&PostParams::default(), &object).await?;
        Ok(Self { test, name })
    }

    pub async fn edit(&self, spec: Value) -> Outcome {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.test.api::<Nginx>().patch(self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The instance, once a condition says so of the spec of now.
    pub async fn says(&self, type_: &str, status: &str, reason: &str) -> Outcome<Nginx> {
        let what = format!("to say {type_} {status} {reason}");
        let api = self.test.api::<Nginx>();
        let said = wait_for(&api, self.name, LIMIT, &what, |instance| {
            condition(instance, type_).is_some_and(|condition| {
                condition.status == status
                    && condition.reason == reason
                    && condition.observed_generation == instance.metadata.generation
            })
        });
        Ok(said.await?)
    }

    pub async fn deployment(&self, what: &str, holds: impl Fn(&Deployment) -> bool) -> Outcome<Deployment> {
        Ok(wait_for(&self.test.api(), self.name, LIMIT, what, holds).await?)
    }

    /// As a kubelet would: every pod of the newest `ReplicaSet` starts and answers, until the rollout is done.
    pub async fn becomes_healthy(&self) -> Outcome<Nginx> {
        lab::wait::until("the operand to be healthy", LIMIT, async || {
            for pod in self.pods().await.map_err(|error| lab::Error::usage(error.to_string()))? {
                let started = json!({ "status": { "phase": "Running", "conditions": [
                    { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                ] } });
                let pods: Api<Pod> = self.test.api();
                let patch = Patch::Strategic(started);
                match pods.patch_status(&pod, &PatchParams::default(), &patch).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    other => drop(other?),
                }
            }
            let instance = self.test.api::<Nginx>().get(self.name).await?;
            let rolled_out = condition(&instance, conditions::PROGRESSING).is_some_and(|condition| {
                condition.reason == conditions::reason::ROLLED_OUT
                    && condition.observed_generation == instance.metadata.generation
            });
            Ok(if rolled_out { Ok(instance) } else { Err(format!("{:?}", instance.status)) })
        })
        .await
        .map_err(Into::into)
    }

    pub async fn pods(&self) -> Outcome<Vec<String>> {
        let selector = format!("operator.example.com/instance={}", self.name);
        let pods: Api<Pod> = self.test.api();
        let list = pods.list(&ListParams::default().labels(&selector)).await?;
        let live = list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(live.map(|pod| pod.name_any()).collect())
    }
}

pub fn condition<'a>(instance: &'a Nginx, type_: &str) -> Option<&'a Condition> {
    instance.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}
