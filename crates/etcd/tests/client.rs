//! The client against a fake member: deadlines, identity, old versions, and what errors mean.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use domain::{Alarm, AlarmKind, ClusterId, MemberId, Version};
use etcd::fake::{Beliefs, Fake, Reaction};
use etcd::{Error, Expect, Freshness, Member};
use rstest::rstest;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};
use tonic::Code;

const V3_1: Version = Version::new(3, 1, 10);
const V3_3: Version = Version::new(3, 3, 12);
const V3_5: Version = Version::new(3, 5, 16);
const V3_6: Version = Version::new(3, 6, 16);

async fn fake(version: Version) -> (Fake, Member) {
    let fake = Fake::start(Beliefs::single(version)).await.unwrap();
    let expect = fake.beliefs().identity.into();
    let member = Member::connect(fake.address(), expect).unwrap();
    (fake, member)
}

fn refuse(code: Code, words: &str) -> Reaction {
    Reaction::Refuse(code, words.into())
}

#[rstest]
#[case("10.0.0.1", false)]
#[case("http://10.0.0.1:2379", false)]
#[case("10.0.0.1:2379/x", false)]
#[case("no spaces:2379", false)]
#[case("10.0.0.1:2379", true)]
#[case("[::1]:2379", true)]
#[case("a.b.default.svc:2379", true)]
#[tokio::test]
async fn takes_host_and_port(#[case] address: &str, #[case] good: bool) {
    let member = Member::connect(address, Expect::default());
    assert_eq!(member.is_ok(), good, "{member:?}");
}

#[tokio::test]
async fn a_status_says_what_its_version_says() {
    let (_fake, old) = fake(V3_1).await;
    let status = old.status().await.unwrap();
    assert_eq!((status.version, status.leader), (V3_1, Some(MemberId(0xa))));
    assert_eq!((status.applied_index, status.db_size_in_use, status.quota), (None, None, None));

    let (fake, new) = fake_without_leader(V3_6).await;
    let status = new.status().await.unwrap();
    assert_eq!((status.leader, status.errors.len()), (None, 1));
    assert_eq!(status.applied_index, Some(fake.beliefs().raft_index));
    assert_eq!(status.quota, Some(2 << 30));
}

async fn fake_without_leader(version: Version) -> (Fake, Member) {
    let (fake, member) = fake(version).await;
    fake.set(|beliefs| beliefs.leader = None);
    (fake, member)
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let member = Member::connect(address, Expect::default()).unwrap();
    let error = member.status().await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable(why) if why.contains("refused")), "{error:?}");
    assert!(matches!(member.health().await, Err(Error::Unreachable(_))));
}

#[tokio::test]
async fn a_member_that_goes_away_and_comes_back_is_found_again() {
    let (first, member) = fake(V3_5).await;
    let address = first.address();
    member.status().await.unwrap();
    first.stop().await.unwrap();
    assert!(matches!(member.status().await, Err(Error::Unreachable(_))));
    let _second = Fake::start_at(address, Beliefs::single(V3_5)).await.unwrap();
    member.status().await.unwrap();
}

#[rstest]
#[case::accepts_and_is_silent(true)]
#[case::hangs_in_the_call(false)]
#[tokio::test]
async fn every_call_ends_at_its_deadline(#[case] silent: bool) {
    let (fake, member) = fake(V3_5).await;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let member = if silent {
        Member::connect(port.local_addr().unwrap(), Expect::default()).unwrap()
    } else {
        for rpc in ["Status", "Range", "Put", "HashKV", "Snapshot"] {
            fake.script(rpc, vec![Reaction::Hang; 10]);
        }
        member
    }
    .with_deadline(Duration::from_millis(100));
    let began = Instant::now();
    assert_eq!(member.status().await, Err(Error::TimedOut));
    assert_eq!(member.health().await, Err(Error::TimedOut));
    assert_eq!(member.members().await, Err(Error::TimedOut));
    assert_eq!(member.put("a", "b").await, Err(Error::TimedOut));
    assert_eq!(member.remove_member(MemberId(1)).await, Err(Error::TimedOut));
    assert_eq!(member.hash_kv(1).await, Err(Error::TimedOut));
    assert_eq!(member.snapshot(Freshness::AsIs).await.unwrap_err(), Error::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn answers_of_others_are_not_taken() {
    let (fake, member) = fake(V3_5).await;
    let found = fake.beliefs().identity;
    for expect in [
        Expect { cluster: Some(ClusterId(1)), member: None },
        Expect { cluster: Some(found.cluster), member: Some(MemberId(1)) },
    ] {
        let wrong = Error::WrongIdentity { expected: expect, found };
        let member = member.expecting(expect);
        assert_eq!(member.status().await, Err(wrong.clone()));
        assert_eq!(member.health().await, Err(wrong.clone()));
        assert_eq!(member.members().await, Err(wrong.clone()));
        assert_eq!(member.hearsay().await, Err(wrong.clone()));
        assert_eq!(member.alarms().await, Err(wrong.clone()));
        assert_eq!(member.hash_kv(1).await, Err(wrong.clone()));
        assert_eq!(member.get("a").await, Err(wrong.clone()));
    }
}

#[tokio::test]
async fn nothing_is_changed_in_somebody_elses_cluster() {
    let (fake, member) = fake(V3_5).await;
    let before = fake.beliefs().members;
    let member = member.expecting(Expect { cluster: Some(ClusterId(1)), member: None });
    let id = MemberId(0xa);
    let alarm = Alarm { member: id, kind: AlarmKind::NoSpace };
    let wrong = |error| matches!(error, Error::WrongIdentity { .. });
    assert!(wrong(member.add_member(vec!["http://b:2380".into()], false).await.unwrap_err()));
    assert!(wrong(member.remove_member(id).await.unwrap_err()));
    assert!(wrong(member.promote(id).await.unwrap_err()));
    assert!(wrong(member.move_leader(id).await.unwrap_err()));
    assert!(wrong(member.disarm(alarm).await.unwrap_err()));
    assert!(wrong(member.defragment().await.unwrap_err()));
    assert!(wrong(member.snapshot(Freshness::AsIs).await.unwrap_err()));
    assert!(wrong(member.snapshot(Freshness::Proven).await.unwrap_err()));
    assert_eq!(fake.beliefs().members, before);
    assert!(fake.calls().iter().all(|call| matches!(*call, "Status" | "Range")), "{:?}", fake.calls());
}

#[tokio::test]
async fn a_list_is_taken_only_after_a_linearizable_read() {
    let (fake, member) = fake(V3_1).await;
    assert_eq!(member.members().await.unwrap(), fake.beliefs().members);
    assert_eq!(fake.calls(), ["Range", "MemberList"]);

    fake.script("Range", [refuse(Code::Unavailable, "etcdserver: request timed out")]);
    assert_eq!(member.members().await, Err(Error::TimedOut));
    assert_eq!(fake.calls(), ["Range", "MemberList", "Range"]);
}

#[tokio::test]
async fn without_a_leader_only_hearsay_is_left() {
    let (fake, member) = fake_without_leader(V3_5).await;
    assert_eq!(member.health().await, Err(Error::NoLeader));
    assert_eq!(member.members().await, Err(Error::NoLeader));
    assert_eq!(member.alarms().await, Err(Error::NoLeader));
    assert_eq!(member.put("a", "b").await, Err(Error::NoLeader));
    assert_eq!(member.hearsay().await.unwrap(), fake.beliefs().members);
    member.snapshot(Freshness::AsIs).await.unwrap();
    assert_eq!(member.snapshot(Freshness::Proven).await.unwrap_err(), Error::NoLeader);
}

#[tokio::test]
async fn a_refused_user_proves_health_all_the_same() {
    let (fake, member) = fake(V3_5).await;
    fake.script("Range", [refuse(Code::InvalidArgument, "etcdserver: user name is empty")]);
    member.health().await.unwrap();
    fake.script("Put", [refuse(Code::PermissionDenied, "etcdserver: permission denied")]);
    assert!(matches!(member.put("a", "b").await, Err(Error::Denied(_))));
}

#[tokio::test]
async fn members_come_and_go() {
    let (fake, member) = fake(V3_5).await;
    let url = || vec!["http://b:2380".to_owned()];
    let added = member.add_member(url(), true).await.unwrap();
    assert!(added.learner && added.name.is_empty());
    assert_eq!(member.add_member(url(), true).await, Err(Error::PeerUrlTaken));
    assert_eq!(member.move_leader(added.id).await, Err(Error::NotAVoter));

    let words = "etcdserver: can only promote a learner member which is in sync with leader";
    fake.script("MemberPromote", [refuse(Code::FailedPrecondition, words)]);
    let error = member.promote(added.id).await.unwrap_err();
    assert!(error == Error::LearnerNotReady && error.is_wait());
    member.promote(added.id).await.unwrap();
    assert_eq!(member.promote(added.id).await, Err(Error::NotALearner));

    member.move_leader(added.id).await.unwrap();
    assert_eq!(member.move_leader(added.id).await, Err(Error::NotLeader));
    member.remove_member(added.id).await.unwrap();
    assert_eq!(member.remove_member(added.id).await, Err(Error::MemberNotFound));
}

#[tokio::test]
async fn an_unhealthy_cluster_is_a_wait() {
    let (fake, member) = fake(V3_5).await;
    fake.script("MemberAdd", [refuse(Code::Unavailable, "etcdserver: unhealthy cluster")]);
    let error = member.add_member(vec!["http://b:2380".into()], false).await.unwrap_err();
    assert!(error == Error::UnhealthyCluster && error.is_wait() && !error.outcome_unknown());
    member.add_member(vec!["http://b:2380".into()], false).await.unwrap();
}

#[tokio::test]
async fn a_change_that_timed_out_may_have_been_made() {
    let (fake, member) = fake(V3_5).await;
    let words = "etcdserver: request timed out".into();
    fake.script("MemberAdd", [Reaction::DoAndRefuse(Code::Unavailable, words)]);
    let error = member.add_member(vec!["http://b:2380".into()], false).await.unwrap_err();
    assert!(error.outcome_unknown());
    assert_eq!(member.members().await.unwrap().len(), 2);
}

#[tokio::test]
async fn old_versions_say_what_they_cannot_do() {
    let (fake, member) = fake(V3_1).await;
    let id = MemberId(0xa);
    assert_eq!(member.promote(id).await, Err(Error::Unsupported));
    assert_eq!(member.move_leader(id).await, Err(Error::Unsupported));
    assert_eq!(member.hash_kv(1).await, Err(Error::Unsupported));
    fake.set(|beliefs| beliefs.version = V3_3);
    // It would add a voter without a word.
    assert_eq!(member.add_member(vec!["http://b:2380".into()], true).await, Err(Error::Unsupported));
    assert_eq!(fake.beliefs().members.len(), 1);
    member.hash_kv(1).await.unwrap();
    assert_eq!(member.hash_kv(9).await, Err(Error::FutureRevision));
}

#[tokio::test]
async fn a_learner_serves_its_status_alone() {
    let (fake, member) = fake(V3_5).await;
    fake.set(|beliefs| beliefs.learner = true);
    assert!(member.status().await.unwrap().learner);
    assert_eq!(member.health().await, Err(Error::AskedLearner));
    assert_eq!(member.members().await, Err(Error::AskedLearner));
    assert_eq!(member.snapshot(Freshness::Proven).await.unwrap_err(), Error::AskedLearner);
}

#[tokio::test]
async fn alarms_are_read_and_disarmed() {
    let (fake, member) = fake(V3_5).await;
    let alarm = |kind| Alarm { member: MemberId(0xa), kind };
    let both = vec![alarm(AlarmKind::NoSpace), alarm(AlarmKind::Corrupt)];
    fake.set(|beliefs| beliefs.alarms = both.clone());
    assert_eq!(member.alarms().await.unwrap(), both);
    member.disarm(both[0]).await.unwrap();
    assert_eq!(member.alarms().await.unwrap(), both[1..]);
}

#[tokio::test]
async fn a_snapshot_that_ends_early_is_an_error() {
    let (fake, member) = fake(V3_5).await;
    fake.set(|beliefs| beliefs.snapshot = vec!["pages".into(), "sum".into()]);
    let mut snapshot = member.snapshot(Freshness::Proven).await.unwrap();
    assert_eq!(snapshot.next().await.unwrap().unwrap(), "pages");
    assert_eq!(snapshot.next().await.unwrap().unwrap(), "sum");
    assert_eq!(snapshot.next().await.unwrap(), None);

    fake.set(|beliefs| beliefs.snapshot_cut = 1);
    let mut snapshot = member.snapshot(Freshness::Proven).await.unwrap();
    snapshot.next().await.unwrap();
    snapshot.next().await.unwrap();
    assert!(matches!(snapshot.next().await, Err(Error::BadAnswer(_))));
}
