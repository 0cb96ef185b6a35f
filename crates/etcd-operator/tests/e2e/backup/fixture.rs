//! An EtcdBackup as its user sees it, and the store behind it.

use std::fs;

use api::conditions::{self, ConditionStatus};
use api::v1beta2::{EtcdBackup, EtcdBackupStatus};
use base64::Engine as _;
use etcd::{Expect, Member};
use kube::api::{Api, Patch, PatchParams, PostParams};
use lab::kit::{TestNamespace, wait_for};
use lab::wait::until;
use serde_json::{Value, json};
use snapshot::{Manifest, StoreSource, manifest, store};

use crate::support::{Cluster, LIMIT, Outcome};

pub struct Backup<'a> {
    pub test: &'a TestNamespace<'a>,
    pub name: String,
}

impl<'a> Backup<'a> {
    /// Of this cluster, by the addresses of its pods, to S3; `spec` is laid over that. Retried until the CRD is there.
    pub async fn once(cluster: &Cluster<'a>, name: &str, spec: Value) -> Outcome<Self> {
        let backup = Self { test: cluster.test, name: name.to_owned() };
        let mut whole = json!({"storageType": "S3"});
        if spec["clusterRef"].is_null() && spec.get("etcdEndpoints").is_none() {
            whole["etcdEndpoints"] = json!(backup.endpoints(cluster).await?);
        }
        if let (Some(whole), Some(spec)) = (whole.as_object_mut(), spec.as_object()) {
            whole.extend(spec.clone().into_iter().filter(|(_, value)| !value.is_null()));
        }
        let object: EtcdBackup = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": name}, "spec": whole,
        }))?;
        until("the EtcdBackup CRD", LIMIT, async || {
            match backup.api().create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(refused)) if refused.code == 404 => Ok(Err(refused.message)),
                other => Ok(Ok(other.map(drop)?)),
            }
        })
        .await?;
        Ok(backup)
    }

    /// URLs that reach the members from this machine, which does not know their names.
    pub async fn endpoints(&self, cluster: &Cluster<'_>) -> Outcome<Vec<String>> {
        Ok(cluster.endpoints().await?.into_iter().map(|address| format!("http://{address}")).collect())
    }

    pub fn api(&self) -> Api<EtcdBackup> {
        self.test.api()
    }

    pub async fn get(&self) -> Outcome<EtcdBackup> {
        Ok(self.api().get(&self.name).await?)
    }

    pub async fn edit(&self, spec: Value) -> Outcome {
        self.api().patch(&self.name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    async fn status(
        &self,
        what: &str,
        holds: impl Fn(&EtcdBackupStatus) -> bool,
    ) -> Outcome<EtcdBackupStatus> {
        let api = self.api();
        let seen = wait_for(&api, &self.name, LIMIT, what, |backup: &EtcdBackup| {
            let current =
                |status: &&EtcdBackupStatus| status.observed_generation == backup.metadata.generation;
            backup.status.as_ref().filter(current).is_some_and(&holds)
        });
        Ok(seen.await?.status.unwrap_or_default())
    }

    /// Waits until it was made, and says so in the old words and the new.
    pub async fn good(&self) -> Outcome<EtcdBackupStatus> {
        let ready = |status: &EtcdBackupStatus| {
            let ready = conditions::find(&status.conditions, "Ready");
            status.succeeded && ready.is_some_and(|ready| ready.status == ConditionStatus::True)
        };
        self.status("to be made", ready).await
    }

    /// Waits until it failed for this reason.
    pub async fn failed(&self, reason: &str) -> Outcome<EtcdBackupStatus> {
        let failed = |status: &EtcdBackupStatus| {
            let stalled = conditions::find(&status.conditions, "Stalled");
            stalled.is_some_and(|stalled| stalled.reason == reason) && status.progress.is_none()
        };
        self.status(&format!("to fail: {reason}"), failed).await
    }

    /// Waits until the operator has seen the spec as it is now.
    pub async fn seen(&self) -> Outcome {
        self.status("to be seen", |_| true).await.map(drop)
    }
}

/// The AWS files of the lab in a Secret; `changes` replaces some of them, or takes them out.
pub async fn secret(test: &TestNamespace<'_>, name: &str, changes: Value) -> Outcome {
    let mut data = serde_json::Map::new();
    for file in ["credentials", "config"] {
        let text = match changes.get(file) {
            None => fs::read_to_string(test.lab.layout.aws_dir().join(file))?,
            Some(Value::String(text)) => text.clone(),
            Some(_) => continue,
        };
        data.insert(file.to_owned(), json!(base64::engine::general_purpose::STANDARD.encode(text)));
    }
    let secret = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data,
    }))?;
    test.api::<k8s_openapi::api::core::v1::Secret>().create(&PostParams::default(), &secret).await?;
    Ok(())
}

pub async fn put(cluster: &Cluster<'_>, key: &str, value: &str) -> Outcome {
    let endpoints = cluster.endpoints().await?;
    let endpoint = endpoints.first().ok_or("there is no member")?;
    Member::connect(endpoint, Expect::default())?.put(key.as_bytes(), value.as_bytes()).await?;
    Ok(())
}

/// What the store itself shows under names that begin with `path`.
pub async fn manifests(test: &TestNamespace<'_>, path: &str) -> Outcome<Vec<Manifest>> {
    let mut secret = store::Secret::new();
    for file in ["credentials", "config"] {
        secret.insert(file.to_owned(), fs::read(test.lab.layout.aws_dir().join(file))?);
    }
    let source = StoreSource::S3 {
        path: path.to_owned(),
        endpoint: None,
        force_path_style: false,
        profile: None,
        region: None,
    };
    let found = manifest::list(&store::open(&source, &secret)?).await?;
    Ok(found.into_iter().map(|(_, manifest)| manifest).collect())
}
