//! One instance, looked at anew each time: observe, plan, apply, report.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api::nginx::{NginxOperator, NginxOperatorStatus, Version};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use runtime::backoff::Backoff;
use runtime::events::{Recorder, Severity};
use runtime::metrics::Metrics;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;
use tracing::{info, warn};

use crate::NAME;
use crate::health::assess;
use crate::kept::Kept;
use crate::operand::{Assets, instance_of};
use crate::plan::{Found, Kind, PlanError, Step, plan};
use crate::report;
use crate::source::{Scope, resource};
use crate::watches::Caches;
use crate::written::Written;

/// When somebody wrote between our look and our write: long enough for the watch to tell us what.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What every reconcile works with.
pub struct Context {
    /// Refuses writes once this process no longer leads.
    pub client: Client,
    pub scope: Scope,
    /// The version of the API that is watched and written.
    pub version: Version,
    pub assets: Assets,
    pub caches: Caches,
    pub recorder: Recorder,
    pub metrics: Metrics,
    /// By UID.
    pub backoff: Backoff<String>,
    pub written: Written,
}

#[derive(Debug, Error)]
pub enum ReconcileError {
    #[error("the watches ended")]
    Ending,
    #[error("the cache does not have our last write of the status yet")]
    Behind,
    #[error("cannot look at {kind}: {source}", kind = .kind.as_str())]
    Observe { kind: Kind, source: kube::Error },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("cannot write {kind}: {source}", kind = .kind.as_str())]
    Apply { kind: Kind, source: kube::Error },
    #[error("cannot write the status: {0}")]
    Report(#[source] kube::Error),
}

impl ReconcileError {
    /// Stable, for conditions, events and metrics alike.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Ending => "Ending",
            Self::Behind => "Behind",
            Self::Observe { .. } => "ObserveFailed",
            Self::Plan(error) => error.reason(),
            Self::Apply { .. } => "ApplyFailed",
            Self::Report(_) => "ReportFailed",
        }
    }

    /// Whether we acted on an old view, or on an object that is gone: no failure, look again.
    fn is_stale(&self) -> bool {
        match self {
            Self::Behind => true,
            Self::Apply { source, .. } | Self::Report(source) => {
                matches!(source, kube::Error::Api(status) if status.code == 409 || status.code == 404)
            }
            Self::Ending | Self::Observe { .. } | Self::Plan(_) => false,
        }
    }
}

/// Never fails: what goes wrong is in the condition, the event, the metric and the log, and is tried again.
pub async fn reconcile(instance: Arc<NginxOperator>, context: Arc<Context>) -> Result<Action, Infallible> {
    let (key, uid) = (ObjectRef::from_obj(&*instance), instance.uid().unwrap_or_default());
    if instance.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let measured = context.metrics.reconcile("nginx");
    match steps(&instance, &context).await {
        Ok(()) => {
            context.backoff.forget(&uid);
            measured.ok();
            Ok(Action::await_change())
        }
        Err(error) if error.is_stale() => {
            measured.failed("Stale");
            Ok(Action::requeue(LOOK_AGAIN))
        }
        Err(error) => {
            measured.failed(error.reason());
            let retry = context.backoff.failed(uid);
            warn!(instance = %key, reason = error.reason(), %error, failures = retry.failures, after = ?retry.after, "reconcile failed");
            context.tell(&instance, Severity::Warning, error.reason(), &error.to_string()).await;
            let status =
                report::failed(&instance, error.reason(), &error.to_string(), retry, Timestamp::now());
            if let Err(error) = context.write_status(&instance, &status).await {
                warn!(instance = %key, %error, "the failure could not be written into the status");
            }
            Ok(Action::requeue(retry.after))
        }
    }
}

async fn steps(instance: &NginxOperator, context: &Context) -> Result<(), ReconcileError> {
    if context.written.is_behind(instance) {
        return Err(ReconcileError::Behind);
    }
    let (found, pods) = context.observe(instance).await?;
    let steps = plan(&context.assets, instance, context.version, &found)?;
    let deployment = context.apply(instance, &steps).await?.or(found.deployment);

    let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
    let health = assess(instance.spec.replicas, deployment.as_ref(), &pods);
    let status = report::status(instance, &health, context.assets.default_image(), Timestamp::now());
    context.write_status(instance, &status).await?;
    for event in report::events(instance, &status, &steps) {
        context.tell(instance, event.severity, event.reason, &event.message).await;
    }
    Ok(())
}

impl Context {
    /// Forgets all instances but these.
    pub fn retain(&self, instances: &Store<NginxOperator>) {
        let there: HashSet<String> = instances.state().iter().filter_map(|instance| instance.uid()).collect();
        self.backoff.retain(|uid| there.contains(uid));
        self.written.retain(|uid| there.contains(uid));
    }

    async fn observe(&self, instance: &NginxOperator) -> Result<(Found, Vec<Arc<Pod>>), ReconcileError> {
        self.caches.ready().await.map_err(|_| ReconcileError::Ending)?;
        let found = Found {
            deployment: self.find(instance, Kind::Deployment, &self.caches.deployments).await?,
            service: self.find(instance, Kind::Service, &self.caches.services).await?,
        };
        let name = instance.name_any();
        let mut pods = self.caches.pods.state();
        pods.retain(|pod| instance_of(&**pod) == Some(&name) && pod.namespace() == instance.namespace());
        Ok((found, pods))
    }

    /// From the cache. What it lacks is asked for live before it is made: it may be new, or have lost its label.
    async fn find<K>(
        &self,
        instance: &NginxOperator,
        kind: Kind,
        cache: &Store<Kept<K>>,
    ) -> Result<Option<K>, ReconcileError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let name = instance.name_any();
        let namespace = instance.namespace().unwrap_or_default();
        let failed = |source| ReconcileError::Observe { kind, source };
        if let Some(object) = cache.get(&ObjectRef::new(&name).within(&namespace)) {
            return object.read().map(Some).map_err(|error| failed(kube::Error::SerdeError(error)));
        }
        let live: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        live.get_opt(&name).await.map_err(failed)
    }

    /// Gives the Deployment as it is now, if it was written.
    async fn apply(
        &self,
        instance: &NginxOperator,
        steps: &[Step],
    ) -> Result<Option<Deployment>, ReconcileError> {
        let mut deployment = None;
        for step in steps {
            match step {
                Step::Create { kind: Kind::Deployment, .. } | Step::Patch { kind: Kind::Deployment, .. } => {
                    deployment = Some(self.write::<Deployment>(instance, Kind::Deployment, step).await?);
                }
                Step::Create { kind: Kind::Service, .. } | Step::Patch { kind: Kind::Service, .. } => {
                    self.write::<Service>(instance, Kind::Service, step).await?;
                }
            }
        }
        Ok(deployment)
    }

    async fn write<K>(&self, instance: &NginxOperator, kind: Kind, step: &Step) -> Result<K, ReconcileError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Serialize,
    {
        let (name, namespace) = (instance.name_any(), instance.namespace().unwrap_or_default());
        let failed = |source| ReconcileError::Apply { kind, source };
        let api: Api<K> = Api::namespaced(self.client.clone(), &namespace);
        let (verb, written) = match step {
            Step::Create { object, .. } => {
                let object: K =
                    serde_json::from_value(object.clone()).map_err(|e| failed(kube::Error::SerdeError(e)))?;
                let params = PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() };
                ("created", api.create(&params, &object).await)
            }
            Step::Patch { patch, .. } => {
                let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
                ("set right", api.patch(&name, &params, &Patch::Merge(patch)).await)
            }
        };
        let written = written.map_err(failed)?;
        info!(namespace, name, kind = kind.as_str(), "{verb}");
        Ok(written)
    }

    /// Only if it differs, and only if nobody has written since we looked.
    async fn write_status(
        &self,
        instance: &NginxOperator,
        status: &NginxOperatorStatus,
    ) -> Result<(), ReconcileError> {
        if instance.status.as_ref() == Some(status) && !self.written.is_doubtful(instance) {
            return Ok(());
        }
        let namespace = instance.namespace().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &namespace, &resource(self.version));
        let patch: Value = json!({
            "metadata": { "uid": instance.uid(), "resourceVersion": instance.resource_version() },
            "status": status,
        });
        let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
        match api.patch_status(&instance.name_any(), &params, &Patch::Merge(&patch)).await {
            Ok(written) => self.written.done(instance, written.metadata.resource_version.as_deref()),
            Err(error) => {
                // A refusal is an answer; all else leaves open whether it was done.
                if !matches!(&error, kube::Error::Api(status) if status.code < 500) {
                    self.written.unknown(instance);
                }
                return Err(ReconcileError::Report(error));
            }
        }
        Ok(())
    }

    async fn tell(&self, instance: &NginxOperator, severity: Severity, reason: &str, message: &str) {
        let about =
            ObjectReference { api_version: Some(self.version.api_version()), ..instance.object_ref(&()) };
        self.recorder.publish(&about, severity, reason, message).await;
    }
}
