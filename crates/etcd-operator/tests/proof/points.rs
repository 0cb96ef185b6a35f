//! Every crash point of every scenario, and the other faults: all of them with `FAULTS=all`, else some, chosen by `FAULTS_SEED`.
//! FAULTS=none lives each scenario once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use faults::{Fault, Hit, Point, Rough};
use futures::{StreamExt, stream};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::life::{Step, live};
use crate::scenarios::{self, Scenario};

/// Lives at the same time, on two cores.
const SIDE_BY_SIDE: usize = 12;
/// Of each other fault, in a run that does not try all.
const SAMPLES: usize = 1;
/// A life with a fault may ask for so many times as much as one without, and so much more.
const BOUND: (usize, usize) = (3, 1000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_ends_the_same_whatever_happens() {
    prove("life", scenarios::life).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_ends_the_same_whatever_happens() {
    prove("upgrade", scenarios::upgrade).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_and_its_restore_end_the_same_whatever_happens() {
    prove("backup", scenarios::backup).await;
}

/// Lives once without a fault, and then with all of them, one in each step.
async fn prove(name: &str, scenario: Scenario) {
    let began = Instant::now();
    let plain = live(name, scenario, &[]).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    let alone = began.elapsed();
    let points: Vec<&[Point]> = plain.iter().map(|step| step.book.points()).collect();
    let lives = stream::iter(chosen(&points)).map(|faults| {
        let plain = &plain;
        async move {
            let lived = live(name, scenario, &faults).await;
            let verdict = lived
                .as_ref()
                .map_or_else(|error| Err(error.to_string()), |lived| verdict(plain, lived, &faults));
            let steps = lived.as_deref().unwrap_or_default().iter();
            let unmet = steps
                .zip(&faults)
                .filter(|(step, fault)| !step.book.met(fault))
                .map(|(_, fault)| fault.clone());
            (unmet.collect::<Vec<_>>(), verdict.map_err(|wrong| format!("with {faults:?}: {wrong}")), faults)
        }
    });
    let verdicts: Vec<_> = lives.buffer_unordered(SIDE_BY_SIDE).collect().await;
    let total =
        verdicts.iter().flat_map(|(_, _, faults)| faults).filter(|fault| **fault != Fault::None).count();
    let unmet: Vec<_> = verdicts.iter().flat_map(|(unmet, _, _)| unmet).collect();
    let wrong: Vec<_> = verdicts.iter().filter_map(|(_, verdict, _)| verdict.as_ref().err()).collect();
    for (number, step) in plain.iter().enumerate() {
        let (writes, requests) = (step.book.points().len(), step.requests());
        println!(
            "{name}, step {number}: {writes} writes, {requests} requests, {:.1?}, made {:?}",
            step.took,
            step.made()
        );
    }
    println!(
        "{name}: {} writes, {total} faults in {} lives, {} not met, {} requests and {alone:.1?} without a fault, {:.1?}",
        points.iter().map(|points| points.len()).sum::<usize>(),
        verdicts.len(),
        unmet.len(),
        plain.iter().map(Step::requests).sum::<usize>(),
        began.elapsed(),
    );
    for fault in &unmet {
        println!("{name}: not met: {fault:?}");
    }
    assert!(wrong.is_empty(), "{name}: {} of {} lives: {wrong:#?}", wrong.len(), verdicts.len());
    // How often status is written, and pods are marked, is a matter of chance; all else is not.
    assert!(unmet.len() * 4 <= total, "{name}: too many were not met");
}

/// Faults of each step, for each life. Every step begins at rest, so what one goes through is nothing to the next: a life
/// can have a fault in each.
fn chosen(points: &[&[Point]]) -> Vec<Vec<Fault>> {
    if std::env::var("FAULTS").is_ok_and(|which| which == "none") {
        return Vec::new();
    }
    let all = faults::all();
    let mut rng = StdRng::seed_from_u64(faults::seed());
    let mut lives = side_by_side(points, &|point| Fault::At(point, Hit::Death));
    let mut some = |make: &dyn Fn(Point) -> Fault| {
        let mut sample = |points: &&[Point]| points.choose_multiple(&mut rng, SAMPLES).cloned().collect();
        let sampled: Vec<Vec<Point>> = points.iter().map(&mut sample).collect();
        let sampled: Vec<&[Point]> = sampled.iter().map(Vec::as_slice).collect();
        lives.extend(side_by_side(if all { points } else { &sampled }, make));
    };
    for hit in Hit::ALL.into_iter().filter(|hit| *hit != Hit::Death) {
        some(&|point| Fault::At(point, hit));
    }
    some(&Fault::StaleStart);
    let late = Duration::from_millis(150);
    let watches = [
        Rough { late: Duration::from_secs(1), ..Rough::default() },
        Rough { late, twice: true, expires_after: Some(3), ..Rough::default() },
        Rough { expires_after: Some(1), ..Rough::default() },
    ];
    lives.extend(watches.map(|how| vec![Fault::Watches(how); points.len()]));
    let seeds = if all { 10 } else { SAMPLES };
    lives.extend(
        (0..seeds).map(|_| points.iter().map(|_| Fault::Reads { seed: rng.random(), most: 20 }).collect()),
    );
    lives
}

/// As many lives as the longest of the steps has points.
fn side_by_side(points: &[&[Point]], make: &dyn Fn(Point) -> Fault) -> Vec<Vec<Fault>> {
    let most = points.iter().map(|points| points.len()).max().unwrap_or(0);
    let fault = |points: &&[Point], life: usize| points.get(life).cloned().map_or(Fault::None, make);
    (0..most).map(|life| points.iter().map(|points| fault(points, life)).collect()).collect()
}

/// What is wrong with a life, beside the one without a fault.
fn verdict(plain: &[Step], lived: &[Step], faults: &[Fault]) -> Result<(), String> {
    for (number, (now, then)) in lived.iter().zip(plain).enumerate() {
        if now.seen != then.seen {
            let differs = json_patch::diff(&then.seen, &now.seen);
            return Err(format!("step {number} ends otherwise than without a fault: {differs}"));
        }
        let mut made = now.made().clone();
        if faults.get(number).is_some_and(parts_claim_from_pod) {
            forget_one_claim(&mut made);
        }
        if made != *then.made() && now.made() != then.made() {
            return Err(format!(
                "step {number} made {:?}, and without a fault {:?}",
                now.made(),
                then.made()
            ));
        }
    }
    let requests = |steps: &[Step]| steps.iter().map(Step::requests).sum::<usize>();
    let (times, more) = BOUND;
    if requests(lived) > requests(plain) * times + more {
        return Err(format!("{} requests, and without a fault {}", requests(lived), requests(plain)));
    }
    Ok(())
}

/// A claim without a pod is never used again, since nobody can say what is on its volume: whoever is stopped between the
/// two makes another one, and deletes the first.
fn parts_claim_from_pod(fault: &Fault) -> bool {
    let between =
        |point: &Point| ["create persistentvolumeclaims", "create pods"].contains(&point.kind.as_str());
    matches!(fault, Fault::At(point, _) | Fault::StaleStart(point) if between(point))
}

fn forget_one_claim(made: &mut BTreeMap<String, usize>) {
    for verb in ["create", "delete"] {
        let kind = format!("{verb} persistentvolumeclaims");
        let left = made.remove(&kind).unwrap_or(0).saturating_sub(1);
        if left > 0 {
            made.insert(kind, left);
        }
    }
}
