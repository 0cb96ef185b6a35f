//! The operator itself: killed at any moment, kept waiting by a hanging member, told to keep its hands off.

use std::time::{Duration, Instant};

use api::EtcdClusterStatus;
use api::conditions::ConditionStatus;
use domain::AlarmKind;
use etcd::{Expect, Member};
use futures::future::try_join_all;
use lab::kit::{TestNamespace, lab_alone, shared_lab};
use lab::wait::until;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::support::{Cluster, LIMIT, Operator, Outcome, Who, client_address, stays};

const KILLS: u32 = 40;
/// Printed, so that a run can be repeated; `OPERATOR_KILL_SEED` sets another.
const SEED: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_forty_times_during_scale_and_upgrade_the_end_is_the_same() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "killed").await.unwrap();
    test.run(async |test| -> Outcome {
        let mut operator = Operator::start(test)?;
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": "3.4.15"})).await?;
        cluster.settled(3, "3.4.15").await?;
        let load = cluster.traffic().await?;
        let seed =
            std::env::var("OPERATOR_KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
        println!("OPERATOR_KILL_SEED={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut killed = 0;
        // A step that is too quick leaves its kills to those after it.
        let steps = [(5, "3.4.15"), (5, "3.5.35"), (3, "3.5.35"), (5, "3.6.16"), (3, "3.6.16")];
        let more = [(4, "3.6.16"), (3, "3.6.16")].into_iter().cycle();
        for (number, (size, version)) in (1..).zip(steps.into_iter().chain(more)) {
            cluster.edit(json!({"size": size, "version": version})).await?;
            let settled = cluster.settled(size, version);
            tokio::pin!(settled);
            let until_here = KILLS.min(number * KILLS / 5);
            while killed < until_here {
                let moment = Duration::from_millis(random.random_range(0..1500));
                tokio::select! {
                    done = &mut settled => {
                        done?;
                        break;
                    }
                    life = dies_at(&mut operator, killed, moment) => {
                        life?;
                        killed += 1;
                    }
                }
            }
            cluster.settled(size, version).await?;
            if killed == KILLS && number >= 5 {
                break;
            }
        }
        load.end_without_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// Killed that long after it began to lead for the nth time, and started anew.
async fn dies_at(operator: &mut Operator, lived: u32, moment: Duration) -> Outcome {
    until("the operator to lead", LIMIT, async || {
        let log = operator.log().map_err(|error| lab::Error::other("log", error))?;
        let led = log.matches("became leader").count();
        Ok(if led > lived as usize { Ok(()) } else { Err(led) })
    })
    .await?;
    tokio::time::sleep(moment).await;
    operator.restart()
}

/// How long half of them took to tell of an edit, when all are edited at once.
async fn median_edit(clusters: &[&Cluster<'_>]) -> Outcome<Duration> {
    let edits = clusters.iter().map(async |cluster| {
        let began = Instant::now();
        cluster.edit(json!({"paused": true})).await?;
        cluster.says("to be paused", LIMIT, |status| status.control_paused).await?;
        let took = began.elapsed();
        cluster.edit(json!({"paused": false})).await?;
        cluster.says("to go on", LIMIT, |status| !status.control_paused).await?;
        Outcome::Ok(took)
    });
    let mut took = try_join_all(edits).await?;
    took.sort();
    Ok(took.get(took.len() / 2).copied().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_clusters_the_healthy_are_served_at_once_while_members_of_others_hang() {
    const SINGLES: usize = 18;
    // Twenty clusters on two cores take from others what these need to answer in time.
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "twenty").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let version = "3.5.16";
        let size = |number: usize| if number < SINGLES { 1 } else { 3 };
        let create = async |number: usize| {
            // Who hangs is to be left alone for as long as a busy machine needs for all this.
            let spec = json!({"size": size(number), "version": version, "memberUnresponsiveSeconds": 600});
            Cluster::create(test, &format!("c{number}"), spec).await
        };
        let clusters = try_join_all((0..SINGLES + 2).map(create)).await?;
        try_join_all(clusters.iter().enumerate().map(|(n, cluster)| cluster.settled(size(n), version)))
            .await?;

        let (single, three) = (&clusters[0], &clusters[SINGLES]);
        let healthy: Vec<&Cluster<'_>> =
            clusters.iter().filter(|c| c.name != single.name && c.name != three.name).collect();
        let before = median_edit(&healthy).await?;

        let hanging = [single.victim(Who::Leader).await?, three.victim(Who::Leader).await?];
        hanging[0].signal(single, Signal::SIGSTOP)?;
        hanging[1].signal(three, Signal::SIGSTOP)?;
        single.condition("Ready", ConditionStatus::False, LIMIT).await?;

        let beside = median_edit(&healthy).await?;
        let other = &clusters[SINGLES + 1];
        let lost = other.victim(Who::Other).await?;
        test.kubectl(&["delete", "pod", &lost.name, "--wait=false"]).await?;
        other.settled(3, version).await?;
        lost.was_replaced(other).await?;

        hanging[0].signal(single, Signal::SIGCONT)?;
        hanging[1].signal(three, Signal::SIGCONT)?;
        single.settled(1, version).await?;
        three.settled(3, version).await?;
        hanging[1].came_back(three, 0).await?;

        // What else the machine is busy with changes from one moment to the next, and costs all alike.
        let after = median_edit(&healthy).await?;
        println!(
            "an edit of each of {} healthy clusters was in the status of half of them after {before:?}, beside hanging members \
             after {beside:?}, and later after {after:?}",
            healthy.len()
        );
        // One hanging member costs its own cluster a second per round; in a row, eighteen would cost far more.
        let bearable = before.max(after) * 2 + Duration::from_secs(4);
        assert!(beside < bearable, "{before:?} before them, {beside:?} beside them, {after:?} after them");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_it_keeps_its_hands_off_and_heals_after() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "paused").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        let version = "3.5.16";
        let cluster = Cluster::create(test, "c", json!({"size": 3, "version": version})).await?;
        cluster.settled(3, version).await?;
        let load = cluster.traffic().await?;

        // In the middle of growing.
        cluster.edit(json!({"size": 5})).await?;
        cluster.pods_are("a fourth pod", |pods| pods.len() > 3).await?;
        cluster.edit(json!({"paused": true})).await?;
        cluster.says("to be paused", LIMIT, |status| status.control_paused).await?;
        cluster.condition("Paused", ConditionStatus::True, LIMIT).await?;
        let lost = cluster.victim(Who::Leader).await?;
        let mut left = cluster.pod_names().await?;
        left.remove(&lost.name);
        test.kubectl(&["delete", "pod", &lost.name]).await?;
        stays("a cluster that is paused", Duration::from_secs(5), async || {
            Ok(cluster.pod_names().await? == left)
        })
        .await?;

        cluster.edit(json!({"paused": false})).await?;
        let healed = cluster.settled(5, version).await?;
        assert!(!healed.status.unwrap_or_default().control_paused);
        load.end_without_failure().await?;
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_database_and_a_wish_for_tls_are_told() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "told").await.unwrap();
    test.run(async |test| -> Outcome {
        let _operator = Operator::start(test)?;
        tokio::try_join!(full_database(test), wish_for_tls(test)).map(drop)
    })
    .await
    .unwrap();
}

async fn full_database(test: &TestNamespace<'_>) -> Outcome {
    let version = "3.5.16";
    let quota: u64 = 4 << 20;
    let env = json!([{"name": "ETCD_QUOTA_BACKEND_BYTES", "value": quota.to_string()}]);
    let cluster =
        Cluster::create(test, "full", json!({"size": 1, "version": version, "pod": {"etcdEnv": env}}))
            .await?;
    cluster.settled(1, version).await?;
    let pod = cluster.pods().await?.pop().ok_or("there is no pod")?;
    let member = Member::connect(client_address(&pod)?, Expect::default())?;
    let mut written = 0;
    let alarm = async |reason: &str| -> Outcome<String> {
        let told = |status: &EtcdClusterStatus| {
            status.conditions.iter().any(|c| c.type_ == "Alarm" && c.reason == reason)
        };
        cluster.says("to tell of the alarm", LIMIT, told).await?;
        cluster.event(reason, LIMIT).await
    };
    let none = |status: &EtcdClusterStatus| !status.conditions.iter().any(|c| c.type_ == "Alarm");

    let etcd = |error| lab::Error::other("etcd", error);
    until("the database to be nearly full", LIMIT, async || {
        member.put(format!("big/{written}"), vec![7_u8; 128 * 1024]).await.map_err(etcd)?;
        written += 1;
        let size = member.status().await.map_err(etcd)?.db_size;
        Ok(if size * 10 >= quota * 8 { Ok(()) } else { Err(size) })
    })
    .await?;
    alarm("QuotaNearlyUsed").await?;

    let refused = loop {
        match member.put(format!("big/{written}"), vec![7_u8; 256 * 1024]).await {
            Ok(_) if written < 100 => written += 1,
            other => break other.err(),
        }
    };
    println!("refused after {written} writes: {refused:?}");
    let message = alarm("NoSpace").await?;
    assert!(message.contains("ETCD_QUOTA_BACKEND_BYTES"), "{message}");

    // What the message asks a person to do.
    for number in 0..written {
        member.delete(format!("big/{number}")).await?;
    }
    member.compact(member.revision().await?).await?;
    member.defragment().await?;
    for alarm in member.alarms().await?.into_iter().filter(|alarm| alarm.kind == AlarmKind::NoSpace) {
        member.disarm(alarm).await?;
    }
    cluster.says("to tell no more of it", LIMIT, none).await?;

    let corrupt = domain::Alarm { member: member.status().await?.identity.member, kind: AlarmKind::Corrupt };
    member.raise(corrupt).await?;
    alarm("Corrupt").await?;
    member.disarm(corrupt).await?;
    cluster.says("to tell no more of it", LIMIT, none).await?;
    cluster.settled(1, version).await.map(drop)
}

async fn wish_for_tls(test: &TestNamespace<'_>) -> Outcome {
    let tls = json!({"static": {"operatorSecret": "op", "member": {"serverSecret": "server", "peerSecret": "peer"}}});
    let cluster = Cluster::create(test, "tls", json!({"size": 1, "version": "3.5.16", "TLS": tls})).await?;
    let refused = cluster.condition("SpecInvalid", ConditionStatus::True, LIMIT).await?;
    assert!(refused.message.contains("spec.TLS"), "{}", refused.message);
    cluster.event("SpecInvalid", LIMIT).await?;
    stays("a cluster without pods", Duration::from_secs(3), async || Ok(cluster.pods().await?.is_empty()))
        .await?;
    cluster.edit(json!({"TLS": null})).await?;
    cluster.settled(1, "3.5.16").await.map(drop)
}
