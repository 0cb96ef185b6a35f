//! `EtcdBackup`s, as far as an upgrade to a new minor is concerned: which one names the cluster, and what became of the
//! copies of it that were asked for.

use std::time::Duration;

use api::{EtcdBackup, EtcdCluster, annotations, labels};
use domain::{AskedBackup, Backups, Check, Moment, Name, Read, Version};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use tokio::time::Instant;
use tracing::debug;

use super::Context;
use super::memory::Memory;

/// An upgrade that waits looks this often.
const LOOK: Duration = Duration::from_secs(1);
/// With what follows it, the name of a copy stays within what Kubernetes takes.
const LONGEST: usize = 200;

/// Where there is no CRD, nobody has asked for backups. Without the right to read, nobody can tell: the event says so.
pub async fn look(context: &Context, cluster: &EtcdCluster, memory: &mut Memory) -> Read<Backups> {
    if let Some((at, backups)) = &memory.backups
        && at.elapsed() < LOOK
    {
        return Read::Known(backups.clone());
    }
    let backups = match all(context, cluster).await {
        Ok(found) => seen(cluster, &found),
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {
            debug!(why = status.message, "EtcdBackups are not looked at");
            Backups::default()
        }
        Err(error) => return Read::Unknown(error.to_string()),
    };
    memory.backups = Some((Instant::now(), backups.clone()));
    Read::Known(backups)
}

pub async fn all(context: &Context, cluster: &EtcdCluster) -> kube::Result<Vec<EtcdBackup>> {
    let namespace = cluster.namespace().unwrap_or_default();
    let api: Api<EtcdBackup> = Api::namespaced(context.client.clone(), &namespace);
    Ok(api.list(&ListParams::default()).await?.items)
}

fn seen(cluster: &EtcdCluster, found: &[EtcdBackup]) -> Backups {
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let names_it = |backup: &&EtcdBackup| {
        !backup.annotations().contains_key(annotations::BACKUP_OF)
            && !backup.spec.suspend
            && backup.metadata.deletion_timestamp.is_none()
            && backup.spec.cluster_name(&namespace) == Some(&name)
    };
    // Of several, one that is known to work.
    let works = |backup: &EtcdBackup| backup.status.as_ref().is_some_and(|status| status.succeeded);
    let named = found.iter().filter(names_it).min_by_key(|backup| (!works(backup), backup.name_any()));
    Backups {
        named: named.map(|backup| backup.name_any().into()),
        asked: found.iter().filter_map(|backup| asked(cluster, backup)).collect(),
    }
}

/// A copy that was asked for before an upgrade of this cluster, as its spec stands.
fn asked(cluster: &EtcdCluster, backup: &EtcdBackup) -> Option<AskedBackup> {
    let of = backup.annotations().get(annotations::BACKUP_OF)?;
    let version: Version = backup.annotations().get(annotations::BEFORE)?.parse().ok()?;
    let ours = backup.owner_references().iter().any(|owner| Some(&owner.uid) == cluster.uid().as_ref());
    if !ours || backup.name_any() != format!("{}{}", shortened(of), suffix(cluster, version)) {
        return None;
    }
    let status = backup.status.clone().unwrap_or_default();
    let outcome = if status.succeeded {
        Check::Passed
    } else if !status.reason.is_empty() {
        Check::Failed(status.reason)
    } else if status.progress.is_some() {
        Check::Running
    } else {
        Check::Unknown("nobody has begun with it".to_owned())
    };
    let created = backup.metadata.creation_timestamp.as_ref().map(|created| created.0.as_millisecond());
    let at = Moment(created.and_then(|at| u64::try_from(at).ok()).unwrap_or_default());
    Some(AskedBackup { name: backup.name_any().into(), of: of.as_str().into(), version, outcome, at })
}

/// A copy of `backup`, made once and to a place of its own. It goes with the cluster, and what it made stays.
pub fn copy(cluster: &EtcdCluster, backup: &EtcdBackup, version: Version) -> EtcdBackup {
    let suffix = suffix(cluster, version);
    let of = backup.name_any();
    let mut copy = EtcdBackup::new(&format!("{}{suffix}", shortened(&of)), backup.spec.once_more(&suffix));
    copy.metadata.namespace = cluster.namespace();
    copy.metadata.labels = Some(labels::of_cluster(&cluster.name_any()));
    copy.metadata.owner_references = cluster.controller_owner_ref(&()).map(|owner| vec![owner]);
    copy.annotations_mut().insert(annotations::BACKUP_OF.to_owned(), of);
    copy.annotations_mut().insert(annotations::BEFORE.to_owned(), version.to_string());
    copy
}

/// The generation tells this upgrade from an earlier one to the same version, which was set back or undone by a restore.
fn suffix(cluster: &EtcdCluster, version: Version) -> String {
    format!("-before-{version}-g{}", cluster.metadata.generation.unwrap_or_default())
}

fn shortened(name: &str) -> &str {
    name.get(..LONGEST).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// The EtcdBackup of this name that a plan wants a copy of.
pub fn find<'a>(found: &'a [EtcdBackup], of: &Name) -> Option<&'a EtcdBackup> {
    found.iter().find(|backup| backup.name_any() == of.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1beta2::{BackupPolicy, ClusterRef, S3Source, Stores};
    use api::{EtcdBackupSpec, EtcdBackupStatus};
    use rstest::rstest;

    const NEXT: Version = Version::new(3, 6, 16);

    fn cluster() -> EtcdCluster {
        let mut cluster = EtcdCluster::new("db", api::EtcdClusterSpec::default());
        cluster.metadata.namespace = Some("prod".into());
        cluster.metadata.uid = Some("u1".into());
        cluster.metadata.generation = Some(4);
        cluster
    }

    fn backup(name: &str) -> EtcdBackup {
        let spec = EtcdBackupSpec {
            cluster_ref: Some(ClusterRef { name: "db".into() }),
            storage_type: "S3".into(),
            stores: Stores {
                s3: Some(S3Source { path: "bucket/db".into(), ..S3Source::default() }),
                ..Stores::default()
            },
            schedule: "0 3 * * *".into(),
            time_zone: "Europe/Berlin".into(),
            backup_policy: Some(BackupPolicy {
                timeout_in_second: 60,
                max_backups: 3,
                ..BackupPolicy::default()
            }),
            ..EtcdBackupSpec::default()
        };
        EtcdBackup::new(name, spec)
    }

    #[rstest]
    #[case::by_reference(|_: &mut EtcdBackup| {}, true)]
    #[case::by_its_service(|b: &mut EtcdBackup| endpoint(b, "http://db-client:2379"), true)]
    #[case::by_its_service_in_full(|b: &mut EtcdBackup| endpoint(b, "http://db-client.prod.svc:2379"), true)]
    #[case::of_another_namespace(|b: &mut EtcdBackup| endpoint(b, "http://db-client.test.svc:2379"), false)]
    #[case::another(|b: &mut EtcdBackup| endpoint(b, "http://db2-client:2379"), false)]
    #[case::suspended(|b: &mut EtcdBackup| b.spec.suspend = true, false)]
    fn who_names_the_cluster(#[case] change: fn(&mut EtcdBackup), #[case] named: bool) {
        let mut backup = backup("nightly");
        change(&mut backup);
        assert_eq!(seen(&cluster(), &[backup]).named.is_some(), named);
    }

    fn endpoint(backup: &mut EtcdBackup, url: &str) {
        backup.spec.cluster_ref = None;
        backup.spec.etcd_endpoints = vec![url.to_owned()];
    }

    #[test]
    fn of_several_one_that_works() {
        let mut works = backup("weekly");
        works.status = Some(EtcdBackupStatus { succeeded: true, ..EtcdBackupStatus::default() });
        assert_eq!(seen(&cluster(), &[backup("nightly"), works]).named, Some("weekly".into()));
    }

    #[test]
    fn a_copy_is_made_once_and_replaces_nothing() {
        let copy = copy(&cluster(), &backup("nightly"), NEXT);
        assert_eq!(copy.name_any(), "nightly-before-3.6.16-g4");
        assert_eq!(copy.spec.stores.s3.as_ref().unwrap().path, "bucket/db-before-3.6.16-g4");
        assert_eq!((copy.spec.schedule.as_str(), copy.spec.time_zone.as_str()), ("", ""));
        let policy = BackupPolicy { timeout_in_second: 60, ..BackupPolicy::default() };
        assert_eq!(copy.spec.backup_policy, Some(policy));
    }

    #[test]
    fn a_copy_is_asked_for_and_names_nothing_itself() {
        let copy = copy(&cluster(), &backup("nightly"), NEXT);
        let seen = seen(&cluster(), std::slice::from_ref(&copy));
        assert_eq!(seen.named, None);
        let [asked] = seen.asked.as_slice() else { panic!("{seen:?}") };
        assert_eq!((asked.of.as_str(), asked.version), ("nightly", NEXT));
        let mut edited = cluster();
        edited.metadata.generation = Some(5);
        assert!(super::seen(&edited, &[copy]).asked.is_empty(), "it is of before the spec was changed");
    }

    #[rstest]
    #[case(EtcdBackupStatus::default(), Check::Unknown("nobody has begun with it".into()))]
    #[case(EtcdBackupStatus { progress: Some(api::v1beta2::BackupProgress::default()), ..EtcdBackupStatus::default() }, Check::Running)]
    #[case(EtcdBackupStatus { reason: "no bucket".into(), ..EtcdBackupStatus::default() }, Check::Failed("no bucket".into()))]
    #[case(EtcdBackupStatus { succeeded: true, ..EtcdBackupStatus::default() }, Check::Passed)]
    fn what_became_of_it(#[case] status: EtcdBackupStatus, #[case] outcome: Check) {
        let mut copy = copy(&cluster(), &backup("nightly"), NEXT);
        copy.status = Some(status);
        assert_eq!(asked(&cluster(), &copy).unwrap().outcome, outcome);
    }
}
