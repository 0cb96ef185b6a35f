//! What a life asked for, and what came of it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use hyper::body::Bytes;

use crate::{Fault, Point};

/// One read in so many fails while reads fail.
const ONE_IN: u64 = 4;

#[derive(Default)]
pub struct Book {
    /// How many writes of each kind were done.
    written: HashMap<String, usize>,
    requests: Vec<String>,
    points: Vec<Point>,
    made: BTreeMap<String, usize>,
    failed: usize,
    /// The first answer to each list that a watch began with.
    pub(crate) lists: HashMap<String, Bytes>,
}

impl Book {
    /// `METHOD path?query` of each request to Kubernetes, leases and questions about rights apart, and the name of each
    /// call to etcd.
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// The last of them.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.requests[self.requests.len().saturating_sub(20)..].to_vec()
    }

    /// Every write so far; one that was refused is none.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// How many of each were created and deleted: objects, and members of etcd.
    pub fn made(&self) -> &BTreeMap<String, usize> {
        &self.made
    }

    /// Whether that trouble was met: the write that it is about may not have come.
    pub fn met(&self, fault: &Fault) -> bool {
        match fault {
            Fault::None | Fault::Watches(_) => true,
            Fault::At(point, _) | Fault::StaleStart(point) => self.points.contains(point),
            Fault::Reads { .. } => self.failed > 0,
        }
    }

    pub(crate) fn asked(&mut self, what: String) {
        self.requests.push(what);
    }

    /// The number of the write of this kind that is done next.
    pub(crate) fn next(&self, kind: &str) -> usize {
        self.written.get(kind).map_or(1, |written| written + 1)
    }

    pub(crate) fn wrote(&mut self, kind: &str) {
        let nth = self.next(kind);
        self.written.insert(kind.to_owned(), nth);
        self.points.push(Point { kind: kind.to_owned(), nth });
    }

    /// What a watch began with stays known.
    pub(crate) fn turn(&mut self) -> Self {
        let next = Self { lists: std::mem::take(&mut self.lists), ..Self::default() };
        std::mem::replace(self, next)
    }

    pub(crate) fn made_one(&mut self, kind: &str) {
        *self.made.entry(kind.to_owned()).or_default() += 1;
    }

    /// Whether this read fails: some do, by the seed, until there were enough.
    pub(crate) fn fails(&mut self, seed: u64, most: usize) -> bool {
        let mut hasher = DefaultHasher::new();
        (seed, self.requests.len()).hash(&mut hasher);
        let fails = self.failed < most && hasher.finish().is_multiple_of(ONE_IN);
        self.failed += usize::from(fails);
        fails
    }
}
