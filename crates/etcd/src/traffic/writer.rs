//! One client: its requests, its retries, and its memory.

use super::Config;
use crate::kv::{RangeRequest, TxnRequest, last_changed_at, put_op, revision};
use crate::{Error, Expect, Member, Result};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// Between two attempts of one request, so that a cluster that refuses everything is not flooded.
const PAUSE: Duration = Duration::from_millis(50);

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    pub began: Instant,
    pub ended: Instant,
    /// Of the store when the request was applied: etcd's own order of everything.
    pub revision: i64,
    pub write: bool,
}

/// What a key must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Promise {
    pub value: Vec<u8>,
    pub revision: i64,
    /// Values of attempts that got no answer: they may have been written later.
    pub maybe: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct History {
    pub answered: Vec<Answered>,
    pub promises: BTreeMap<Vec<u8>, Promise>,
    /// When it began, what it was, and how the last attempt ended.
    pub failures: Vec<(Instant, &'static str, Error)>,
    pub violations: Vec<String>,
}

impl History {
    pub(super) fn broken(error: &tokio::task::JoinError) -> Self {
        Self { violations: vec![format!("a writer broke: {error}")], ..Self::default() }
    }
}

pub(super) struct Writer {
    name: String,
    number: u32,
    patience: Duration,
    attempt: Duration,
    endpoints: watch::Receiver<Vec<String>>,
    connections: HashMap<String, Member>,
    /// Stays with an endpoint until it fails.
    turn: usize,
    history: History,
}

impl Writer {
    pub(super) fn new(number: u32, config: &Config, endpoints: watch::Receiver<Vec<String>>) -> Self {
        Self {
            name: format!("{}{number}/", config.prefix),
            number,
            patience: config.patience,
            attempt: config.attempt,
            endpoints,
            connections: HashMap::new(),
            turn: number as usize,
            history: History::default(),
        }
    }

    pub(super) async fn run(mut self, pace: Duration, stop: CancellationToken, end: Instant) -> History {
        let mut ticks = interval(pace);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count: u64 = 0;
        while Instant::now() < end {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            let (round, turn) = (count / 3, count % 3);
            let key = format!("{}{round:08}", self.name).into_bytes();
            let value = format!("{}-{round}", self.number).into_bytes();
            match turn {
                0 => self.put(key, value).await,
                1 => self.read(key).await,
                _ => self.swap(value).await,
            }
            count += 1;
        }
        self.history
    }

    async fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let put = |member: Member| {
            let (key, value) = (key.clone(), value.clone());
            async move { member.put(key, value).await }
        };
        if let Some(Outcome { answer: revision, began, attempts }) = self.request("put", put).await {
            self.answered(began, revision, true);
            // An attempt that got no answer may still land, with the same value.
            let maybe = if attempts > 1 { vec![value.clone()] } else { Vec::new() };
            self.history.promises.insert(key, Promise { value, revision, maybe });
        }
    }

    /// Reads the key written last: what was promised must be there.
    async fn read(&mut self, key: Vec<u8>) {
        let get = |member: Member| {
            let key = key.clone();
            async move { member.range(RangeRequest { key, ..Default::default() }).await }
        };
        let Some(Outcome { mut answer, began, .. }) = self.request("get", get).await else { return };
        self.answered(began, answer.header.map_or(0, |header| header.revision), false);
        let found = answer.kvs.pop().map(|found| found.value);
        if let Some(promise) = self.history.promises.get(&key)
            && found.as_ref() != Some(&promise.value)
        {
            let key = String::from_utf8_lossy(&key);
            self.history.violations.push(format!("{key} was acknowledged and then read as {found:?}"));
        }
    }

    /// Moves this writer's own key on; of all attempts at most one may succeed.
    async fn swap(&mut self, value: Vec<u8>) {
        let key = format!("{}swap", self.name).into_bytes();
        let seen = self.history.promises.get(&key).map_or(0, |promise| promise.revision);
        let swap = |member: Member| {
            let (key, value) = (key.clone(), value.clone());
            async move { swap(&member, key, value, seen).await }
        };
        match self.request("swap", swap).await {
            Some(Outcome { answer: revision, began, .. }) => {
                self.answered(began, revision, true);
                self.history.promises.insert(key, Promise { value, revision, maybe: Vec::new() });
            }
            None => {
                if let Some(promise) = self.history.promises.get_mut(&key) {
                    promise.maybe.push(value);
                }
            }
        }
    }

    /// One request, tried on one endpoint after the other until its patience ends.
    async fn request<T, F>(
        &mut self,
        name: &'static str,
        mut attempt: impl FnMut(Member) -> F,
    ) -> Option<Outcome<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let began = Instant::now();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let error = match self.endpoint() {
                Ok(member) => match attempt(member).await {
                    Ok(answer) => return Some(Outcome { answer, began, attempts }),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            self.turn += 1;
            if began.elapsed() > self.patience {
                self.history.failures.push((began, name, error));
                return None;
            }
            sleep(PAUSE).await;
        }
    }

    /// The endpoint whose turn it is.
    fn endpoint(&mut self) -> Result<Member> {
        let endpoints = self.endpoints.borrow_and_update().clone();
        let address = endpoints
            .get(self.turn % endpoints.len().max(1))
            .ok_or_else(|| Error::Unreachable("there are no endpoints".into()))?;
        if let Some(member) = self.connections.get(address) {
            return Ok(member.clone());
        }
        self.connections.retain(|address, _| endpoints.contains(address));
        let member = Member::connect(address, Expect::default())?.with_deadline(self.attempt);
        self.connections.insert(address.clone(), member.clone());
        Ok(member)
    }

    fn answered(&mut self, began: Instant, revision: i64, write: bool) {
        self.history.answered.push(Answered { began, ended: Instant::now(), revision, write });
    }
}

struct Outcome<T> {
    answer: T,
    began: Instant,
    attempts: u32,
}

/// Writes `value` over what was last `seen`. If the key moved, an earlier attempt of this writer landed after
/// all: either it was this one, or it is the one to go on from.
async fn swap(member: &Member, key: Vec<u8>, value: Vec<u8>, mut seen: i64) -> Result<i64> {
    loop {
        let txn = TxnRequest {
            compare: vec![last_changed_at(key.clone(), seen)],
            success: vec![put_op(key.clone(), value.clone())],
            failure: Vec::new(),
        };
        let answer = member.txn(txn).await?;
        if answer.succeeded {
            return revision(answer.header);
        }
        match member.get(key.clone()).await? {
            Some(found) if found.value == value => return Ok(found.mod_revision),
            found => seen = found.map_or(0, |found| found.mod_revision),
        }
    }
}
