//! Operator, seed pod and S3 server die at each step of a restore: it ends right, or failed and nothing was touched.

use std::time::Instant;

use api::v1beta2::EtcdClusterStatus;
use etcd::{Expect, Member};
use kube::ResourceExt;
use lab::kit::{TestNamespace, lab_alone, shared_lab};
use lab::wait::until;
use rstest::rstest;
use serde_json::json;

use super::gate::{self, Gate, Moment};
use super::stopped::{Stopped, TRIES, is_etcd};
use super::{NAME, Scene, VERSION, ask, at, bucket, ended, operator, restores, spec, writes};
use crate::support::{Cluster, LIMIT, Operator, Outcome};

/// What a restore does, in its order. It is stopped in the middle of each, and only then does a fault strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The operator reads the backup.
    Verifying,
    /// The operator saves what the cluster still has.
    Saving,
    /// The seed pod fetches the backup,
    Fetching,
    /// etcd's own tool makes a member's data from it,
    Restoring,
    /// that is compared with the backup,
    Comparing,
    /// and etcd starts on it. It is not the cluster yet.
    Starting,
    /// It is, and grows.
    Filling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Killed, and started anew.
    Operator,
    /// Deleted.
    Seed,
    /// Killed, and started anew.
    Store,
}

impl Step {
    fn has_seed(self) -> bool {
        !matches!(self, Self::Verifying | Self::Saving)
    }
}

/// Values enough that each step takes its time.
const PAYLOAD: usize = 64;
const VALUE: usize = 128 * 1024;
/// Written before each restore, and not in the backup.
const SINCE: &str = "since";

/// One cluster, restored again and again.
pub struct Lives<'a> {
    test: &'a TestNamespace<'a>,
    operator: Operator,
    gate: Gate,
    pub cluster: Cluster<'a>,
    promised: u64,
    pub object: String,
    size: usize,
}

/// Where a restore stands still; it goes on when this is dropped.
type Held = (Option<gate::Held>, Option<Stopped>);

impl<'a> Lives<'a> {
    pub async fn begin(test: &'a TestNamespace<'a>, on_volumes: bool) -> Outcome<Self> {
        let operator = operator(test)?;
        let gate = Gate::open(test.lab).await?;
        let size = 1;
        let mut wanted = spec(VERSION, on_volumes);
        wanted["size"] = json!(size);
        let Scene { bucket, cluster, writes, promised, .. } = Scene::set(test, wanted).await?;
        writes.stop().await?;
        for number in 0..PAYLOAD {
            writes::put(&cluster, &format!("payload/{number}"), &"x".repeat(VALUE)).await?;
        }
        let object = bucket.save(&cluster, "backup").await?;
        Ok(Self { test, operator, gate, cluster, promised, object, size })
    }

    /// One restore with these faults at this step.
    async fn live(&mut self, step: Step, faults: &[Fault]) -> Outcome {
        let began = Instant::now();
        // One that has its size with its seed does not fill.
        self.grow(if step == Step::Filling { 2 } else { 1 }).await?;
        let mut tries = 1..TRIES;
        let (before, held) = loop {
            writes::put(&self.cluster, SINCE, "the backup").await?;
            let before = (self.identity().await?, self.cluster.footprints().await?);
            if let Some(held) = self.hold(step).await.map_err(|error| format!("{step:?}: {error}"))? {
                break (before, held);
            }
            tries.next().ok_or(format!("{step:?}: it was never stopped in time"))?;
            ended(self.test).await?;
            self.holds_what_was_saved().await?;
        };
        for fault in faults {
            self.strike(*fault).await?;
        }
        drop(held);
        let status = ended(self.test).await?.status.unwrap_or_default();
        println!(
            "{step:?}, {faults:?}: {} {} after {:.1} s",
            status.phase,
            status.reason,
            began.elapsed().as_secs_f64()
        );
        self.holds_what_was_saved().await?;
        let after = (self.identity().await?, self.cluster.footprints().await?);
        if status.succeeded {
            let (backup, restored) = (status.backup.unwrap_or_default(), status.restored.unwrap_or_default());
            assert_eq!((&backup.digest, backup.keys), (&restored.digest, restored.keys));
            assert!(!backup.digest.is_empty() && before.0 != after.0, "{before:?} became {after:?}");
            assert_eq!(self.since().await?, None, "the backup did not have that");
        } else {
            assert_eq!((status.phase.as_str(), before), ("Failed", after), "it was touched");
            assert!(!status.reason.is_empty() && self.since().await?.is_some(), "{}", status.reason);
        }
        Ok(())
    }

    pub async fn grow(&mut self, size: usize) -> Outcome {
        if self.size != size {
            self.size = size;
            self.cluster.edit(json!({"size": size})).await?;
            self.cluster.settled(size, VERSION).await?;
        }
        Ok(())
    }

    /// The cluster is full, and every member has all that was promised before the backup.
    pub async fn holds_what_was_saved(&self) -> Outcome {
        self.cluster.settled(self.size, VERSION).await?;
        writes::all_there(&self.cluster, self.promised).await
    }

    /// Asks for a restore, and waits until it stands at this step. Nothing if it could not be stopped in time.
    async fn hold(&self, step: Step) -> Outcome<Option<Held>> {
        let object = self.object.clone();
        let backup = move |line: &str| line.starts_with("GET ") && line.contains(&format!("{object} HTTP"));
        let survivor = |line: &str| line.starts_with("PUT ") && line.contains(".survivor-");
        let request = match step {
            Step::Verifying => Some(self.gate.hold(Moment::Asked, backup)),
            Step::Saving => Some(self.gate.hold(Moment::Asked, survivor)),
            // The operator reads all of it first; this is the seed.
            Step::Fetching => Some(self.gate.hold_of_pods(Moment::Asked, backup)),
            _ => None,
        };
        let s3 = json!({"path": self.object, "awsSecret": bucket::SECRET, "endpoint": self.gate.url});
        ask(self.test, &self.object, json!({"force": true, "s3": s3})).await?;
        if let Some(request) = &request {
            request.reached().await?;
        }
        let process: Option<fn(&[&str]) -> bool> = match step {
            Step::Restoring => Some(|line| line.get(1..3) == Some(&["snapshot", "restore"])),
            Step::Comparing => Some(|line| line.get(1..3) == Some(&["snapshot", "verify"])),
            Step::Starting => Some(is_etcd),
            _ => None,
        };
        let mut stopped = None;
        if let Some(right) = process {
            stopped = Stopped::at(self.test.lab, &self.seed().await?.1, right)?;
            if stopped.is_none() {
                return Ok(None);
            }
        }
        if step == Step::Filling {
            // It takes seconds: time enough.
            at(self.test, "Filling").await?;
        }
        Ok(Some((request, stopped)))
    }

    /// Name and UID of the pod that is made from the backup.
    pub async fn seed(&self) -> Outcome<(String, String)> {
        let uid = restores(self.test).get(NAME).await?.uid().unwrap_or_default();
        let named = |status: &EtcdClusterStatus| status.restore.as_ref().is_some_and(|it| it.uid == uid);
        let status = self.cluster.says("to name its seed", LIMIT, named).await?;
        let seed = status.restore.map(|restore| restore.seed).unwrap_or_default();
        let uid = until("the seed's pod", LIMIT, async || {
            let pod = self.cluster.pods_api().get_opt(&seed).await?;
            Ok(pod.and_then(|pod| pod.uid()).ok_or("none".to_owned()))
        });
        Ok((seed.clone(), uid.await?))
    }

    async fn strike(&mut self, fault: Fault) -> Outcome {
        match fault {
            Fault::Operator => self.operator.restart()?,
            Fault::Store => self.test.lab.restart_s3()?,
            Fault::Seed => {
                let (seed, _) = self.seed().await?;
                self.test.kubectl(&["delete", "pod", "--wait=false", "--grace-period=1", &seed]).await?;
            }
        }
        Ok(())
    }

    async fn identity(&self) -> Outcome<String> {
        Ok(self.cluster.get().await?.status.unwrap_or_default().cluster_id)
    }

    async fn since(&self) -> Outcome<Option<Vec<u8>>> {
        let endpoints = self.cluster.endpoints().await?;
        let member = Member::connect(endpoints.first().ok_or("no member")?, Expect::default())?;
        Ok(member.get(SINCE).await?.map(|found| found.value))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_each_step() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "steps").await.unwrap();
    let lives = [
        (Step::Saving, Fault::Operator),
        (Step::Restoring, Fault::Seed),
        (Step::Comparing, Fault::Operator),
        (Step::Starting, Fault::Seed),
        (Step::Filling, Fault::Operator),
    ];
    test.run(async |test| each(test, &lives).await).await.unwrap();
}

/// The steps that talk with it; the lab is alone meanwhile, since it is everyone's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_dies() {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "store-dies").await.unwrap();
    let lives = [(Step::Verifying, Fault::Store), (Step::Fetching, Fault::Store)];
    test.run(async |test| each(test, &lives).await).await.unwrap();
}

async fn each(test: &TestNamespace<'_>, table: &[(Step, Fault)]) -> Outcome {
    let mut lives = Lives::begin(test, false).await?;
    for (step, fault) in table {
        lives.live(*step, &[*fault]).await?;
    }
    Ok(())
}

/// Every set of faults at every step; `make prove` runs these.
#[rstest]
#[case::verifying(Step::Verifying)]
#[case::saving(Step::Saving)]
#[case::fetching(Step::Fetching)]
#[case::restoring(Step::Restoring)]
#[case::comparing(Step::Comparing)]
#[case::starting(Step::Starting)]
#[case::filling(Step::Filling)]
#[ignore = "minutes: see make prove"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_at_each_step(#[case] step: Step) {
    let (lab, _alone) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "all-faults").await.unwrap();
    test.run(async |test| -> Outcome {
        // A seed that dies when it is the cluster already has its data still.
        let mut lives = Lives::begin(test, true).await?;
        for faults in sets(&[Fault::Operator, Fault::Seed, Fault::Store]) {
            if step.has_seed() || !faults.contains(&Fault::Seed) {
                lives.live(step, &faults).await?;
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// All that can come of these, nothing excepted.
fn sets<T: Copy>(all: &[T]) -> Vec<Vec<T>> {
    (1..1_usize << all.len())
        .map(|mask| {
            all.iter().enumerate().filter(|(bit, _)| (mask >> bit) & 1 == 1).map(|(_, one)| *one).collect()
        })
        .collect()
}
