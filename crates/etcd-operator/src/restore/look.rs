//! What there is before a restore: the backup, read to its last page; the cluster; the members that still answer.

use std::collections::BTreeSet;

use api::conditions::{self, ConditionStatus};
use api::labels;
use api::names::CLIENT_PORT;
use api::v1beta2::{
    BackupContents, EtcdCluster, EtcdClusterSpec, EtcdRestore, RestoreRequest, RestoreStage, Store,
};
use domain::{ClusterId, Version};
use etcd::{Expect, Member};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim as Claim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use snapshot::manifest::{self, ManifestError};
use snapshot::{Candidate, InspectError, Kind, Manifest, Meta, Naming, Place, SaveError, StoreError};
use thiserror::Error;

use super::plan::{Known, Survivor, Target};
use crate::cluster::pods::is_armed;
use crate::store::{self, OpenError};
use crate::tenure::Tenure;

/// Why a restore cannot go on. Nothing was touched.
#[derive(Debug, Error)]
pub enum LookError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "no Secret opens the store, and the identity of the operator's pod is not that of the member that is made \
         from the backup: write the name of a Secret beside the path"
    )]
    NoSecret,
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{place} is damaged: {source}")]
    Damaged { place: String, source: InspectError },
    #[error("what {member} still has could not be saved: {source}")]
    Survivor { member: String, source: SaveError },
    #[error("Kubernetes did not answer: {0}")]
    Kubernetes(#[from] kube::Error),
}

impl LookError {
    /// Stable, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Open(error) => error.reason(),
            Self::Store(error) | Self::Manifest(ManifestError::Store(error)) => store::reason(error),
            Self::NoSecret => "SecretMissing",
            Self::Manifest(_) => "BadManifest",
            Self::Damaged { .. } => "BackupDamaged",
            Self::Survivor { .. } => "SurvivorNotSaved",
            Self::Kubernetes(_) => "KubernetesRefused",
        }
    }

    /// It is Kubernetes that does not answer, or this process that ends, not the backup that is wrong: tried again.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Kubernetes(_)
            | Self::Open(OpenError::Secret { .. })
            | Self::Survivor { source: SaveError::Stopped, .. } => true,
            Self::Open(_)
            | Self::Store(_)
            | Self::NoSecret
            | Self::Manifest(_)
            | Self::Damaged { .. }
            | Self::Survivor { .. } => false,
        }
    }

    /// Only what a survivor still has is at stake.
    pub fn yields_to_force(&self) -> bool {
        matches!(self, Self::Survivor { .. }) && !self.is_passing()
    }
}

/// The backup, verified.
pub struct Backup {
    pub place: Place,
    pub contents: BackupContents,
    pub version: Option<Version>,
    /// The spec of the cluster that it was made of.
    pub spec: Option<EtcdClusterSpec>,
}

/// Reads and verifies all of it.
pub async fn backup(tenure: &Tenure, restore: &EtcdRestore) -> Result<Backup, LookError> {
    let namespace = restore.namespace().unwrap_or_default();
    let store = restore.spec.store().map_err(OpenError::from)?;
    if store.secret().is_none() && !matches!(store, Store::Volume(_)) {
        return Err(LookError::NoSecret);
    }
    let place = store::open(tenure, &namespace, store).await?;
    let manifest: Option<Manifest> = manifest::read(&place).await?;
    let contents = match snapshot::inspect(&place, Kind::Snapshot).await {
        Ok(contents) => contents,
        Err(InspectError::Store(error)) => return Err(error.into()),
        Err(source) => return Err(LookError::Damaged { place: place.to_string(), source }),
    };
    let made_by =
        manifest.as_ref().map(|manifest| manifest.etcd_version.clone()).or(contents.version.clone());
    let spec = manifest.and_then(|manifest| manifest.cluster_spec);
    Ok(Backup {
        place,
        version: made_by.as_deref().and_then(version),
        contents: BackupContents {
            etcd_version: made_by.unwrap_or_default(),
            revision: contents.revision,
            keys: i64::try_from(contents.keys).unwrap_or(i64::MAX),
            digest: contents.digest,
            size_bytes: i64::try_from(contents.size).unwrap_or(i64::MAX),
        },
        // A spec that this operator does not understand is none.
        spec: spec.and_then(|spec| serde_json::from_value(spec).ok()),
    })
}

/// A manifest names the version in full, the database itself only its minor.
fn version(text: &str) -> Option<Version> {
    text.parse().or_else(|_| format!("{text}.0").parse()).ok()
}

/// What the cluster is, in the words of its own status.
pub fn target(cluster: Option<&EtcdCluster>, restore: &EtcdRestore, backup: &Backup) -> Target {
    let Some(cluster) = cluster else {
        let spec = restore.spec.cluster_template.as_ref().or(backup.spec.as_ref());
        return Target::Absent { spec: spec.map(|spec| Known { version: spec.version().to_owned() }) };
    };
    let version = cluster.spec.version().to_owned();
    let status = cluster.status.clone().unwrap_or_default();
    if status.cluster_id.is_empty() {
        return Target::Empty { version };
    }
    let holds = |type_: &str| conditions::find(&status.conditions, type_).map(|condition| condition.status);
    match (holds("QuorumLost"), holds("Available")) {
        (Some(ConditionStatus::True), _) => Target::Lost { version },
        (None, Some(ConditionStatus::True)) => Target::Healthy { version },
        _ => Target::Unknown { version },
    }
}

/// The cluster is without its quorum, and says so.
pub fn lost(cluster: &EtcdCluster) -> bool {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::find(conditions, "QuorumLost").is_some_and(|lost| lost.status == ConditionStatus::True)
}

/// The restore of another EtcdRestore that has not ended. One that fills a cluster which lost its quorum again may never
/// end, and must not keep the next from beginning.
pub fn under_way(cluster: &EtcdCluster, uid: &str) -> Option<String> {
    let request = RestoreRequest::on(cluster).ok().flatten().filter(|request| request.uid != uid)?;
    let progress = cluster.status.as_ref().and_then(|status| status.restore.as_ref());
    let ended = match progress.filter(|progress| progress.uid == request.uid).map(|progress| progress.stage) {
        Some(RestoreStage::Done | RestoreStage::Failed) => true,
        Some(RestoreStage::Filling) => lost(cluster),
        Some(RestoreStage::Seeding) | None => false,
    };
    (!ended).then_some(request.name)
}

/// The cluster works for this EtcdRestore: its request is there, or was served so far that nobody can take it back.
pub fn serves(cluster: &EtcdCluster, uid: &str) -> bool {
    let asked = RestoreRequest::on(cluster).ok().flatten().is_some_and(|request| request.uid == uid);
    let progress = cluster.status.as_ref().and_then(|status| status.restore.as_ref());
    asked
        || progress.is_some_and(|progress| {
            progress.uid == uid && matches!(progress.stage, RestoreStage::Filling | RestoreStage::Done)
        })
}

/// Members of the cluster: those that answer, and those that do not and may still have their data.
#[derive(Default)]
pub struct Members {
    pub answering: Vec<(String, Candidate)>,
    pub unsure: Vec<String>,
    /// Those that may have data, where no cluster ID is recorded that they could be known by.
    pub unrecorded: Vec<String>,
}

pub async fn members(
    tenure: &Tenure,
    restore: &EtcdRestore,
    cluster: Option<&EtcdCluster>,
) -> Result<Members, LookError> {
    let (namespace, name) = (restore.namespace().unwrap_or_default(), &restore.spec.etcd_cluster.name);
    let ours = ListParams::default().labels(&labels::selector(&labels::of_cluster(name)));
    let pods: Api<Pod> = Api::namespaced(tenure.client.clone(), &namespace);
    let claims: Api<Claim> = Api::namespaced(tenure.client.clone(), &namespace);
    let (pods, claims) = tokio::try_join!(pods.list(&ours), claims.list_metadata(&ours))?;
    let (pods, claims) = (pods.items, claims.items);
    let status = cluster.and_then(|cluster| cluster.status.clone()).unwrap_or_default();
    let Ok(id) = u64::from_str_radix(&status.cluster_id, 16) else {
        let unrecorded = unrecorded(cluster, &pods, &claims);
        let there = pods.iter().filter(|pod| unrecorded.contains(&pod.name_any()));
        let answering = answering(there, None).await;
        return Ok(Members { answering, unrecorded, ..Members::default() });
    };
    let answering = answering(pods.iter(), Some(ClusterId(id))).await;
    let answers: BTreeSet<&str> = answering.iter().map(|(name, _)| name.as_str()).collect();
    let listed = status.members.ready.iter().chain(&status.members.unready);
    let unsure = listed
        .filter(|name| !answers.contains(name.as_str()) && may_have_data(name, &pods, &claims))
        .cloned()
        .collect();
    Ok(Members { answering, unsure, ..Members::default() })
}

async fn answering<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    cluster: Option<ClusterId>,
) -> Vec<(String, Candidate)> {
    let asked = pods.filter_map(|pod| {
        let ip = pod.status.as_ref()?.pod_ip.clone()?;
        Some(async move {
            let expect = Expect { cluster, member: None };
            let member = Member::connect(format!("{ip}:{CLIENT_PORT}"), expect).ok()?;
            let status = member.status().await.ok()?;
            let member = member.expecting(status.identity.into());
            Some((pod.name_any(), Candidate { member, status }))
        })
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Of a healthy cluster, the voter that has come furthest has what all have.
pub fn furthest(answering: Vec<(String, Candidate)>) -> Option<(String, Candidate)> {
    answering.into_iter().max_by_key(|(_, candidate)| (!candidate.status.learner, candidate.index()))
}

/// Where no cluster ID is recorded: what is there all the same, and may hold what somebody was promised. Not what goes
/// with an owner that is gone, and not what our own beginning or an earlier restore is just making.
fn unrecorded(
    cluster: Option<&EtcdCluster>,
    pods: &[Pod],
    claims: &[PartialObjectMeta<Claim>],
) -> Vec<String> {
    let uid = cluster.and_then(ResourceExt::uid);
    let status = cluster.and_then(|cluster| cluster.status.clone()).unwrap_or_default();
    let seeds = [status.seed, status.restore.map(|restore| restore.seed).unwrap_or_default()];
    let stays = |meta: &ObjectMeta| {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let owned = owners.is_empty() || owners.iter().any(|owner| Some(&owner.uid) == uid.as_ref());
        let made = meta.name.as_ref().is_some_and(|name| seeds.contains(name));
        owned && !made && meta.deletion_timestamp.is_none()
    };
    let pods = pods.iter().filter(|pod| !has_ended(pod) && !is_armed(pod)).map(|pod| &pod.metadata);
    let there = pods.chain(claims.iter().map(|claim| &claim.metadata)).filter(|meta| stays(meta));
    let names: BTreeSet<String> = there.filter_map(|meta| meta.name.clone()).collect();
    names.into_iter().collect()
}

/// Its pod or its claim is there, and not known to hold nothing.
fn may_have_data(name: &str, pods: &[Pod], claims: &[PartialObjectMeta<Claim>]) -> bool {
    let claim = claims.iter().any(|claim| claim.name_any() == name);
    claim || pods.iter().any(|pod| pod.name_any() == name && !has_ended(pod))
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Saves what a survivor has beside the backup.
pub async fn save(
    tenure: &Tenure,
    restore: &EtcdRestore,
    beside: &Place,
    name: &str,
    survivor: Candidate,
) -> Result<(Survivor, String), LookError> {
    let failed = |source| LookError::Survivor { member: name.to_owned(), source };
    let place = beside.followed_by(&format!(".survivor-{name}"))?;
    let meta = Meta {
        slot: Timestamp::now(),
        owner_uid: restore.uid().unwrap_or_default(),
        owner: format!("{}/{}", restore.namespace().unwrap_or_default(), restore.name_any()),
        cluster_name: Some(restore.spec.etcd_cluster.name.clone()),
        cluster_spec: None,
    };
    let from = snapshot::From::Survivor(Box::new(survivor));
    let saved = snapshot::save(from, &place, Naming::AsGiven, &meta, &tenure.stop, |_| {}).await;
    let (place, manifest) = saved.map_err(failed)?;
    let saved_to = store::path_of(restore.spec.store().map_err(OpenError::from)?, &place);
    Ok((Survivor { name: name.to_owned(), revision: manifest.revision }, saved_to))
}

#[cfg(test)]
mod tests;
