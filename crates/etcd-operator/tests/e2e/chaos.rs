//! Trouble of every kind, in an order that a seed decides, while a crowd of clients writes, reads, compares and swaps,
//! watches and holds a lease: nothing that was acknowledged is lost, every answer fits one order of events, and the
//! cluster is whole in the end. What the user asks for is not waited for: the next trouble meets it under way.
//! `CHAOS_SECONDS` and `CHAOS_SEED` say how long and which, `1,2` these two for half of the time each; alone on the lab.

use std::fmt;
use std::num::ParseIntError;
use std::time::{Duration, Instant};

use lab::kit::{TestNamespace, lab_alone};
use lab::{Lab, Slow};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::heal::volume;
use crate::support::{Cluster, Knocks, LIMIT, Operator, Outcome, Victim};

/// What clients get done in a second at least, of requests, writes watched, leases renewed and writes of the load: an eighth
/// of what they do on a busy machine. Who did next to nothing proves nothing.
const LEAST: [f64; 4] = [4.0, 1.5, 0.1, 3.0];

/// Each upgrade goes to the next of these, and then there are none.
const VERSIONS: [&str; 4] = ["3.4.15", "3.5.16", "3.5.35", "3.6.16"];

const SLOW: Slow = Slow { kbit_per_second: 2_000, loss_percent: 5 };

/// What strikes. Members are named by their place in the list of pods, nodes by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    KillMember(usize),
    PauseMember(usize),
    WipeMember(usize),
    DeletePod(usize),
    CutNode(usize),
    KillNode(usize),
    CutBetween(usize, usize),
    SlowNode(usize),
    KillOperator,
    RestartApiServer,
    PauseApiServer,
    RestartKubelet(usize),
    Scale(usize),
    Upgrade,
}

/// A trouble, how long it lasts, and what comes on top of it without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strike {
    trouble: Trouble,
    lasts: Duration,
    /// The operator is killed a moment after, so that it has to find its way in the middle of it.
    and_operator: bool,
}

impl Strike {
    /// What a user asks for is under way while the next trouble strikes. One trouble at a time comes on top of that, so that
    /// never more than a minority loses its data.
    fn is_waited_for(&self) -> bool {
        !matches!(self.trouble, Trouble::Scale(_) | Trouble::Upgrade)
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = if self.and_operator { ", and the operator is killed" } else { "" };
        write!(f, "{:?} for {:.1} s{operator}", self.trouble, self.lasts.as_secs_f64())
    }
}

/// The same seed gives the same troubles.
fn schedule(seed: u64) -> impl Iterator<Item = Strike> {
    let mut random = StdRng::seed_from_u64(seed);
    std::iter::from_fn(move || {
        let (member, node) = (random.random_range(0..7), random.random_range(1..=3));
        let other = node % 3 + 1;
        let trouble = *[
            Trouble::KillMember(member),
            Trouble::KillMember(member),
            Trouble::PauseMember(member),
            Trouble::WipeMember(member),
            Trouble::DeletePod(member),
            Trouble::DeletePod(member),
            Trouble::CutNode(node),
            Trouble::KillNode(node),
            Trouble::CutBetween(node, other),
            Trouble::SlowNode(node),
            Trouble::KillOperator,
            Trouble::RestartApiServer,
            Trouble::PauseApiServer,
            Trouble::RestartKubelet(node),
            Trouble::Scale(3),
            Trouble::Scale(5),
            Trouble::Upgrade,
        ]
        .choose(&mut random)?;
        let lasts = Duration::from_millis(random.random_range(500..12_000));
        Some(Strike { trouble, lasts, and_operator: random.random_ratio(1, 4) })
    })
}

/// Of two seeds that follow each other, one is on volumes.
fn on_volumes(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// One seed, or several by commas.
fn seeds(text: &str) -> Result<Vec<u64>, ParseIntError> {
    text.split(',').map(|seed| seed.trim().parse()).collect()
}

fn node(number: usize) -> String {
    format!("node{number}")
}

/// The cluster, and what its spec asks for by now.
struct Arena<'a> {
    lab: &'a Lab,
    cluster: &'a Cluster<'a>,
    operator: Operator,
    size: usize,
    version: usize,
    /// Clients that insist on a member that lost its data.
    knocks: Option<Knocks>,
}

impl Arena<'_> {
    async fn strike(&mut self, strike: &Strike) -> Outcome {
        let victim = self.begin(strike.trouble).await?;
        if strike.and_operator {
            self.operator.restart()?;
        }
        tokio::time::sleep(strike.lasts).await;
        self.end(strike.trouble, victim).await
    }

    async fn begin(&mut self, trouble: Trouble) -> Outcome<Option<Victim>> {
        match trouble {
            Trouble::KillMember(nth)
            | Trouble::PauseMember(nth)
            | Trouble::WipeMember(nth)
            | Trouble::DeletePod(nth) => {
                let victim = self.voter(nth).await?;
                if let Err(error) = self.strike_member(trouble, &victim).await {
                    // Scaled down or upgraded just then, it is in trouble already.
                    return if victim.goes(self.cluster).await? { Ok(None) } else { Err(error) };
                }
                return Ok(Some(victim));
            }
            Trouble::CutNode(n) => self.lab.cut_node(&node(n))?,
            Trouble::KillNode(n) => self.lab.kill_node(&node(n))?,
            Trouble::CutBetween(a, b) => self.lab.cut_between(&node(a), &node(b))?,
            Trouble::SlowNode(n) => self.lab.slow_node(&node(n), SLOW)?,
            Trouble::KillOperator => self.operator.restart()?,
            Trouble::RestartApiServer => self.lab.restart_api_server()?,
            Trouble::PauseApiServer => self.lab.pause_api_server()?,
            Trouble::RestartKubelet(n) => self.lab.restart_kubelet(&node(n))?,
            Trouble::Scale(size) => {
                self.size = size;
                self.cluster.edit(json!({"size": size})).await?;
            }
            Trouble::Upgrade => {
                self.version = (self.version + 1).min(VERSIONS.len() - 1);
                self.cluster.edit(json!({"version": VERSIONS[self.version]})).await?;
            }
        }
        Ok(None)
    }

    async fn strike_member(&mut self, trouble: Trouble, victim: &Victim) -> Outcome {
        match trouble {
            Trouble::PauseMember(_) => victim.signal(self.cluster, Signal::SIGSTOP)?,
            Trouble::WipeMember(_) => self.knocks = Some(victim.wipe(self.cluster)?),
            Trouble::DeletePod(_) => {
                self.cluster.test.kubectl(&["delete", "pod", &victim.name, "--wait=false"]).await?;
            }
            _ => victim.signal(self.cluster, Signal::SIGKILL)?,
        }
        Ok(())
    }

    /// The nth, or the next one that answers and votes: who joins, leaves or restarts just now is in trouble already, and a
    /// learner that is wiped may begin again.
    async fn voter(&self, nth: usize) -> Outcome<Victim> {
        let names: Vec<_> = self.cluster.pod_names().await?.into_iter().collect();
        for name in names.iter().cycle().skip(nth).take(names.len()) {
            if let Ok(victim) = self.cluster.victim_named(name).await
                && victim.votes
            {
                return Ok(victim);
            }
        }
        Err(format!("none of {names:?} answers").into())
    }

    async fn end(&mut self, trouble: Trouble, victim: Option<Victim>) -> Outcome {
        if let Some(knocks) = self.knocks.take() {
            knocks.none_taken().await?;
        }
        match trouble {
            Trouble::PauseMember(_) => {
                // Replaced meanwhile, it is no more: nothing is left to wake.
                if let Some(victim) = victim {
                    let _ = victim.signal(self.cluster, Signal::SIGCONT);
                }
            }
            Trouble::CutNode(n) => self.lab.heal_node(&node(n))?,
            Trouble::KillNode(n) => {
                self.lab.start_node(&node(n)).await?;
                self.lab.node_ready(&node(n), LIMIT).await?;
            }
            Trouble::CutBetween(a, b) => self.lab.heal_between(&node(a), &node(b))?,
            Trouble::SlowNode(n) => self.lab.unslow_node(&node(n))?,
            Trouble::PauseApiServer => self.lab.resume_api_server()?,
            _ => {}
        }
        Ok(())
    }

    async fn whole(&self) -> Outcome {
        self.cluster.settled(self.size, VERSIONS[self.version]).await.map(drop)
    }
}

async fn trouble(test: &TestNamespace<'_>, lab: &Lab, seed: u64, seconds: u64) -> Outcome {
    let mut spec = json!({"size": 3, "version": VERSIONS[0], "memberUnresponsiveSeconds": 10});
    if on_volumes(seed) {
        spec["pod"] = json!({"persistentVolumeClaimSpec": volume()});
    }
    let operator = Operator::start(test)?;
    let cluster = Cluster::create(test, "c", spec).await?;
    let mut arena = Arena { lab, cluster: &cluster, operator, size: 3, version: 0, knocks: None };
    arena.whole().await?;
    let (load, crowd) = (cluster.traffic().await?, cluster.crowd().await?);

    let began = Instant::now();
    let mut struck = 0;
    for strike in schedule(seed) {
        if began.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        struck += 1;
        println!("{:6.1} s: {strike}", began.elapsed().as_secs_f64());
        let told = |error| format!("seed {seed}, strike {struck}, {strike}: {error}");
        arena.strike(&strike).await.map_err(told)?;
        if strike.is_waited_for() {
            arena.whole().await.map_err(told)?;
        }
    }
    arena.whole().await.map_err(|error| format!("seed {seed}, in the end: {error}"))?;
    let seen = crowd.end().await?;
    let report = load.end().await?;
    println!(
        "seed {seed}: {struck} troubles in {} s; {} requests of the crowd, {} answered, {} writes watched, {} leases renewed; \
         {} writes of the load verified; at the end {} members of {}{}",
        began.elapsed().as_secs(),
        seen.ops,
        seen.answered,
        seen.watched,
        seen.leases_renewed,
        report.writes,
        arena.size,
        VERSIONS[arena.version],
        if on_volumes(seed) { " on volumes" } else { "" },
    );
    if !seen.violations.is_empty() {
        return Err(seen.violations.join("\n").into());
    }
    let done = [seen.answered, seen.watched, seen.leases_renewed, report.writes];
    enough(done, began.elapsed()).map_err(Into::into)
}

fn enough(done: [usize; 4], time: Duration) -> Result<(), String> {
    let least = LEAST.map(|each_second| time.mul_f64(each_second).as_secs());
    let fell_short = done.iter().zip(least).any(|(done, least)| (*done as u64) < least.max(1));
    if fell_short { Err(format!("clients did {done:?}, and {least:?} is the least")) } else { Ok(()) }
}

#[test]
fn clients_that_did_nothing_prove_nothing() {
    let time = Duration::from_secs(100);
    assert!(enough([400, 150, 10, 300], time).is_ok());
    for idle in 0..4 {
        let mut done = [10_000; 4];
        done[idle] = 0;
        assert!(enough(done, time).is_err() && enough(done, Duration::ZERO).is_err());
    }
}

#[test]
fn the_same_seed_gives_the_same_troubles() {
    let first: Vec<_> = schedule(7).take(50).collect();
    assert_eq!(first, schedule(7).take(50).collect::<Vec<_>>());
    assert_ne!(first, schedule(8).take(50).collect::<Vec<_>>());
}

#[test]
fn seeds_come_one_by_one_or_several() {
    assert_eq!(seeds("7"), Ok(vec![7]));
    assert_eq!(seeds("1,2"), Ok(vec![1, 2]));
    assert_eq!([1, 2].map(on_volumes), [false, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_nothing_acknowledged_is_lost() {
    let seeds = match std::env::var("CHAOS_SEED") {
        Ok(text) => seeds(&text).unwrap(),
        Err(_) => vec![u64::from(rand::random::<u32>())],
    };
    let seconds: u64 = std::env::var("CHAOS_SECONDS").map_or(60, |text| text.parse().unwrap());
    let seconds = seconds / seeds.len() as u64;
    let (lab, _turn) = lab_alone().await.unwrap();
    for seed in seeds {
        println!("CHAOS_SEED={seed} CHAOS_SECONDS={seconds}");
        let test = TestNamespace::new(lab, "chaos").await.unwrap();
        test.run(async |test| trouble(test, lab, seed, seconds).await).await.unwrap();
    }
}
