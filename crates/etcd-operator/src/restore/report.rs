//! What status says of a restore: coreos' fields, and conditions.

use api::conditions::{self, Condition, ConditionStatus};
use api::{EtcdRestore, EtcdRestoreStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::look::LookError;
use super::plan;
use crate::tenure::Tenure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Verifying,
    Saving,
    Seeding,
    Filling,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Verifying => "Verifying",
            Self::Saving => "Saving",
            Self::Seeding => "Seeding",
            Self::Filling => "Filling",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// One that ended never begins again.
pub fn ended(restore: &EtcdRestore) -> bool {
    let phase = restore.status.as_ref().map(|status| status.phase.as_str());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// On its way, or at its good end.
pub fn at(restore: &EtcdRestore, phase: Phase, message: &str) -> EtcdRestoreStatus {
    composed(restore, phase, phase.name(), message)
}

/// Not yet on its way: what hinders it may pass, and it is tried again.
pub fn hindered(restore: &EtcdRestore, reason: &str, message: &str) -> EtcdRestoreStatus {
    composed(restore, Phase::Verifying, reason, &format!("tried again: {message}"))
}

/// Says that the EtcdCluster was asked, if that was not said yet.
pub fn requested(restore: &EtcdRestore) -> EtcdRestoreStatus {
    let mut status = restore.status.clone().unwrap_or_default();
    status.requested = status.requested.or(Some(Time(Timestamp::now())));
    status
}

pub fn failed(restore: &EtcdRestore, reason: &str, message: &str) -> EtcdRestoreStatus {
    EtcdRestoreStatus { reason: message.to_owned(), ..composed(restore, Phase::Failed, reason, message) }
}

fn composed(restore: &EtcdRestore, phase: Phase, reason: &str, message: &str) -> EtcdRestoreStatus {
    let mut status = restore.status.clone().unwrap_or_default();
    let (now, generation) = (Timestamp::now(), restore.metadata.generation);
    let over = matches!(phase, Phase::Succeeded | Phase::Failed);
    let truth = |holds: bool| if holds { ConditionStatus::True } else { ConditionStatus::False };
    for (type_, holds) in
        [("Ready", phase == Phase::Succeeded), ("Progressing", !over), ("Stalled", phase == Phase::Failed)]
    {
        let condition = Condition::new(type_, truth(holds), reason, message).observed(generation);
        conditions::set(&mut status.conditions, condition, now);
    }
    status.succeeded = phase == Phase::Succeeded;
    status.reason = String::new();
    phase.name().clone_into(&mut status.phase);
    status.started = status.started.or(Some(Time(now)));
    status.finished = if over { status.finished.or(Some(Time(now))) } else { None };
    status.observed_generation = generation;
    status
}

/// What becomes of what this member still has; the backup ends at `revision`.
pub fn survivor(
    name: &str,
    revision: i64,
    saved: &Result<(plan::Survivor, String), LookError>,
) -> api::v1beta2::Survivor {
    let mut survivor = api::v1beta2::Survivor { member: name.to_owned(), ..Default::default() };
    match saved {
        Ok((held, saved_to)) => {
            survivor.revision = held.revision;
            survivor.dropped = (held.revision - revision).max(0);
            survivor.saved_to.clone_from(saved_to);
        }
        Err(error) => survivor.not_saved = error.to_string(),
    }
    survivor
}

/// Writes it if anything in it is new, on condition that nobody wrote the object since it was read.
pub async fn write(
    tenure: &Tenure,
    restore: &EtcdRestore,
    status: EtcdRestoreStatus,
) -> Result<EtcdRestore, kube::Error> {
    let namespace = restore.namespace().unwrap_or_default();
    let api: Api<EtcdRestore> = Api::namespaced(tenure.client.clone(), &namespace);
    let wanted = EtcdRestore { status: Some(status), ..restore.clone() };
    api.replace_status(&wanted.name_any(), &PostParams::default(), &wanted).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_never_a_success_and_says_why() {
        let mut restore = EtcdRestore::default();
        restore.status = Some(at(&restore, Phase::Verifying, "reading"));
        assert!(!ended(&restore));
        restore.status = Some(failed(&restore, "BackupDamaged", "page 7 is damaged"));
        assert!(ended(&restore));
        let status = restore.status.unwrap();
        assert!(!status.succeeded && status.finished.is_some());
        assert_eq!((status.phase.as_str(), status.reason.as_str()), ("Failed", "page 7 is damaged"));
        let stalled = conditions::find(&status.conditions, "Stalled").unwrap();
        assert_eq!((stalled.status, stalled.reason.as_str()), (ConditionStatus::True, "BackupDamaged"));
    }

    #[test]
    fn what_hinders_it_is_said_and_is_no_end() {
        let mut restore = EtcdRestore::default();
        restore.status = Some(hindered(&restore, "SecretUnreadable", "Secret \"aws\" cannot be read"));
        assert!(!ended(&restore));
        assert_eq!(
            restore.status,
            Some(hindered(&restore, "SecretUnreadable", "Secret \"aws\" cannot be read"))
        );
        let status = restore.status.unwrap();
        let progressing = conditions::find(&status.conditions, "Progressing").unwrap();
        assert_eq!(progressing.reason, "SecretUnreadable");
        assert!(progressing.message.contains("tried again: Secret"), "{}", progressing.message);
    }

    #[test]
    fn a_survivor_was_saved_or_it_is_said_why_not() {
        let held = plan::Survivor { name: "c-1".into(), revision: 130 };
        let saved = survivor("c-1", 100, &Ok((held, "bucket/b.survivor-c-1".into())));
        assert_eq!((saved.revision, saved.dropped, saved.not_saved.as_str()), (130, 30, ""));
        assert_eq!(saved.saved_to, "bucket/b.survivor-c-1");
        let source = snapshot::SaveError::Damaged(snapshot::Damage::Empty);
        let lost = survivor("c-1", 100, &Err(LookError::Survivor { member: "c-1".into(), source }));
        assert!(lost.saved_to.is_empty() && lost.not_saved.contains("c-1 still has"), "{lost:?}");
    }

    #[test]
    fn a_success_is_told_in_both_languages() {
        let restore = EtcdRestore::default();
        let status = at(&restore, Phase::Succeeded, "full");
        assert!(status.succeeded && status.reason.is_empty());
        assert_eq!(conditions::find(&status.conditions, "Ready").unwrap().status, ConditionStatus::True);
    }
}
