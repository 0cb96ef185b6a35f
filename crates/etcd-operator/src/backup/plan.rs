//! What to do about one EtcdBackup. Pure: no client, no clock.

use std::time::Duration;

use api::v1beta2::{BackupPolicy, NoStore};
use api::{EtcdBackupSpec, EtcdBackupStatus};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::timing::{Timing, TimingError};

/// The wait after the first failure; it doubles with each in a row.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// What is known of one EtcdBackup.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub spec: &'a EtcdBackupSpec,
    pub status: &'a EtcdBackupStatus,
    pub created: Timestamp,
    /// An attempt is under way in this process.
    pub running: bool,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// The one that was to be made was made.
    Finished,
    /// Nothing can be done before the spec is changed.
    Refused(Refusal),
    Suspended,
    /// An attempt is under way: let it.
    Running,
    /// Make the backup that was due at `slot`, unless the store shows that it was made.
    Run {
        slot: Timestamp,
    },
    /// The last attempt failed: the next is then.
    Retry {
        at: Timestamp,
    },
    /// The next one is due then.
    Wait {
        until: Option<Timestamp>,
    },
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    #[error(transparent)]
    Store(#[from] NoStore),
    #[error(transparent)]
    Timing(#[from] TimingError),
    #[error("clientTLSSecret is not built yet: back up a cluster without TLS, and take it out")]
    Tls,
    #[error("neither clusterRef nor etcdEndpoints says what to back up: write one of them")]
    NoCluster,
}

impl Refusal {
    /// Stable, for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Store(_) => "UnknownStore",
            Self::Timing(_) => "UnknownSchedule",
            Self::Tls => "TLSNotBuilt",
            Self::NoCluster => "NoCluster",
        }
    }
}

pub fn plan(facts: Facts) -> Plan {
    let Facts { spec, status, created, now, .. } = facts;
    let timing = match Timing::of(spec) {
        // Whatever became of the spec since: it was one backup, and it was made.
        Ok(Timing::Once) if status.succeeded || status.last_slot.is_some() => return Plan::Finished,
        Ok(timing) => timing,
        Err(error) => return Plan::Refused(error.into()),
    };
    if let Err(refusal) = check(spec) {
        return Plan::Refused(refusal);
    }
    if facts.running {
        return Plan::Running;
    }
    if spec.suspend {
        return Plan::Suspended;
    }
    let made = status.last_slot.as_ref().map(|slot| slot.0);
    match timing.due(created, now) {
        Some(slot) if made.is_none_or(|made| made < slot) => match retry(facts) {
            Some(at) if at > now => Plan::Retry { at },
            _ => Plan::Run { slot },
        },
        _ => Plan::Wait { until: timing.next(created, now) },
    }
}

fn check(spec: &EtcdBackupSpec) -> Result<(), Refusal> {
    spec.store()?;
    if !spec.client_tls_secret.is_empty() {
        return Err(Refusal::Tls);
    }
    if spec.cluster_ref.is_none() && spec.etcd_endpoints.is_empty() {
        return Err(Refusal::NoCluster);
    }
    Ok(())
}

/// When to try again after failures.
fn retry(facts: Facts) -> Option<Timestamp> {
    let status = facts.status;
    let failed = status.last_failure.as_ref().filter(|_| status.failures > 0)?;
    Some(failed.0.saturating_add(wait(status.failures)).unwrap_or(facts.now))
}

fn wait(failures: i64) -> SignedDuration {
    let doubled = 2_u32.saturating_pow(u32::try_from(failures - 1).unwrap_or_default());
    let wait = FIRST_RETRY.saturating_mul(doubled).min(LONGEST_RETRY);
    SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX)
}

/// A good backup in the store: its manifest was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept<T> {
    pub owner: String,
    pub slot: Timestamp,
    pub finished: Timestamp,
    pub what: T,
}

/// The backup that was made for this slot already, by a process that did not live to say so.
pub fn made<'a, T>(found: &'a [Kept<T>], owner: &str, slot: Timestamp) -> Option<&'a Kept<T>> {
    let ours = found.iter().filter(|one| one.owner == owner && one.slot >= slot);
    ours.max_by_key(|one| (one.slot, one.finished))
}

/// Those that the policy no longer keeps: of this EtcdBackup alone, whatever else lies beside them, and never its
/// newest.
pub fn surplus<'a, T>(
    found: &'a [Kept<T>],
    owner: &str,
    policy: &BackupPolicy,
    now: Timestamp,
) -> Vec<&'a Kept<T>> {
    let mut ours: Vec<_> = found.iter().filter(|one| one.owner == owner).collect();
    ours.sort_by_key(|one| std::cmp::Reverse((one.slot, one.finished)));
    let most = policy.max_backups().unwrap_or(usize::MAX);
    let oldest = policy.max_age().and_then(|age| now.checked_sub(SignedDuration::try_from(age).ok()?).ok());
    let surplus = |(nth, one): &(usize, &Kept<T>)| {
        *nth > 0 && (*nth >= most || oldest.is_some_and(|oldest| one.finished < oldest))
    };
    ours.into_iter().enumerate().filter(surplus).map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests;
