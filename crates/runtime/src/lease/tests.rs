use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use prometheus_client::metrics::gauge::Gauge;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::record::{Seen, Verdict, claim, released};
use super::{Config, Election, Identity, Leadership, Timing};
use crate::testing::{FakeApi, Fault, Line};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/op";
const LEASE: Duration = Duration::from_secs(15);

fn config(pod: &str) -> Config {
    Config {
        namespace: "ns".into(),
        name: "op".into(),
        identity: Identity::new(pod, None),
        timing: Timing::default(),
        owner: None,
    }
}

struct Candidate {
    election: Election,
    line: Line,
    leading: Gauge,
    holder: String,
}

fn start(api: &FakeApi, config: Config) -> Candidate {
    let (line, leading) = (Line::default(), Gauge::default());
    let holder = config.identity.holder().to_owned();
    let election = Election::start(api.client(&line), config, leading.clone());
    Candidate { election, line, leading, holder }
}

async fn acquired(candidate: &Candidate, within: Duration) -> Leadership {
    timeout(within, candidate.election.acquired()).await.expect("leads in time").expect("not stopped")
}

fn stored(api: &FakeApi) -> LeaseSpec {
    let lease: Lease = serde_json::from_value(api.get(PATH).expect("a lease")).unwrap();
    lease.spec.unwrap()
}

fn lease(holder: &str, renewed: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(renewed)),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }),
    }
}

fn hours(hours: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + hours * 3600).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_record_is_judged_by_when_we_saw_it_change_whatever_its_clock_says() {
    let me = Identity::new("me", None);
    for renewed in [hours(-1000), hours(0), hours(1000)] {
        let seen = Seen::update(None, lease("other", renewed), Instant::now());
        let at = |after| seen.verdict(&me, LEASE, Instant::now() + after);
        assert_eq!(at(Duration::ZERO), Verdict::HeldBy("other".into()));
        assert_eq!(at(LEASE.checked_sub(Duration::from_millis(1)).unwrap()), Verdict::HeldBy("other".into()));
        assert_eq!(at(LEASE), Verdict::Free);
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_change_of_the_record_is_a_sign_of_life() {
    let (me, began) = (Identity::new("me", None), Instant::now());
    let seen = Seen::update(None, lease("other", hours(0)), began);
    let mut touched = lease("other", hours(0));
    touched.metadata.resource_version = Some("8".into());
    let seen = Seen::update(Some(seen), touched, began + LEASE / 2);
    assert_eq!(
        seen.verdict(&me, LEASE, began + LEASE),
        Verdict::Free,
        "metadata changed, the holder did not"
    );

    // Renewed with a clock that went backwards.
    let seen = Seen::update(Some(seen), lease("other", hours(-5)), began + LEASE);
    assert_eq!(seen.verdict(&me, LEASE, began + LEASE + LEASE / 2), Verdict::HeldBy("other".into()));
}

#[tokio::test(start_paused = true)]
async fn released_and_own_records_may_be_taken() {
    let now = Instant::now();
    let in_pod = Identity::new("pod", Some("uid"));
    let before = Identity::new("pod", Some("uid"));
    let seen = Seen::update(None, lease(before.holder(), hours(0)), now);
    assert_eq!(seen.verdict(&in_pod, LEASE, now), Verdict::Ours, "our pod's earlier container");
    assert_ne!(seen.verdict(&Identity::new("pod", Some("new")), LEASE, now), Verdict::Ours);
    assert_ne!(seen.verdict(&Identity::new("pod", None), LEASE, now), Verdict::Ours);

    let seen = Seen::update(None, released(&seen, hours(1)), now);
    assert_eq!(seen.verdict(&Identity::new("else", None), LEASE, now), Verdict::Free);
    assert_eq!(seen.lease.metadata.resource_version.as_deref(), Some("7"), "the precondition is kept");
}

#[tokio::test(start_paused = true)]
async fn a_claim_counts_transitions_and_keeps_the_acquire_time_on_renewal() {
    let config = config("me");
    let first = claim(None, &config, hours(0)).spec.unwrap();
    assert_eq!(first.lease_transitions, Some(0));

    let seen = Seen::update(None, lease("other", hours(0)), Instant::now());
    let taken = claim(Some(&seen), &config, hours(1));
    assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(taken.spec.as_ref().unwrap().lease_transitions, Some(5));

    let seen = Seen::update(None, taken, Instant::now());
    let renewed = claim(Some(&seen), &config, hours(2)).spec.unwrap();
    assert_eq!(renewed.lease_transitions, Some(5));
    assert_eq!(renewed.acquire_time, Some(MicroTime(hours(1))));
    assert_eq!(renewed.renew_time, Some(MicroTime(hours(2))));
}

#[tokio::test(start_paused = true)]
async fn whoever_leads_owns_the_lease() {
    let owner = |name: &str| OwnerReference { name: name.into(), ..OwnerReference::default() };
    let owned = |name: &str| Config { owner: Some(owner(name)), ..config("me") };
    let first = claim(None, &owned("mine"), hours(0));
    assert_eq!(first.metadata.owner_references, Some(vec![owner("mine")]));
    let seen = Seen::update(None, first, Instant::now());
    let taken = claim(Some(&seen), &owned("yours"), hours(1)).metadata.owner_references;
    assert_eq!(taken, Some(vec![owner("yours")]));
    let unknown = claim(Some(&seen), &config("me"), hours(1)).metadata.owner_references;
    assert_eq!(unknown, Some(vec![owner("mine")]), "what cannot be told is left as it is");
}

#[test]
fn identities_of_one_pod_differ() {
    let identity = Identity::new("op-7d9f", None);
    assert!(identity.holder().starts_with("op-7d9f_"));
    assert_ne!(identity.holder(), Identity::new("op-7d9f", None).holder());
}

#[test]
fn timing_that_lets_two_lead_is_refused() {
    let seconds = Duration::from_secs;
    assert!(Timing::new(15, seconds(10), seconds(2)).is_ok());
    for (lease, deadline, retry) in [(10, 10, 2), (15, 2, 2), (15, 10, 0), (0, 0, 0)] {
        let error = Timing::new(lease, seconds(deadline), seconds(retry)).unwrap_err();
        assert!(error.to_string().contains("2s, 10s, 15s"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_renews_with_one_write_each_period() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leadership = acquired(&a, Duration::from_secs(1)).await;
    let before = a.line.requests().len();
    sleep(Duration::from_mins(1)).await;
    leadership.check().expect("still leads");
    assert_eq!(a.leading.get(), 1);
    let requests = a.line.requests().split_off(before);
    assert!(requests.iter().all(|request| *request == format!("PUT {PATH}")), "{requests:?}");
    assert!((29..=31).contains(&requests.len()), "{} renewals in 60 s", requests.len());
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_the_other_takes_over_when_the_holder_dies() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leads = acquired(&a, Duration::from_secs(1)).await;
    let b = start(&api, config("b"));
    sleep(Duration::from_mins(2)).await;
    assert!(b.election.current().is_none(), "b waits while a renews");
    assert_eq!(b.leading.get(), 0);

    a.line.set(Fault::Cut);
    let cut = Instant::now();
    leads.lost().await;
    let a_stopped = Instant::now();
    acquired(&b, Duration::from_mins(1)).await;
    let b_began = Instant::now();
    assert!(a_stopped <= cut + Duration::from_secs(10), "a acted for {:?} after the cut", a_stopped - cut);
    assert!(b_began >= a_stopped + Duration::from_secs(3), "too close: {:?}", b_began - a_stopped);
    assert!(b_began <= cut + Duration::from_secs(15 + 3), "b waited {:?}", b_began - cut);
    assert_eq!(stored(&api).holder_identity, Some(b.holder.clone()));
    assert_eq!(stored(&api).lease_transitions, Some(1));
    assert_eq!(a.leading.get(), 0);

    // Back on the line, a sees that it lost, and does not lead.
    a.line.set(Fault::None);
    sleep(Duration::from_mins(1)).await;
    assert!(a.election.current().is_none());
    assert!(b.election.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_holder_may_not_act_although_no_task_told_it_so() {
    let leadership = Leadership::begin("op".into(), Instant::now() + Duration::from_secs(10));
    leadership.check().expect("renewed just now");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(!leadership.token().is_cancelled(), "no task of ours ran");
    let refused = leadership.check().expect_err("the clock alone must say no");
    assert_eq!(refused.lease, "op");
}

#[tokio::test(start_paused = true)]
async fn a_tenure_that_ended_never_comes_back() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let first = acquired(&a, Duration::from_secs(1)).await;
    a.line.set(Fault::Refuse(500));
    first.lost().await;
    a.line.set(Fault::None);
    let second = acquired(&a, Duration::from_secs(10)).await;
    second.check().expect("leads again");
    first.check().expect_err("work of the first tenure must not go on");
    assert_eq!(stored(&api).lease_transitions, Some(0), "nobody else held it");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_not_counted_as_a_renewal_and_heals() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leadership = acquired(&a, Duration::from_secs(1)).await;
    a.line.set(Fault::AnswersLost);
    sleep(Duration::from_secs(6)).await;
    a.line.set(Fault::None);
    sleep(Duration::from_secs(30)).await;
    leadership.check().expect("one lost answer does not cost the lease");

    a.line.set(Fault::AnswersLost);
    timeout(Duration::from_secs(11), leadership.lost()).await.expect("writes without answers prove nothing");
}

#[tokio::test(start_paused = true)]
async fn a_leader_steps_down_as_soon_as_it_sees_another_holder() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leadership = acquired(&a, Duration::from_secs(1)).await;
    api.edit(PATH, |lease| lease["spec"]["holderIdentity"] = json!("thief"));
    timeout(Duration::from_secs(3), leadership.lost()).await.expect("seen at the next renewal");
    assert_eq!(stored(&api).holder_identity.as_deref(), Some("thief"), "and leaves the record alone");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_edit_of_metadata_or_a_deleted_lease_is_survived() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leadership = acquired(&a, Duration::from_secs(1)).await;
    api.edit(PATH, |lease| lease["metadata"]["labels"] = json!({"team": "x"}));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(api.get(PATH).unwrap()["metadata"]["labels"]["team"], "x", "what others wrote stays");
    api.delete(PATH);
    sleep(Duration::from_secs(5)).await;
    leadership.check().expect("never lost");
    assert_eq!(stored(&api).holder_identity, Some(a.holder.clone()));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_tenure_and_hands_the_lease_over() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leadership = acquired(&a, Duration::from_secs(1)).await;
    let b = start(&api, config("b"));
    sleep(Duration::from_secs(5)).await;
    a.election.stop().await;
    leadership.check().expect_err("stopped");
    assert_eq!(stored(&api).holder_identity.as_deref(), Some(""));
    acquired(&b, Duration::from_secs(3)).await;

    // A candidate that never led gives nothing back.
    let c = start(&api, config("c"));
    sleep(Duration::from_secs(5)).await;
    c.election.stop().await;
    assert_eq!(stored(&api).holder_identity, Some(b.holder.clone()));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_when_it_was_sent() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leadership = acquired(&a, Duration::from_secs(1)).await;
    a.line.set(Fault::AnswersSlow(Duration::from_secs(4)));
    // The last renewal is seen by others at once, and answered seconds later; then the line is cut.
    let renewed = stored(&api).renew_time;
    while stored(&api).renew_time == renewed {
        sleep(Duration::from_millis(10)).await;
    }
    let sent = Instant::now();
    a.line.set(Fault::Cut);
    leadership.lost().await;
    let led = sent.elapsed();
    assert!(led <= Duration::from_secs(10), "led for {led:?} after the last renewal was sent");
    assert!(led >= Duration::from_secs(9), "the late answer did count: {led:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_write_still_gives_the_lease_back() {
    for leads_before in [true, false] {
        let api = FakeApi::default();
        let a = start(&api, config("a"));
        if leads_before {
            acquired(&a, Duration::from_secs(1)).await;
        }
        a.line.set(Fault::AnswersSlow(Duration::from_secs(1)));
        let before = api.get(PATH);
        while api.get(PATH) == before {
            sleep(Duration::from_millis(10)).await;
        }
        a.election.stop().await;
        assert_eq!(stored(&api).holder_identity.as_deref(), Some(""), "led before: {leads_before}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_does_not_wait_for_its_own_pod() {
    let api = FakeApi::default();
    let of_pod = || Config { identity: Identity::new("pod", Some("uid")), ..config("pod") };
    let a = start(&api, of_pod());
    acquired(&a, Duration::from_secs(1)).await;
    a.line.set(Fault::Cut);
    let b = start(&api, of_pod());
    acquired(&b, Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_guarded_client_reads_but_no_longer_writes() {
    let api = FakeApi::default();
    let a = start(&api, config("a"));
    let leadership = acquired(&a, Duration::from_secs(1)).await;
    let leases: Api<Lease> = Api::namespaced(leadership.guard(&api.client(&Line::default())), "ns");
    let other = |name: &str| Lease {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        spec: None,
    };
    leases.create(&PostParams::default(), &other("x")).await.expect("leads");
    a.election.stop().await;
    let refused = leases.create(&PostParams::default(), &other("y")).await.expect_err("no longer leads");
    assert!(refused.to_string().contains("no longer leader: lease op"), "{refused}");
    leases.get("x").await.expect("reading harms nobody");
}
