//! An EtcdCluster as its user sees it, and as its members really are.

use std::collections::BTreeSet;

use api::conditions::ConditionStatus;
use api::v1beta2::EtcdCluster;
use etcd::{Expect, Member};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use lab::kit::{TestNamespace, wait_for, wait_for_all};
use lab::wait::until;
use serde_json::{Value, json};

use super::load::addresses;
use super::{LIMIT, Outcome};

pub struct Cluster<'a> {
    pub test: &'a TestNamespace<'a>,
    pub name: String,
}

impl<'a> Cluster<'a> {
    /// Creates the EtcdCluster; `spec` as a user writes it. Retried until the CRD is there.
    pub async fn create(test: &'a TestNamespace<'a>, name: &str, spec: Value) -> Outcome<Self> {
        let object: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": name}, "spec": spec,
        }))?;
        let api: Api<EtcdCluster> = test.api();
        until("the EtcdCluster CRD", LIMIT, async || {
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(refused)) if refused.code == 404 => Ok(Err(refused.message)),
                other => Ok(Ok(other.map(drop)?)),
            }
        })
        .await?;
        Ok(Self { test, name: name.to_owned() })
    }

    pub fn api(&self) -> Api<EtcdCluster> {
        self.test.api()
    }

    pub fn pods_api(&self) -> Api<Pod> {
        self.test.api()
    }

    pub async fn get(&self) -> Outcome<EtcdCluster> {
        Ok(self.api().get(&self.name).await?)
    }

    /// A merge patch of the spec, as `kubectl patch` would send it.
    pub async fn edit(&self, spec: Value) -> Outcome {
        self.api().patch(&self.name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    /// The member pods, image checks and the like left out.
    fn pods_selector(&self) -> String {
        format!("etcd_cluster={},app=etcd", self.name)
    }

    pub async fn pods(&self) -> Outcome<Vec<Pod>> {
        Ok(self.pods_api().list(&ListParams::default().labels(&self.pods_selector())).await?.items)
    }

    /// Waits until the pods are as asked for.
    pub async fn pods_are(&self, what: &str, holds: impl Fn(&[Pod]) -> bool) -> Outcome {
        let config = watcher::Config::default().labels(&self.pods_selector());
        wait_for_all(&self.pods_api(), config, LIMIT, what, holds).await?;
        Ok(())
    }

    /// Waits until the claims of its members are as asked for.
    pub async fn claims_are(&self, what: &str, holds: impl Fn(&[PersistentVolumeClaim]) -> bool) -> Outcome {
        let config = watcher::Config::default().labels(&format!("etcd_cluster={}", self.name));
        wait_for_all(&self.test.api(), config, LIMIT, what, holds).await?;
        Ok(())
    }

    pub async fn pod_names(&self) -> Outcome<BTreeSet<String>> {
        Ok(self.pods().await?.iter().map(ResourceExt::name_any).collect())
    }

    /// Where the members answer clients, as `host:port`, reachable from this machine.
    pub async fn endpoints(&self) -> Outcome<Vec<String>> {
        Ok(addresses(&self.pods().await?))
    }

    /// Waits until the status says `size` ready members of `version`, at rest, and etcd itself agrees.
    pub async fn settled(&self, size: usize, version: &str) -> Outcome<EtcdCluster> {
        let what = format!("to have {size} ready members of {version}");
        let seen = wait_for(&self.api(), &self.name, LIMIT, &what, |c| {
            let generation = c.metadata.generation;
            c.status.as_ref().is_some_and(|s| {
                s.members.ready.len() == size
                    && s.members.unready.is_empty()
                    && s.current_version == version
                    && s.target_version.is_empty()
                    && s.observed_generation == generation
                    && s.conditions.iter().any(|c| c.type_ == "Ready" && c.status == ConditionStatus::True)
            })
        })
        .await?;
        until("etcd to agree with the status", LIMIT, async || {
            Ok(self.agrees(size, version).await.map_err(|e| e.to_string()))
        })
        .await?;
        Ok(seen)
    }

    /// All members are started voters of the version, healthy, and name the same members; pods and members are the same.
    async fn agrees(&self, size: usize, version: &str) -> Outcome {
        let pods = self.pods().await?;
        let names = self.pod_names().await?;
        let running = pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none()).count();
        if running != size || pods.len() != size {
            return Err(format!("{} pods, {running} of them not going", pods.len()).into());
        }
        let endpoints = addresses(&pods);
        if endpoints.len() != size {
            return Err(format!("only {endpoints:?} have an address").into());
        }
        for endpoint in endpoints {
            let member = Member::connect(&endpoint, Expect::default())?;
            member.health().await?;
            let status = member.status().await?;
            if status.version.to_string() != version || status.learner {
                return Err(format!("{endpoint} is {status:?}").into());
            }
            let listed = member.members().await?;
            if listed.iter().any(|m| m.learner)
                || listed.iter().map(|m| m.name.clone()).collect::<BTreeSet<_>>() != names
            {
                return Err(format!("{endpoint} lists {listed:?}, the pods are {names:?}").into());
            }
        }
        Ok(())
    }
}
