//! The simulated etcd that the model checker walks gives the answers that real etcd gives: the same random changes of
//! membership happen to both.

use super::SOON;
use super::cluster::Cluster;
use domain::quorum::quorum;
use domain::sim::{Arms, Glitch, Process, Refused, SimPod, World, spec};
use domain::{MemberId, Moment, Name, Rule, Storage, Uid, Version};
use etcd::process::{Bootstrap, Place, eventually};
use etcd::{Error, Member};
use lab::programs::EtcdVersion::{self, V3_3_12, V3_4_15, V3_5_16, V3_5_35, V3_6_16};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rstest::rstest;
use std::collections::BTreeSet;
use std::time::Duration;

/// Changes in one sequence; each may have to wait until all voters have been connected for 5 s.
const CHANGES: usize = 12;

#[derive(Debug)]
enum Change {
    Add { learner: bool },
    Start(usize),
    Promote(usize),
    Remove(usize),
    MoveLeader(usize),
    Stop(usize),
    Resume(usize),
}

/// One member, in both.
struct Twin {
    name: Name,
    simulated: MemberId,
    real: MemberId,
    place: Place,
    launched: bool,
    stopped: bool,
}

struct Both {
    world: World,
    etcd: std::path::PathBuf,
    version: Version,
    flags: Vec<String>,
    twins: Vec<Twin>,
    named: u32,
}

#[rstest]
#[tokio::test]
async fn the_simulated_etcd_answers_as_the_real_one(
    #[values(V3_3_12, V3_4_15, V3_5_16, V3_5_35, V3_6_16)] version: EtcdVersion,
    #[values(1, 2)] seed: u64,
) {
    let seed = std::env::var("MODEL_SEED").map_or(seed, |seed| seed.parse().unwrap());
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut both = Both::start(version).await;
    for _ in 0..CHANGES {
        let change = both.choose(&mut random);
        let expected = both.simulate(&change);
        println!("{change:?}: {expected:?}");
        both.perform(&change, expected).await;
        both.compare_lists().await;
    }
}

impl Both {
    async fn start(version: EtcdVersion) -> Self {
        let flags = if version == V3_6_16 { vec!["--max-learners=7"] } else { Vec::new() };
        let Cluster { places, etcd } = Cluster::start_with(version, 3, &flags).await;
        let mut world = World::new(spec(3, version.as_str(), Storage::EmptyDir), 9);
        while world.reconcile(&Glitch::default(), None).plan.rule != Rule::Steady {
            world.tick();
        }
        let listed = world.clusters[&world.recorded.cluster.unwrap()].members.clone();
        let mut twins = Vec::new();
        for (place, simulated) in places.into_iter().zip(listed) {
            let real = place.member().unwrap().status().await.unwrap().identity.member;
            let (name, simulated) = (simulated.name, simulated.id);
            twins.push(Twin { name, simulated, real, place, launched: true, stopped: false });
        }
        let flags = flags.into_iter().map(str::to_owned).collect();
        Self { world, etcd, version: version.as_str().parse().unwrap(), flags, twins, named: 0 }
    }

    fn learner(&self, nth: usize) -> bool {
        let cluster = &self.world.clusters[&self.world.recorded.cluster.unwrap()];
        cluster.member(self.twins[nth].simulated).unwrap().learner
    }

    fn runs(&self, nth: usize) -> bool {
        self.twins[nth].launched && !self.twins[nth].stopped
    }

    /// Any change that does not end the quorum: without one both only say that there is none.
    fn choose(&self, random: &mut StdRng) -> Change {
        let nth = random.random_range(0..self.twins.len());
        let voters: Vec<_> = (0..self.twins.len()).filter(|nth| !self.learner(*nth)).collect();
        let up = voters.iter().filter(|nth| self.runs(**nth)).count();
        let spare = up > quorum(voters.len());
        let mut open = vec![Change::Remove(nth), Change::MoveLeader(nth)];
        let counts = self.learner(nth) || spare;
        match (self.twins[nth].launched, self.twins[nth].stopped) {
            (false, _) => open.push(Change::Start(nth)),
            (true, true) => open.push(Change::Resume(nth)),
            (true, false) if counts => open.push(Change::Stop(nth)),
            _ => {}
        }
        // A voter that is only added takes part in the count at once.
        let another_voter = up >= quorum(voters.len() + 1);
        if self.twins.len() < 6 && self.version.has_learners() {
            open.extend(
                [true, true, false].map(|learner| Change::Add { learner: learner || !another_voter }),
            );
        } else if self.twins.len() < 6 && another_voter {
            open.extend([(); 3].map(|()| Change::Add { learner: false }));
        }
        // 3.4.15 promotes even a learner that never ran; and one that stopped is ready or not by how much it missed.
        let never_ran = self.learner(nth) && !self.twins[nth].launched;
        if self.version.has_learners() && self.runs(nth) || self.version.minor > 4 && never_ran {
            open.push(Change::Promote(nth));
        }
        let chosen = (0..open.len()).collect::<Vec<_>>();
        open.swap_remove(*chosen.choose(random).unwrap())
    }

    fn simulate(&mut self, change: &Change) -> Result<(), Refused> {
        let world = &mut self.world;
        let answer = match *change {
            Change::Add { learner } => {
                self.named += 1;
                let name = Name(format!("n{}", self.named));
                world.add_member(&name, learner).map(|simulated| {
                    let place = Place::new(name.as_str()).unwrap();
                    let real = MemberId(0);
                    self.twins.push(Twin { name, simulated, real, place, launched: false, stopped: false });
                })
            }
            Change::Start(nth) => {
                let peers: BTreeSet<_> = self.twins.iter().map(|twin| twin.name.clone()).collect();
                let pod = joining(self.version, peers);
                world.pods.insert(self.twins[nth].name.clone(), pod);
                Ok(())
            }
            Change::Stop(nth) | Change::Resume(nth) => {
                let pod = world.pods.get_mut(&self.twins[nth].name).unwrap();
                let Process::Up { paused, .. } = &mut pod.process else { panic!("it does not run") };
                *paused = matches!(change, Change::Stop(_));
                Ok(())
            }
            Change::Promote(nth) => world.promote(self.twins[nth].simulated),
            Change::Remove(nth) => world.remove_member(self.twins[nth].simulated),
            Change::MoveLeader(nth) => {
                let leader = world.clusters[&world.recorded.cluster.unwrap()].leader.unwrap();
                world.move_leader(leader, self.twins[nth].simulated)
            }
        };
        for _ in 0..3 {
            self.world.tick();
        }
        for pod in self.world.pods.values_mut() {
            pod.arms = Arms::Disarmed;
        }
        answer
    }

    async fn perform(&mut self, change: &Change, expected: Result<(), Refused>) {
        match *change {
            Change::Add { learner } => {
                // The twin is there if the simulated one was added.
                let spare;
                let url = if expected.is_ok() {
                    self.twins.last().unwrap().place.peer_url()
                } else {
                    spare = Place::new("refused").unwrap();
                    spare.peer_url()
                };
                let added = self
                    .agree(expected, async |member: &Member| {
                        member.add_member(vec![url.clone()], learner).await
                    })
                    .await;
                if let Some(added) = added {
                    self.twins.last_mut().unwrap().real = added.id;
                }
            }
            Change::Start(nth) | Change::Resume(nth) => {
                let mut join = Bootstrap::join(self.twins.iter().map(|twin| &twin.place));
                join.flags.clone_from(&self.flags);
                let twin = &mut self.twins[nth];
                twin.place.start(&self.etcd, &join).unwrap();
                (twin.launched, twin.stopped) = (true, false);
                let member = self.twins[nth].place.member().unwrap();
                eventually("it runs and follows", SOON, async || {
                    member.status().await?.leader.ok_or(Error::NoLeader)
                })
                .await
                .unwrap();
            }
            Change::Stop(nth) => {
                self.twins[nth].place.kill().unwrap();
                self.twins[nth].stopped = true;
            }
            Change::Promote(nth) => {
                let id = self.twins[nth].real;
                self.agree(expected, async |member: &Member| member.promote(id).await).await;
            }
            Change::Remove(nth) => {
                let id = self.twins[nth].real;
                // A leader that removes itself may go before it answers.
                let asked = std::cell::Cell::new(false);
                self.agree(expected, async |member: &Member| match member.remove_member(id).await {
                    Err(Error::MemberNotFound) if asked.get() => Ok(()),
                    answer => {
                        asked.set(true);
                        answer
                    }
                })
                .await;
                if expected.is_ok() {
                    let gone = self.twins.remove(nth);
                    self.world.pods.remove(&gone.name);
                }
            }
            Change::MoveLeader(nth) => {
                let id = self.twins[nth].real;
                self.agree(expected, async |member: &Member| member.move_leader(id).await).await;
            }
        }
    }

    /// Asks until the real answer is the expected one. What only passes may be waited for; what was done cannot be undone.
    async fn agree<T>(
        &self,
        expected: Result<(), Refused>,
        ask: impl AsyncFn(&Member) -> etcd::Result<T>,
    ) -> Option<T> {
        let wanted = expected.map_or_else(|refused| refused.0, |()| "done");
        eventually(&format!("etcd, too, says {wanted:?}"), SOON, async || {
            let leader = self.leader().await?;
            match ask(&leader).await {
                Ok(done) if expected.is_ok() => Ok(Some(done)),
                Ok(_) => panic!("etcd did what the simulated one refuses: {wanted}"),
                Err(error) if said(&error) == wanted => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
        .unwrap()
    }

    async fn leader(&self) -> etcd::Result<Member> {
        for twin in self.twins.iter().filter(|twin| twin.launched && !twin.stopped) {
            let member = twin.place.member()?.with_deadline(Duration::from_secs(3));
            // One that was just removed is gone before it is struck off.
            let Ok(status) = member.status().await else { continue };
            if status.leader == Some(status.identity.member) {
                return Ok(member);
            }
        }
        Err(Error::NoLeader)
    }

    async fn compare_lists(&self) {
        let cluster = &self.world.clusters[&self.world.recorded.cluster.unwrap()];
        let expected: BTreeSet<_> = self
            .twins
            .iter()
            .map(|twin| {
                let member = cluster.member(twin.simulated).unwrap();
                (twin.real.0, member.learner, member.started)
            })
            .collect();
        assert_eq!(cluster.members.len(), expected.len());
        eventually("both list the same members", SOON, async || {
            let listed = self.leader().await.map_err(|error| error.to_string())?.members().await;
            let listed = listed.map_err(|error| error.to_string())?;
            let listed: BTreeSet<_> =
                listed.iter().map(|member| (member.id.0, member.learner, !member.name.is_empty())).collect();
            if listed == expected { Ok(()) } else { Err(format!("etcd {listed:?}, simulated {expected:?}")) }
        })
        .await
        .unwrap();
    }
}

/// The simulated etcd's words for a real answer.
fn said(error: &Error) -> &'static str {
    match error {
        Error::UnhealthyCluster | Error::NotEnoughStarted => "unhealthy cluster",
        Error::TooManyLearners => "too many learners",
        Error::LearnerNotReady => "learner not ready",
        Error::NotALearner => "not a learner",
        Error::MemberNotFound => "member not found",
        Error::PeerUrlTaken => "peer URL already exists",
        // A leader that waits in vain for its heir says nothing else.
        Error::NotAVoter | Error::NotLeader | Error::TimedOut => "not leader",
        _ => "something else",
    }
}

fn joining(version: Version, peers: BTreeSet<Name>) -> SimPod {
    SimPod {
        uid: Uid("by hand".to_owned()),
        node: None,
        version,
        repository: "repo".to_owned(),
        arms: Arms::Existing { peers },
        serving: false,
        template: "t0".to_owned(),
        claim: None,
        disk: None,
        deleting: false,
        failed: false,
        failures: 0,
        created: Moment(0),
        changed: Moment(0),
        process: Process::Down,
    }
}
