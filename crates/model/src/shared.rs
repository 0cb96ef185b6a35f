//! A state of the checker. Worlds have most of their parts in common, and share them: that is what lets millions of them
//! wait in memory.

use std::collections::{BTreeMap, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use dashmap::DashMap;
use domain::sim::{Cluster, Intent, Memory, SimClaim, SimPod, World};
use domain::{ClusterId, Name};

/// A world in normal form, what a rival intends in it, and how many troubles are still to come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Everything but the parts below, which are empty in it.
    frame: Arc<World>,
    pods: Arc<BTreeMap<Name, SimPod>>,
    claims: Arc<BTreeMap<Name, SimClaim>>,
    cached_pods: Arc<BTreeMap<Name, SimPod>>,
    cached_claims: Arc<BTreeMap<Name, SimClaim>>,
    clusters: Arc<BTreeMap<ClusterId, Cluster>>,
    memory: Arc<Memory>,
    pub rival: Option<Arc<Intent>>,
    pub troubles: u8,
}

/// Every part that there is, once.
#[derive(Default)]
pub struct Parts {
    frames: Pool<World>,
    pods: Pool<BTreeMap<Name, SimPod>>,
    claims: Pool<BTreeMap<Name, SimClaim>>,
    clusters: Pool<BTreeMap<ClusterId, Cluster>>,
    memories: Pool<Memory>,
    intents: Pool<Intent>,
}

impl Parts {
    pub fn pack(&self, mut world: World, mut rival: Option<Intent>, troubles: u8) -> State {
        world.normalise(rival.as_mut());
        let (cached_pods, cached_claims) = std::mem::take(&mut world.cache);
        State {
            pods: self.pods.share(std::mem::take(&mut world.pods)),
            claims: self.claims.share(std::mem::take(&mut world.claims)),
            cached_pods: self.pods.share(cached_pods),
            cached_claims: self.claims.share(cached_claims),
            clusters: self.clusters.share(std::mem::take(&mut world.clusters)),
            memory: self.memories.share(std::mem::take(&mut world.memory)),
            frame: self.frames.share(world),
            rival: rival.map(|rival| self.intents.share(rival)),
            troubles,
        }
    }
}

impl State {
    pub fn world(&self) -> World {
        let mut world = World::clone(&self.frame);
        world.pods = BTreeMap::clone(&self.pods);
        world.claims = BTreeMap::clone(&self.claims);
        world.cache = (BTreeMap::clone(&self.cached_pods), BTreeMap::clone(&self.cached_claims));
        world.clusters = BTreeMap::clone(&self.clusters);
        world.memory = Memory::clone(&self.memory);
        world
    }

    pub fn broken(&self) -> &[String] {
        &self.frame.broken
    }
}

struct Pool<T>(DashMap<u64, Vec<Arc<T>>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(DashMap::new())
    }
}

impl<T: Eq + Hash> Pool<T> {
    fn share(&self, part: T) -> Arc<T> {
        let mut alike = self.0.entry(hash(&part)).or_default();
        if let Some(known) = alike.iter().find(|known| ***known == part) {
            return Arc::clone(known);
        }
        let part = Arc::new(part);
        alike.push(Arc::clone(&part));
        part
    }
}

/// The same in every run.
pub fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
