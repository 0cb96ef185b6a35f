//! One EtcdCluster: made, edited, waited on.

use std::collections::BTreeSet;
use std::time::Duration;

use api::{EtcdCluster, conditions, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use lab::kit::{TestNamespace, gone, wait_for};
use serde_json::{Value, json};

use super::{Failed, Result};

pub struct Cluster {
    pub api: Api<EtcdCluster>,
    pub pods: Api<Pod>,
    pub name: String,
}

impl Cluster {
    /// Waits for the CRD, which the operator makes.
    pub async fn create(test: &TestNamespace<'_>, name: &str, spec: Value) -> Result<Self> {
        let api: Api<EtcdCluster> = test.api();
        lab::wait::until("the CRD", Duration::from_secs(60), async || {
            Ok(api.list(&ListParams::default().limit(1)).await)
        })
        .await?;
        let cluster: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": name}, "spec": spec,
        }))?;
        api.create(&PostParams::default(), &cluster).await?;
        Ok(Self { api, pods: test.api(), name: name.to_owned() })
    }

    pub async fn edit(&self, spec: Value) -> Result<EtcdCluster> {
        let patch = Patch::Merge(json!({"spec": spec}));
        Ok(self.api.patch(&self.name, &PatchParams::default(), &patch).await?)
    }

    /// Until the spec as it is now is reached: every member ready, the version as asked, nothing under way.
    pub async fn settled(&self, limit: Duration) -> Result<EtcdCluster> {
        let generation = self.api.get(&self.name).await?.metadata.generation;
        let settled = move |cluster: &EtcdCluster| {
            let Some(status) = &cluster.status else { return false };
            let ready = conditions::find(&status.conditions, conditions::READY);
            ready.is_some_and(|ready| ready.status == conditions::ConditionStatus::True)
                && status.observed_generation >= generation
                && status.ready_members == cluster.spec.size
                && status.size == cluster.spec.size
                && status.current_version == cluster.spec.version()
                && status.target_version.is_empty()
        };
        self.reaches(limit, "to settle", settled).await
    }

    pub async fn reaches(
        &self,
        limit: Duration,
        what: &str,
        holds: impl Fn(&EtcdCluster) -> bool,
    ) -> Result<EtcdCluster> {
        Ok(wait_for(&self.api, &self.name, limit, what, holds).await?)
    }

    /// Until there are `count` members, none of them `without`.
    pub async fn replaced(&self, without: &str, count: usize, limit: Duration) -> Result<EtcdCluster> {
        let replaced = |cluster: &EtcdCluster| {
            let members =
                cluster.status.as_ref().map(|status| status.members.ready.clone()).unwrap_or_default();
            members.len() == count && !members.iter().any(|member| member == without)
        };
        self.reaches(limit, "to replace a member", replaced).await
    }

    pub async fn delete(&self, limit: Duration) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(gone(&self.api, &self.name, limit).await?)
    }

    pub async fn member_pods(&self) -> Result<Vec<Pod>> {
        let ours = ListParams::default().labels(&labels::selector(&labels::of_cluster(&self.name)));
        Ok(self.pods.list(&ours).await?.items)
    }

    pub async fn member_names(&self) -> Result<BTreeSet<String>> {
        Ok(self.member_pods().await?.iter().map(ResourceExt::name_any).collect())
    }

    /// Restarts of the etcd containers and UIDs of the pods: what changes when a member is touched.
    pub async fn touched(&self) -> Result<BTreeSet<(String, i32)>> {
        let mark = |pod: &Pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let restarts = statuses.into_iter().flatten().map(|status| status.restart_count).sum();
            (pod.uid().unwrap_or_default(), restarts)
        };
        Ok(self.member_pods().await?.iter().map(mark).collect())
    }

    /// Deletes a pod as `kubectl delete pod` does, and gives its name.
    pub async fn delete_a_pod(&self) -> Result<String> {
        let pods = self.member_pods().await?;
        let pod = pods.last().ok_or_else(|| Failed("the cluster has no pods".into()))?.name_any();
        self.pods.delete(&pod, &DeleteParams::default()).await?;
        Ok(pod)
    }
}
