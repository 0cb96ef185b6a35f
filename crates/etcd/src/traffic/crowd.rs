//! A crowd on few keys: clients that write, read and compare-and-swap the same ones, one that watches them all, and one
//! that holds a lease. They do not retry; what they saw is judged in the end.

use super::history::{Deed, Op, Written, violations};
use crate::kv::{RangeRequest, TxnRequest, last_changed_at, put_op, revision};
use crate::{Error, Expect, Lease, Member, Result};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const PREFIX: &str = "crowd/";
const LEASED: &str = "leased";
const KEYS: usize = 4;
const CLIENTS: usize = 5;
/// Of each client, between two requests.
const PACE: Duration = Duration::from_millis(100);
/// How long one request may take; then its fate is unknown.
const PATIENCE: Duration = Duration::from_secs(2);
const TTL_SECONDS: i64 = 20;
/// How long the watch may take to catch up in the end.
const CATCH_UP: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Seen {
    pub ops: usize,
    pub answered: usize,
    pub watched: usize,
    pub leases_renewed: usize,
    pub violations: Vec<String>,
}

#[derive(Debug)]
pub struct Crowd {
    endpoints: watch::Sender<Vec<String>>,
    stop: CancellationToken,
    /// The watch goes on until it has told of the last write.
    reached: watch::Sender<Option<i64>>,
    clients: JoinSet<Vec<Op>>,
    watcher: JoinSet<Vec<Written>>,
    holder: JoinSet<(usize, Vec<String>)>,
}

impl Crowd {
    pub fn start(endpoints: Vec<String>) -> Self {
        let endpoints = watch::Sender::new(endpoints);
        let (stop, reached, began) = (CancellationToken::new(), watch::Sender::new(None), Instant::now());
        let (mut clients, mut watcher, mut holder) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let dial = |turn| Dial { endpoints: endpoints.subscribe(), turn, link: None };
        for number in 0..CLIENTS {
            let client = Client { number, dial: dial(number), began, ops: Vec::new() };
            clients.spawn(client.run(stop.clone()));
        }
        watcher.spawn(watch_all(dial(0), reached.subscribe()));
        holder.spawn(hold_lease(dial(1), stop.clone()));
        Self { endpoints, stop, reached, clients, watcher, holder }
    }

    pub fn set_endpoints(&self, endpoints: Vec<String>) {
        self.endpoints.send_replace(endpoints);
    }

    pub async fn finish(mut self) -> Seen {
        self.stop.cancel();
        let mut seen = Seen::default();
        let mut ops = Vec::new();
        while let Some(client) = self.clients.join_next().await {
            match client {
                Ok(done) => ops.extend(done),
                Err(error) => seen.violations.push(format!("a client broke: {error}")),
            }
        }
        let last = ops.iter().filter_map(Op::shows).map(|shown| shown.revision).max();
        self.reached.send_replace(last.or(Some(0)));
        let watched = match self.watcher.join_next().await {
            Some(Ok(watched)) => watched,
            other => {
                seen.violations.push(format!("the watcher broke: {other:?}"));
                Vec::new()
            }
        };
        match self.holder.join_next().await {
            Some(Ok((renewed, broken))) => {
                seen.leases_renewed = renewed;
                seen.violations.extend(broken);
            }
            other => seen.violations.push(format!("the holder of the lease broke: {other:?}")),
        }
        seen.violations.extend(violations(&ops, &watched));
        seen.ops = ops.len();
        seen.answered = ops.iter().filter(|op| op.answer.is_some()).count();
        seen.watched = watched.len();
        seen
    }
}

/// Stays with an endpoint until it fails.
struct Dial {
    endpoints: watch::Receiver<Vec<String>>,
    turn: usize,
    link: Option<(String, Member)>,
}

impl Dial {
    fn member(&mut self) -> Result<Member> {
        let endpoints = self.endpoints.borrow_and_update().clone();
        let address = endpoints
            .get(self.turn % endpoints.len().max(1))
            .ok_or_else(|| Error::Unreachable("there are no endpoints".into()))?;
        if let Some((_, member)) = self.link.as_ref().filter(|(known, _)| known == address) {
            return Ok(member.clone());
        }
        let member = Member::connect(address, Expect::default())?.with_deadline(PATIENCE);
        self.link = Some((address.clone(), member.clone()));
        Ok(member)
    }

    fn next(&mut self) {
        self.turn += 1;
    }
}

struct Client {
    number: usize,
    dial: Dial,
    began: Instant,
    ops: Vec<Op>,
}

impl Client {
    async fn run(mut self, stop: CancellationToken) -> Vec<Op> {
        let mut seen = [0; KEYS];
        let mut count = 0;
        while !stop.is_cancelled() {
            let which = (count * 7 + self.number) % KEYS;
            let value = format!("{}-{count}", self.number);
            let deed = match count % 3 {
                0 => Deed::Put(value),
                1 => Deed::Get(None),
                _ => Deed::Swap { value, seen: seen[which], won: false },
            };
            if let Some(at) = self.request(format!("{PREFIX}{which}"), deed).await {
                seen[which] = at;
            }
            count += 1;
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(PACE) => {}
            }
        }
        self.ops
    }

    /// Gives the revision of the key's last write, if it was told.
    async fn request(&mut self, key: String, deed: Deed) -> Option<i64> {
        let began = self.began.elapsed();
        let answer = match self.dial.member() {
            Ok(member) => ask(&member, &key, deed.clone()).await,
            Err(error) => Err(error),
        };
        let ended = self.began.elapsed();
        let Ok((deed, at, revision)) = answer else {
            self.dial.next();
            if !matches!(deed, Deed::Get(_)) {
                self.ops.push(Op { key, deed, began, answer: None });
            }
            return None;
        };
        self.ops.push(Op { key, deed, began, answer: Some((ended, revision)) });
        at
    }
}

/// The deed as it turned out, the revision of the key's last write if that was told, and the store's revision.
async fn ask(member: &Member, key: &str, deed: Deed) -> Result<(Deed, Option<i64>, i64)> {
    match deed {
        Deed::Put(value) => {
            let at = member.put(key, value.clone()).await?;
            Ok((Deed::Put(value), Some(at), at))
        }
        Deed::Get(_) => {
            let mut answer = member.range(RangeRequest { key: key.into(), ..Default::default() }).await?;
            let at = revision(answer.header)?;
            let found = answer.kvs.pop();
            let found = found.map(|kv| (String::from_utf8_lossy(&kv.value).into_owned(), kv.mod_revision));
            let last = found.as_ref().map_or(0, |(_, at)| *at);
            Ok((Deed::Get(found), Some(last), at))
        }
        Deed::Swap { value, seen, .. } => {
            let txn = TxnRequest {
                compare: vec![last_changed_at(key, seen)],
                success: vec![put_op(key, value.clone())],
                failure: Vec::new(),
            };
            let answer = member.txn(txn).await?;
            let (won, at) = (answer.succeeded, revision(answer.header)?);
            Ok((Deed::Swap { value, seen, won }, won.then_some(at), at))
        }
    }
}

/// Goes on where it was after each break, until it has told of the last write.
async fn watch_all(mut dial: Dial, mut reached: watch::Receiver<Option<i64>>) -> Vec<Written> {
    let mut told: Vec<Written> = Vec::new();
    let mut end: Option<Instant> = None;
    loop {
        let last = told.last().map_or(0, |shown| shown.revision);
        if let Some(goal) = *reached.borrow_and_update() {
            let end = *end.get_or_insert_with(|| Instant::now() + CATCH_UP);
            if last >= goal || Instant::now() > end {
                return told;
            }
        }
        let Ok(member) = dial.member() else {
            sleep(PACE).await;
            continue;
        };
        let Ok(mut watcher) = member.watch(PREFIX, last + 1).await else {
            dial.next();
            sleep(PACE).await;
            continue;
        };
        // A quiet watch may be one on a member that hears nothing: it is asked for anew.
        while let Ok(Ok(events)) = timeout(PATIENCE, watcher.next()).await {
            told.extend(events.into_iter().filter_map(|event| event.kv).map(|kv| Written {
                key: String::from_utf8_lossy(&kv.key).into_owned(),
                value: String::from_utf8_lossy(&kv.value).into_owned(),
                revision: kv.mod_revision,
            }));
        }
        dial.next();
    }
}

/// A key on a lease that is renewed in time must be there.
async fn hold_lease(mut dial: Dial, stop: CancellationToken) -> (usize, Vec<String>) {
    let ttl = Duration::from_secs(TTL_SECONDS.unsigned_abs());
    let (mut renewed, mut broken) = (0, Vec::new());
    let mut held: Option<(Lease, Instant)> = None;
    while !stop.is_cancelled() {
        let asked = Instant::now();
        let round = async {
            let member = dial.member()?;
            let Some((lease, until)) = held else {
                let lease = member.grant_lease(TTL_SECONDS).await?;
                member.put_leased(LEASED, "held", lease).await?;
                held = Some((lease, asked + ttl));
                return Ok(());
            };
            let there = member.get(LEASED).await?.is_some();
            if !there && Instant::now() < until {
                broken
                    .push(format!("the key of a lease that had {:?} left was gone", until - Instant::now()));
            }
            held = match member.renew_lease(lease).await? {
                Some(lease) => {
                    renewed += 1;
                    Some((lease, asked + ttl))
                }
                None => None,
            };
            Ok::<_, Error>(())
        };
        if round.await.is_err() {
            dial.next();
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(Duration::from_secs(1)) => {}
        }
    }
    (renewed, broken)
}
