use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use prometheus_client::metrics::gauge::Gauge;
use runtime::lease::{Config, Election, Identity, Leadership, Timing};
use tokio::time::timeout;

use crate::server;

/// Long enough for a machine on which other suites run: a holder that is late with a renewal for the whole of
/// `RENEW_DEADLINE` gives up.
const LEASE: Duration = Duration::from_secs(8);
const RENEW_DEADLINE: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(30);

fn timing() -> Timing {
    Timing::new(8, RENEW_DEADLINE, Duration::from_millis(300)).unwrap()
}

fn stand(client: &Client, namespace: &str, pod: &str) -> Election {
    let config = Config {
        namespace: namespace.into(),
        name: "op".into(),
        identity: Identity::new(pod, None),
        timing: timing(),
        owner: None,
    };
    Election::start(client.clone(), config, Gauge::default())
}

async fn acquired(election: &Election) -> Leadership {
    timeout(SOON, election.acquired()).await.expect("leads in time").expect("not stopped")
}

async fn record(client: &Client, namespace: &str) -> LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    leases.get("op").await.unwrap().spec.unwrap()
}

#[tokio::test]
async fn the_lease_is_kept_then_released_and_taken_at_once() {
    let client = server::client().await;
    let namespace = server::namespace(&client).await;
    let a = stand(&client, &namespace, "a");
    let leads = acquired(&a).await;
    let first = record(&client, &namespace).await;
    assert!(first.holder_identity.as_deref().unwrap().starts_with("a_"));
    assert_eq!(first.lease_duration_seconds, Some(8));

    let b = stand(&client, &namespace, "b");
    assert!(timeout(LEASE * 5 / 4, b.acquired()).await.is_err(), "b led while a renewed");
    leads.check().expect("a still leads");
    let renewed = record(&client, &namespace).await;
    assert!(renewed.renew_time > first.renew_time);
    assert_eq!(renewed.acquire_time, first.acquire_time);

    a.stop().await;
    leads.check().expect_err("a stopped");
    let stopped = Instant::now();
    acquired(&b).await;
    assert!(stopped.elapsed() < LEASE, "a released lease is not waited for");
    let taken = record(&client, &namespace).await;
    assert!(taken.holder_identity.as_deref().unwrap().starts_with("b_"));
    assert_eq!(taken.lease_transitions, Some(1));
    b.stop().await;
    assert_eq!(record(&client, &namespace).await.holder_identity.as_deref(), Some(""));
}

/// The holder's whole thread stands still, tasks and timers with it, as under SIGSTOP.
#[tokio::test]
async fn a_frozen_holder_has_stopped_before_the_next_one_begins() {
    let client = server::client().await;
    let namespace = server::namespace(&client).await;
    let (config, in_namespace) = (server::config().await, namespace.clone());
    let (report, mut frozen) = tokio::sync::mpsc::unbounded_channel();
    let holder = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let election = stand(&server::client_of(config), &in_namespace, "frozen");
            let leads = acquired(&election).await;
            report.send(Instant::now()).unwrap();
            std::thread::sleep(LEASE * 2);
            // The first thing that a thawed reconcile does is to ask; no task has run since.
            assert!(!leads.token().is_cancelled(), "a task ran while frozen");
            leads.check().expect_err("thawed, and may not act");
            timeout(SOON, leads.lost()).await.expect("and is told");
        });
    });
    let froze = frozen.recv().await.unwrap();
    let next = stand(&client, &namespace, "next");
    acquired(&next).await;
    let waited = froze.elapsed();
    assert!(waited >= RENEW_DEADLINE, "taken after {waited:?}: the holder could still act");
    assert!(waited < LEASE * 2, "taken only after {waited:?}");
    holder.join().expect("the frozen holder behaved");
}

#[tokio::test]
async fn of_many_never_two_lead_at_once() {
    let client = server::client().await;
    let namespace = server::namespace(&client).await;
    let (leading, tenures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let candidates = (0..8).map(|n| {
        let (client, namespace) = (client.clone(), namespace.clone());
        let (leading, tenures) = (leading.clone(), tenures.clone());
        tokio::spawn(async move {
            let election = stand(&client, &namespace, &format!("pod-{n}"));
            let leads = timeout(SOON * 3, election.acquired()).await.expect("each gets its turn").unwrap();
            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            for _ in 0..10 {
                leads.check().expect("renewed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            leading.fetch_sub(1, Ordering::SeqCst);
            tenures.fetch_add(1, Ordering::SeqCst);
            election.stop().await;
        })
    });
    for candidate in candidates.collect::<Vec<_>>() {
        candidate.await.expect("no candidate failed");
    }
    assert_eq!(tenures.load(Ordering::SeqCst), 8);
    assert_eq!(record(&client, &namespace).await.lease_transitions, Some(7));
}
