//! Clusters to test with.

use super::{SOON, program};
use etcd::process::{Bootstrap, Place, eventually};
use etcd::{Error, Listed, Member, Status};
use lab::programs::EtcdVersion;
use std::path::PathBuf;
use std::time::Duration;

/// Lets etcd change its membership before all voters have been connected for 5 s.
pub const PROMPT: &str = "--strict-reconfig-check=false";

pub struct Cluster {
    pub places: Vec<Place>,
    pub etcd: PathBuf,
}

impl Cluster {
    /// Members that bootstrap together, as etcd's manual has it: the quickest way to three.
    pub async fn start(version: EtcdVersion, size: usize) -> Self {
        Self::start_with(version, size, &[]).await
    }

    pub async fn start_with(version: EtcdVersion, size: usize, flags: &[&str]) -> Self {
        let etcd = program(version);
        let mut places: Vec<Place> =
            ["a", "b", "c"][..size].iter().map(|name| Place::new(name).unwrap()).collect();
        let mut bootstrap = Bootstrap::new_cluster(&places);
        bootstrap.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        for place in &mut places {
            place.start(&etcd, &bootstrap).unwrap();
        }
        for place in &places {
            place.healthy(SOON).await.unwrap();
        }
        Self { places, etcd }
    }

    pub fn member(&self, index: usize) -> Member {
        self.places[index].member().unwrap().with_deadline(Duration::from_secs(2))
    }

    pub async fn status(&self, index: usize) -> Status {
        self.member(index).status().await.unwrap()
    }

    /// Starts a member again, with the data that it has.
    pub fn restart(&mut self, index: usize) {
        let bootstrap = self.join();
        self.places[index].start(&self.etcd, &bootstrap).unwrap();
    }

    pub fn join(&self) -> Bootstrap {
        Bootstrap::join(&self.places)
    }

    /// Adds a member through the first one, waiting where etcd wants it, and does not start it.
    pub async fn add(&mut self, name: &str, learner: bool) -> Listed {
        let place = Place::new(name).unwrap();
        let first = self.member(0);
        let added = eventually("the member is added", SOON, async || {
            match settled(async || first.add_member(vec![place.peer_url()], learner).await).await {
                Err(error) if !error.is_wait() => panic!("{error}"),
                added => added,
            }
        });
        let added = added.await.unwrap();
        self.places.push(place);
        added
    }

    pub fn start_last(&mut self) {
        let (etcd, join) = (self.etcd.clone(), self.join());
        self.places.last_mut().unwrap().start(&etcd, &join).unwrap();
    }

    pub async fn leader(&self) -> usize {
        eventually("there is a leader", SOON, async || {
            for index in 0..self.places.len() {
                let status = self.member(index).status().await?;
                if status.leader == Some(status.identity.member) {
                    return Ok(index);
                }
            }
            Err(Error::NoLeader)
        })
        .await
        .unwrap()
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.places.iter().map(|place| place.client().to_string()).collect()
    }
}

/// A change that arrives while the one before is not applied yet is dropped by etcd, and its caller waits in vain.
pub async fn settled<T>(mut change: impl AsyncFnMut() -> etcd::Result<T>) -> etcd::Result<T> {
    loop {
        match change().await {
            Err(Error::TimedOut) => {}
            answer => return answer,
        }
    }
}
