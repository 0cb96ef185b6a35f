//! One attempt at one backup, in a task of its own: however long it takes, nobody else waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::v1beta2::Store;
use api::{EtcdBackup, EtcdCluster, names};
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use snapshot::{
    Endpoints, FindError, From, Manifest, Meta, Naming, Place, Progress, SaveError, StoreError, manifest,
};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::plan::{Kept, made, surplus};
use super::timing::Timing;
use crate::store::{self, OpenError};
use crate::tenure::Tenure;

/// To end an upload that is given up.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
pub enum JobError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("there is no EtcdCluster {0:?} in this namespace: correct clusterRef, or create it")]
    NoCluster(String),
    #[error("EtcdCluster {name:?} cannot be read: {source}")]
    Cluster { name: String, source: kube::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error(
        "not done after {0:?}, and given up: raise backupPolicy.timeoutInSecond, or find out what is slow"
    )]
    TimedOut(Duration),
}

impl JobError {
    /// Stable, for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Open(error) => error.reason(),
            Self::NoCluster(_) => "ClusterNotFound",
            Self::Cluster { .. } => "ClusterUnreadable",
            Self::Store(error) | Self::Save(SaveError::Store(error)) => store::reason(error),
            Self::Save(SaveError::Find(FindError::NobodyAnswers(_))) => "EtcdUnreachable",
            Self::Save(SaveError::Find(FindError::NobodyUpToDate(_))) => "EtcdHasNoQuorum",
            Self::Save(SaveError::Find(_)) => "EndpointsInvalid",
            Self::Save(SaveError::Member { .. }) => "SnapshotFailed",
            Self::Save(SaveError::Damaged(_)) => "SnapshotDamaged",
            Self::Save(SaveError::ReadBack(_)) => "ReadBackDamaged",
            Self::Save(SaveError::Stopped) => "Stopped",
            Self::TimedOut(_) => "TimedOut",
        }
    }
}

/// What went wrong, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
}

impl Failure {
    fn of(error: &JobError) -> Self {
        Self { reason: error.reason(), message: error.to_string() }
    }
}

/// A good backup.
#[derive(Clone, Debug)]
pub struct Good {
    /// As a spec would write it.
    pub object: String,
    pub manifest: Manifest,
    /// How many of this EtcdBackup there are now.
    pub kept: usize,
    /// Some that the policy no longer keeps are still there.
    pub not_pruned: Option<Failure>,
}

#[derive(Clone, Debug)]
pub enum State {
    Running(Option<Progress>),
    Made(Box<Good>),
    Failed(Failure),
    /// It was told to end: it counts for nothing.
    Stopped,
}

/// An attempt under way, or what became of it.
#[derive(Clone)]
pub struct Job {
    pub slot: Timestamp,
    pub started: Timestamp,
    pub generation: Option<i64>,
    pub stop: CancellationToken,
    state: Arc<Mutex<State>>,
}

impl Job {
    pub fn new(backup: &EtcdBackup, slot: Timestamp, started: Timestamp, stop: CancellationToken) -> Self {
        let generation = backup.metadata.generation;
        Self { slot, started, generation, stop, state: Arc::new(Mutex::new(State::Running(None))) }
    }

    #[cfg(test)]
    pub fn ended(backup: &EtcdBackup, slot: Timestamp, state: State) -> Self {
        let job = Self::new(backup, slot, slot, CancellationToken::new());
        job.set(state);
        job
    }

    pub fn state(&self) -> State {
        self.lock().clone()
    }

    pub fn is_running(&self) -> bool {
        matches!(*self.lock(), State::Running(_))
    }

    fn set(&self, state: State) {
        *self.lock() = state;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the backup, within the time that the policy gives.
    pub async fn run(&self, tenure: &Tenure, backup: &EtcdBackup) {
        let limit = backup.spec.policy().timeout();
        let mut work = std::pin::pin!(self.make(tenure, backup));
        let mut late = false;
        let made = tokio::select! {
            made = &mut work => made,
            () = tokio::time::sleep(limit) => {
                late = true;
                self.stop.cancel();
                tokio::time::timeout(GRACE, work).await.unwrap_or(Err(SaveError::Stopped.into()))
            }
        };
        self.set(match made {
            Ok(good) => State::Made(Box::new(good)),
            Err(_) if late => State::Failed(Failure::of(&JobError::TimedOut(limit))),
            Err(JobError::Save(SaveError::Stopped)) => State::Stopped,
            Err(error) => State::Failed(Failure::of(&error)),
        });
    }

    async fn make(&self, tenure: &Tenure, backup: &EtcdBackup) -> Result<Good, JobError> {
        let namespace = backup.namespace().unwrap_or_default();
        let target = backup.spec.store().map_err(OpenError::from)?;
        let place = store::open(tenure, &namespace, target).await?;
        let owner = backup.uid().unwrap_or_default();
        let cluster = cluster(tenure, backup, &namespace).await?;

        let found = found(&place, &owner).await?;
        let (object, manifest) = match made(&found.backups, &owner, self.slot) {
            Some(Kept { what: (made, manifest), .. }) => {
                // Whoever made it may have died before it had tidied up. The backup is good all the same.
                if let Err(error) = snapshot::sweep(&place, &owner).await {
                    warn!(%place, %error, "what is left of its upload is not cleaned up");
                }
                (made.clone(), manifest.clone())
            }
            None => self.save(backup, &namespace, &place, &owner, cluster).await?,
        };
        let (kept, not_pruned) = prune(&place, &owner, backup, target).await;
        Ok(Good { object: store::path_of(target, &object), manifest, kept, not_pruned })
    }

    async fn save(
        &self,
        backup: &EtcdBackup,
        namespace: &str,
        place: &Place,
        owner: &str,
        cluster: Option<EtcdCluster>,
    ) -> Result<(Place, Manifest), JobError> {
        let once = Timing::of(&backup.spec) == Ok(Timing::Once);
        let meta = Meta {
            slot: self.slot,
            owner_uid: owner.to_owned(),
            owner: format!("{namespace}/{}", backup.name_any()),
            cluster_name: cluster.as_ref().map(ResourceExt::name_any),
            cluster_spec: cluster.and_then(|cluster| serde_json::to_value(cluster.spec).ok()),
        };
        let endpoints = Endpoints::new(endpoints(backup)).in_namespace(namespace);
        let naming = if once { Naming::AsGiven } else { Naming::Series };
        let told = |progress| self.set(State::Running(Some(progress)));
        let saved = snapshot::save(From::Cluster(endpoints), place, naming, &meta, &self.stop, told);
        Ok(saved.await?)
    }
}

fn endpoints(backup: &EtcdBackup) -> Vec<String> {
    match &backup.spec.cluster_ref {
        Some(cluster) => {
            vec![format!("http://{}:{}", names::client_service(&cluster.name), names::CLIENT_PORT)]
        }
        None => backup.spec.etcd_endpoints.clone(),
    }
}

/// The EtcdCluster that is backed up: its spec is kept with the data. One that is found by the name of its Service alone
/// may as well not be there.
async fn cluster(
    tenure: &Tenure,
    backup: &EtcdBackup,
    namespace: &str,
) -> Result<Option<EtcdCluster>, JobError> {
    let clusters: Api<EtcdCluster> = Api::namespaced(tenure.client.clone(), namespace);
    if let Some(named) = &backup.spec.cluster_ref {
        return match clusters.get_opt(&named.name).await {
            Ok(Some(cluster)) => Ok(Some(cluster)),
            Ok(None) => Err(JobError::NoCluster(named.name.clone())),
            Err(source) => Err(JobError::Cluster { name: named.name.clone(), source }),
        };
    }
    let Some(name) = backup.spec.cluster_name(namespace) else { return Ok(None) };
    Ok(clusters.get_opt(name).await.unwrap_or_else(|error| {
        warn!(cluster = name, %error, "its spec is not kept with the backup");
        None
    }))
}

/// What lies at a place of one owner.
struct Found {
    backups: Vec<Kept<(Place, Manifest)>>,
    /// Only the manifest is left of these: they are backups of nothing.
    bare: Vec<Place>,
}

async fn found(place: &Place, owner: &str) -> Result<Found, StoreError> {
    let mut found = Found { backups: Vec::new(), bare: Vec::new() };
    for (place, manifest) in manifest::list(place).await? {
        if manifest.owner_uid != owner {
            continue;
        }
        match place.size().await {
            Ok(size) if size == manifest.size => found.backups.push(Kept {
                owner: manifest.owner_uid.clone(),
                slot: manifest.slot,
                finished: manifest.finished,
                what: (place, manifest),
            }),
            Ok(_) => warn!(%place, "is not what its manifest speaks of: passed over"),
            Err(error) if error.is_missing() => found.bare.push(place),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Deletes what the policy no longer keeps, and counts the rest. The backup is good whether this succeeds or not.
async fn prune(
    place: &Place,
    owner: &str,
    backup: &EtcdBackup,
    target: Store<'_>,
) -> (usize, Option<Failure>) {
    let found = match found(place, owner).await {
        Ok(found) => found,
        Err(error) => return (0, Some(not_pruned(&error))),
    };
    let policy = backup.spec.policy();
    let mut kept = found.backups.len();
    for bare in &found.bare {
        if let Err(error) = manifest::delete(bare).await {
            warn!(object = store::path_of(target, bare), %error, "its manifest is not deleted");
            return (kept, Some(not_pruned(&error)));
        }
    }
    for Kept { what: (place, _), .. } in surplus(&found.backups, owner, &policy, Timestamp::now()) {
        if let Err(error) = manifest::delete(place).await {
            warn!(object = store::path_of(target, place), %error, "is not kept any more, and not deleted");
            return (kept, Some(not_pruned(&error)));
        }
        kept -= 1;
    }
    (kept, None)
}

fn not_pruned(error: &StoreError) -> Failure {
    let message = format!("old backups are not deleted, the next backup tries again: {error}");
    Failure { reason: "NotPruned", message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1beta2::{BackupPolicy, Stores, VolumeSource};
    use serde_json::json;

    const SLOT: &str = "2026-11-15T03:00:00Z";

    /// A backup of five bytes, and its manifest; `None`: the manifest alone.
    fn lay(folder: &std::path::Path, name: &str, slot: &str, object: Option<&str>) {
        let manifest = json!({
            "format": 1, "object": name, "size": 5, "sha256": "", "revision": 1, "keys": 1, "digest": "",
            "etcdVersion": "3.5.16", "clusterId": "1", "memberId": "1", "ownerUid": "uid",
            "slot": slot, "started": slot, "finished": slot,
        });
        std::fs::write(folder.join(format!("{name}.manifest.json")), manifest.to_string()).unwrap();
        object.iter().for_each(|object| std::fs::write(folder.join(name), object).unwrap());
    }

    #[tokio::test]
    async fn a_manifest_is_not_believed_without_its_object() {
        let root = tempfile::tempdir().unwrap();
        let volume = VolumeSource { claim_name: "claim".into(), path: "b".into() };
        let folder = root.path().join("claim");
        std::fs::create_dir(&folder).unwrap();
        let (slot, before): (Timestamp, _) = (SLOT.parse().unwrap(), "2026-11-14T03:00:00Z");
        lay(&folder, "b_older", "2026-11-13T03:00:00Z", Some("whole"));
        lay(&folder, "b_old", before, Some("whole"));
        lay(&folder, "b_bare", SLOT, None);
        lay(&folder, "b_other", SLOT, Some("another"));
        let target = Store::Volume(&volume);
        let source = store::source(target, root.path());
        let place = snapshot::store::open(&source, &snapshot::store::Secret::new()).unwrap();

        let all = found(&place, "uid").await.unwrap();
        assert!(made(&all.backups, "uid", slot).is_none(), "it is made anew");
        let mut backup = EtcdBackup::default();
        backup.spec.stores = Stores { volume: Some(volume.clone()), ..Stores::default() };
        backup.spec.backup_policy = Some(BackupPolicy { max_backups: 1, ..BackupPolicy::default() });
        let (kept, not_pruned) = prune(&place, "uid", &backup, target).await;
        assert_eq!((kept, not_pruned), (1, None));
        let is_there = |name: &str| folder.join(name).exists();
        assert!(is_there("b_old") && !is_there("b_older") && !is_there("b_bare.manifest.json"));
        assert!(is_there("b_other"), "it may be somebody's");

        lay(&folder, "b_bare", SLOT, Some("whole"));
        let all = found(&place, "uid").await.unwrap();
        assert!(made(&all.backups, "uid", slot).is_some());
    }
}
