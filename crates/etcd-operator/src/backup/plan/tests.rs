use api::v1beta2::{ClusterRef, S3Source, Stores};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;

use super::*;

const HOUR: i64 = 3600;

/// Minutes after the EtcdBackup was made.
fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
}

fn once() -> EtcdBackupSpec {
    EtcdBackupSpec {
        cluster_ref: Some(ClusterRef { name: "c".into() }),
        storage_type: "S3".into(),
        stores: Stores {
            s3: Some(S3Source { path: "b/k".into(), ..S3Source::default() }),
            ..Stores::default()
        },
        ..EtcdBackupSpec::default()
    }
}

fn hourly() -> EtcdBackupSpec {
    let policy = BackupPolicy { backup_interval_in_second: HOUR, ..BackupPolicy::default() };
    EtcdBackupSpec { backup_policy: Some(policy), ..once() }
}

fn fresh() -> EtcdBackupStatus {
    EtcdBackupStatus::default()
}

/// The backup of this slot was made.
fn good(slot: i64) -> EtcdBackupStatus {
    EtcdBackupStatus { succeeded: true, last_slot: Some(Time(at(slot))), ..EtcdBackupStatus::default() }
}

/// The last so many attempts failed, the last of them then.
fn failed(failures: i64, last: i64, before: EtcdBackupStatus) -> EtcdBackupStatus {
    EtcdBackupStatus {
        succeeded: false,
        reason: "no route".into(),
        failures,
        last_failure: Some(Time(at(last))),
        ..before
    }
}

fn planned_at(spec: &EtcdBackupSpec, status: &EtcdBackupStatus, now: Timestamp) -> Plan {
    plan(Facts { spec, status, created: at(0), running: false, now })
}

fn planned(spec: &EtcdBackupSpec, status: &EtcdBackupStatus, now: i64) -> Plan {
    planned_at(spec, status, at(now))
}

fn wait_until(minutes: i64) -> Plan {
    Plan::Wait { until: Some(at(minutes)) }
}

#[rstest]
#[case::at_once(once(), fresh(), 0, Plan::Run { slot: at(0) })]
#[case::however_late(once(), fresh(), 9000, Plan::Run { slot: at(0) })]
#[case::and_never_again(once(), good(0), 9000, Plan::Finished)]
#[case::nor_one_of_coreos(once(), EtcdBackupStatus { succeeded: true, ..fresh() }, 9000, Plan::Finished)]
#[case::nor_when_it_was_periodic(once(), good(120), 9000, Plan::Finished)]
#[case::the_first_of_many(hourly(), fresh(), 1, Plan::Run { slot: at(0) })]
#[case::then_the_next_slot(hourly(), good(0), 59, wait_until(60))]
#[case::on_the_dot(hourly(), good(0), 60, Plan::Run { slot: at(60) })]
#[case::missed_while_away(hourly(), good(60), 310, Plan::Run { slot: at(300) })]
#[case::made_once_for_all_that_were_missed(hourly(), good(300), 310, wait_until(360))]
#[case::made_for_a_slot_of_a_shorter_interval(hourly(), good(305), 310, wait_until(360))]
fn due(
    #[case] spec: EtcdBackupSpec,
    #[case] status: EtcdBackupStatus,
    #[case] now: i64,
    #[case] expected: Plan,
) {
    assert_eq!(planned(&spec, &status, now), expected);
}

#[test]
fn a_schedule_waits_for_its_first_time() {
    let spec = EtcdBackupSpec { schedule: "0 3 * * *".into(), ..once() };
    let Plan::Wait { until: Some(first) } = planned(&spec, &fresh(), 0) else { panic!("not a wait") };
    assert_eq!(planned_at(&spec, &fresh(), first), Plan::Run { slot: first });
    assert!(first.to_string().ends_with("T03:00:00Z"), "{first}");
}

#[rstest]
#[case::five_seconds(1, 5)]
#[case::doubled(3, 20)]
#[case::five_minutes_at_most(7, 300)]
#[case::and_never_more(4000, 300)]
fn failures_are_tried_again_later_and_later(#[case] failures: i64, #[case] seconds: i64) {
    let status = failed(failures, 60, good(0));
    let again = at(60).saturating_add(SignedDuration::from_secs(seconds)).unwrap();
    assert_eq!(planned(&hourly(), &status, 60), Plan::Retry { at: again });
    assert_eq!(planned_at(&hourly(), &status, again), Plan::Run { slot: at(60) });
}

#[test]
fn a_failed_one_shot_is_tried_again() {
    assert_eq!(planned(&once(), &failed(9, 1, fresh()), 2), Plan::Retry { at: at(6) });
}

#[test]
fn a_periodic_one_that_fails_for_long_makes_up_for_the_last_slot_alone() {
    let status = failed(9, 170, good(0));
    assert_eq!(planned(&hourly(), &status, 190), Plan::Run { slot: at(180) });
}

#[rstest]
#[case::suspended(|spec: &mut EtcdBackupSpec| spec.suspend = true, Plan::Suspended)]
#[case::tls(|spec: &mut EtcdBackupSpec| spec.client_tls_secret = "tls".into(), Plan::Refused(Refusal::Tls))]
#[case::nobody(|spec: &mut EtcdBackupSpec| spec.cluster_ref = None, Plan::Refused(Refusal::NoCluster))]
fn what_is_not_begun(#[case] edit: fn(&mut EtcdBackupSpec), #[case] expected: Plan) {
    let mut spec = hourly();
    edit(&mut spec);
    assert_eq!(planned(&spec, &fresh(), 0), expected);
}

#[test]
fn a_store_or_a_schedule_that_nobody_knows_is_refused_in_words() {
    let ftp = EtcdBackupSpec { storage_type: "FTP".into(), ..once() };
    let odd = EtcdBackupSpec { schedule: "at tea time".into(), ..once() };
    for (spec, reason, says) in
        [(ftp, "UnknownStore", "S3, ABS, GCS or Volume"), (odd, "UnknownSchedule", "five fields")]
    {
        let Plan::Refused(refusal) = planned(&spec, &fresh(), 0) else { panic!("{spec:?} was not refused") };
        assert_eq!(refusal.reason(), reason);
        assert!(refusal.to_string().contains(says), "{refusal}");
    }
}

#[test]
fn what_was_finished_stays_finished_whatever_the_spec_says_now() {
    let ftp = EtcdBackupSpec { storage_type: "FTP".into(), suspend: true, ..once() };
    assert_eq!(planned(&ftp, &good(0), 5), Plan::Finished);
}

#[test]
fn an_attempt_under_way_is_let_be() {
    let facts = Facts { spec: &hourly(), status: &fresh(), created: at(0), running: true, now: at(90) };
    assert_eq!(plan(facts), Plan::Running);
}

fn kept(owner: &str, slot: i64) -> Kept<i64> {
    Kept { owner: owner.into(), slot: at(slot), finished: at(slot + 1), what: slot }
}

#[rstest]
#[case(60, Some(60))]
#[case(0, Some(60))]
#[case(61, None)]
fn a_backup_that_was_made_is_found_by_slot_and_owner(#[case] slot: i64, #[case] expected: Option<i64>) {
    let found = [kept("us", 0), kept("us", 60), kept("them", 120)];
    assert_eq!(made(&found, "us", at(slot)).map(|one| one.what), expected);
}

#[rstest]
#[case::all(0, 0, &[])]
#[case::two(2, 0, &[60, 0])]
#[case::one(1, 0, &[120, 60, 0])]
#[case::more_than_there_are(9, 0, &[])]
#[case::young_ones(0, 2 * HOUR, &[60, 0])]
#[case::either(3, 2 * HOUR, &[60, 0])]
#[case::never_the_newest(0, 1, &[120, 60, 0])]
fn retention_is_by_owner_number_and_age(
    #[case] max_backups: i64,
    #[case] max_age_seconds: i64,
    #[case] expected: &[i64],
) {
    let policy = BackupPolicy { max_backups, max_age_seconds, ..BackupPolicy::default() };
    let found =
        [kept("us", 60), kept("them", 0), kept("us", 180), kept("us", 0), kept("us", 120), kept("them", 999)];
    let going: Vec<i64> = surplus(&found, "us", &policy, at(200)).iter().map(|one| one.what).collect();
    assert_eq!(going, expected);
}

#[test]
fn the_only_one_is_kept_however_old() {
    let policy = BackupPolicy { max_backups: 1, max_age_seconds: 1, ..BackupPolicy::default() };
    assert!(surplus(&[kept("us", 0)], "us", &policy, at(99_999)).is_empty());
}
