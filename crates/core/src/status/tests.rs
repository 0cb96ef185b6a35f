//! What reports say, in tables.

use rstest::rstest;

use super::*;
use crate::observation::Alarm;
use crate::plan::plan;
use crate::rules::scene::{NOW, Scene, healthy};
use crate::time::Moment;

fn reported(scene: &Scene) -> Report {
    plan(&scene.spec, &scene.seen, NOW).report
}

/// `Kind=Status/reason`, in the order of the report.
fn said(report: &Report) -> Vec<String> {
    let conditions = report.conditions.iter();
    conditions.map(|c| format!("{}={:?}/{}", c.kind.as_str(), c.status, c.reason)).collect()
}

#[rstest]
#[case::steady(|_: &mut Scene| {}, &["Available=True/Cluster available", "Ready=True/MembersReady", "Progressing=False/MembersReady"])]
#[case::scaling(|s: &mut Scene| s.spec.size = 4, &[
    "Available=True/Cluster available", "Scaling=True/Scaling up", "Ready=False/Scaling", "Progressing=True/Scaling",
])]
#[case::upgrading(|s: &mut Scene| s.want("3.5.17"), &[
    "Available=True/Cluster available", "Upgrading=True/Cluster upgrading", "Ready=False/Upgrading",
    "Progressing=True/Upgrading",
])]
#[case::refused(|s: &mut Scene| s.want("3.4.15"), &[
    "SpecInvalid=True/SpecInvalid", "Available=True/Cluster available", "Degraded=True/Upgrade",
    "Ready=False/Upgrading", "Progressing=False/Upgrading",
])]
#[case::silent(|s: &mut Scene| s.silence("b", 10), &[
    "Available=True/Cluster available", "Recovering=True/Recovering", "Ready=False/Reconciling",
    "Progressing=True/Reconciling",
])]
#[case::lost(|s: &mut Scene| { s.lose_pod("b"); s.lose_pod("c"); s.dark(); }, &[
    "Available=False/Cluster unavailable", "QuorumLost=True/QuorumLost", "Ready=False/QuorumLost",
    "Progressing=True/QuorumLost",
])]
#[case::unknown(|s: &mut Scene| s.dark(), &[
    "Available=Unknown/Cluster unknown", "QuorumLost=Unknown/NobodyAnswers", "Ready=False/Unknown",
    "Progressing=True/Unknown",
])]
#[case::paused(|s: &mut Scene| s.spec.paused = true, &[
    "Paused=True/ControlPaused", "Available=True/Cluster available", "Ready=False/HandsOff",
    "Progressing=False/HandsOff",
])]
#[case::tls(|s: &mut Scene| s.spec.tls_requested = true, &[
    "SpecInvalid=True/SpecInvalid", "Available=True/Cluster available", "Ready=False/HandsOff",
    "Progressing=False/HandsOff",
])]
#[case::rival(|s: &mut Scene| { s.seen.rival = Some("it runs".into()); s.seen.recorded.cluster = None; }, &[
    "Degraded=True/Rival", "Ready=False/Rival", "Progressing=False/Rival",
])]
#[case::no_space(|s: &mut Scene| alarmed(s, AlarmKind::NoSpace), &[
    "Available=True/Cluster available", "Alarm=True/NoSpace", "Ready=True/MembersReady", "Progressing=False/MembersReady",
])]
#[case::corrupt(|s: &mut Scene| alarmed(s, AlarmKind::Corrupt), &[
    "Available=True/Cluster available", "Alarm=True/Corrupt", "Ready=True/MembersReady", "Progressing=False/MembersReady",
])]
#[case::nearly_full(|s: &mut Scene| s.status("b").db_size = 80, &[
    "Available=True/Cluster available", "Alarm=True/QuotaNearlyUsed", "Ready=True/MembersReady",
    "Progressing=False/MembersReady",
])]
fn conditions_of(#[case] change: fn(&mut Scene), #[case] conditions: &[&str]) {
    let mut scene = healthy("abc");
    change(&mut scene);
    assert_eq!(said(&reported(&scene)), conditions);
}

/// Growing from one to two without learners: etcd answers again as soon as the second has started.
#[rstest]
#[case::just_now(1, "Available=True/Cluster available")]
#[case::in_vain(20, "Available=Unknown/Cluster unknown")]
fn a_second_voter_that_starts_turns_nothing(#[case] seconds: u64, #[case] says: &str) {
    let mut scene = healthy("a");
    scene.list("b");
    scene.seen.hearsay[0].started = true;
    scene.seen.heard.insert("b".into(), Moment(NOW.0 - seconds * 1000));
    scene.blind();
    assert_eq!(said(&reported(&scene))[0], says);
}

/// Before there is a cluster, what waits for a person is said as well.
#[rstest]
#[case::starting(|_: &mut Scene| {}, &["Ready=False/Creating", "Progressing=True/Creating"])]
#[case::no_such_image(|s: &mut Scene| s.pod("a").waiting = Some("ImagePullBackOff".into()), &[
    "Degraded=True/Bootstrap", "Ready=False/CannotBegin", "Progressing=False/CannotBegin",
])]
#[case::two_clusters(|s: &mut Scene| {
    *s = healthy("ab");
    s.seen.recorded = crate::observation::Recorded::default();
    s.status("b").cluster = crate::ClusterId(2);
}, &["Degraded=True/Bootstrap", "Ready=False/CannotBegin", "Progressing=False/CannotBegin"])]
#[case::no_such_version(|s: &mut Scene| s.want("2.3.8"), &[
    "SpecInvalid=True/SpecInvalid", "Ready=False/SpecInvalid", "Progressing=False/SpecInvalid",
])]
fn conditions_before_it_began(#[case] change: fn(&mut Scene), #[case] conditions: &[&str]) {
    let mut scene = healthy("a");
    scene.seen.recorded.cluster = None;
    scene.silence("a", 1);
    scene.dark();
    change(&mut scene);
    assert_eq!(said(&reported(&scene)), conditions);
}

fn alarmed(scene: &mut Scene, kind: AlarmKind) {
    let member = scene.member("b").id;
    scene.seen.alarms = Read::Known(vec![Alarm { member, kind }]);
}

fn message(report: &Report, kind: ConditionKind) -> &str {
    &report.conditions.iter().find(|condition| condition.kind == kind).unwrap().message
}

#[test]
fn the_book_reads_its_own_words() {
    let mut scene = healthy("abc");
    scene.want("3.5.17");
    scene.spec.size = 4;
    let report = reported(&scene);
    assert_eq!(message(&report, ConditionKind::Upgrading), "upgrading to 3.5.17");
    assert_eq!(message(&report, ConditionKind::Scaling), "Current cluster size: 3, desired cluster size: 4");
    assert_eq!(
        (report.current_version, report.target_version),
        (Some(Version::new(3, 5, 16)), Some(Version::new(3, 5, 17)))
    );
    assert_eq!((report.phase, report.size, report.leader), (Phase::Running, 3, Some("a".into())));
}

#[test]
fn hops_and_small_clusters_are_announced() {
    let mut scene = healthy("a");
    scene.want("3.6.16");
    let report = reported(&scene);
    assert_eq!(
        message(&report, ConditionKind::Upgrading),
        "upgrading to 3.6.16, through 3.5.35 first; a cluster of 1 does not answer while a member restarts"
    );
}

#[test]
fn current_version_is_the_lowest_and_outlasts_silence() {
    let mut scene = healthy("abc");
    scene.want("3.5.17");
    scene.run_one("a", "3.5.17");
    scene.run_one("b", "3.5.17");
    scene.silence("c", 1);
    assert_eq!(reported(&scene).current_version, Some(Version::new(3, 5, 16)));
}

#[test]
fn learners_and_silent_members_are_not_ready() {
    let mut scene = healthy("abc");
    scene.spec.size = 4;
    scene.learner("d");
    scene.silence("b", 1);
    let report = reported(&scene);
    assert_eq!(report.ready, ["a", "c"].map(Name::from));
    assert_eq!(report.unready, ["b", "d"].map(Name::from));
    assert_eq!(report.voters, ["a", "b", "c"].map(Name::from));
}

#[test]
fn a_lost_quorum_shows_within_ten_seconds_and_warns() {
    let mut scene = healthy("abc");
    scene.blind();
    scene.seen.leaderless_since = Some(Moment(NOW.0 - 5000));
    let report = reported(&scene);
    let lost = report.conditions.iter().find(|c| c.kind == ConditionKind::QuorumLost).unwrap();
    assert_eq!((lost.status, lost.announce), (Truth::True, Some(Severity::Warning)));
    assert_eq!(report.reason, lost.message);
}

#[test]
fn a_new_cluster_with_a_bad_version_fails_with_the_reason() {
    let mut scene = healthy("");
    scene.seen.recorded = crate::observation::Recorded::default();
    scene.dark();
    scene.want("2.3.8");
    let report = reported(&scene);
    assert_eq!(report.phase, Phase::Failed);
    assert!(report.reason.contains("2.3.8 is not known"), "{}", report.reason);
}
