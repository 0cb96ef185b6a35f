//! What the traffic saw, and the proof that what it was promised is there.

use super::Config;
use super::writer::{Answered, History, Promise};
use crate::kv::{KeyValue, under};
use crate::{Error, Expect, Member, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PAGE: i64 = 500;
const PAUSE: Duration = Duration::from_millis(100);
const VERIFY_WITHIN: Duration = Duration::from_secs(30);

/// A request that got no answer from any endpoint in its time.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Since the traffic started.
    pub after: Duration,
    pub request: &'static str,
    pub error: Error,
}

/// How long requests took, retries included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    pub median: Duration,
    pub p99: Duration,
    pub longest: Duration,
}

#[derive(Debug)]
pub struct Report {
    pub answered: usize,
    pub writes: usize,
    pub failures: Vec<Failure>,
    /// What must never happen: stale reads, and writes out of order.
    pub violations: Vec<String>,
    /// The longest time in which no request at all was answered.
    pub longest_pause: Duration,
    pub latencies: Latencies,
    promises: BTreeMap<Vec<u8>, Promise>,
    config: Config,
}

/// Why the promises are not proven.
#[derive(Debug, thiserror::Error)]
pub enum Unverified {
    #[error("the keys cannot be read: {0}")]
    Unread(#[from] Error),
    #[error("{} acknowledged writes are lost: {}", .0.len(), .0.join("; "))]
    Lost(Vec<String>),
}

impl Report {
    pub(super) fn of(config: Config, started: Instant, histories: Vec<History>) -> Self {
        let mut answered = Vec::new();
        let mut report = Self {
            answered: 0,
            writes: 0,
            failures: Vec::new(),
            violations: Vec::new(),
            longest_pause: Duration::ZERO,
            latencies: Latencies::default(),
            promises: BTreeMap::new(),
            config,
        };
        for history in histories {
            answered.extend(history.answered);
            report.promises.extend(history.promises);
            report.violations.extend(history.violations);
            report.failures.extend(history.failures.into_iter().map(|(began, request, error)| Failure {
                after: began - started,
                request,
                error,
            }));
        }
        report.answered = answered.len();
        report.writes = answered.iter().filter(|one| one.write).count();
        report.violations.extend(out_of_order(&answered));
        report.longest_pause = longest_pause(started, &answered);
        report.latencies = latencies(&answered);
        report
    }

    /// Reads all keys of the traffic, linearizably, and compares them with what was acknowledged.
    pub async fn verify(&self, endpoints: &[String]) -> std::result::Result<(), Unverified> {
        let found = self.read_all(endpoints).await?;
        let lost: Vec<String> = self
            .promises
            .iter()
            .filter_map(|(key, promise)| {
                let broken = broken(promise, found.get(key))?;
                Some(format!("{}: {broken}", String::from_utf8_lossy(key)))
            })
            .collect();
        if lost.is_empty() { Ok(()) } else { Err(Unverified::Lost(lost)) }
    }

    /// From the first endpoint that can, since some may be gone for good.
    async fn read_all(&self, endpoints: &[String]) -> Result<BTreeMap<Vec<u8>, KeyValue>> {
        let began = Instant::now();
        let mut last = Error::Unreachable("there are no endpoints".into());
        while began.elapsed() < VERIFY_WITHIN {
            for endpoint in endpoints {
                match read_under(&Member::connect(endpoint, Expect::default())?, &self.config.prefix).await {
                    Ok(found) => return Ok(found),
                    Err(error) => last = error,
                }
            }
            sleep(PAUSE).await;
        }
        Err(last)
    }
}

/// In pages, all of the revision that the first page saw.
async fn read_under(member: &Member, prefix: &str) -> Result<BTreeMap<Vec<u8>, KeyValue>> {
    let mut found = BTreeMap::new();
    let mut range = under(prefix);
    range.limit = PAGE;
    loop {
        let page = member.range(range.clone()).await?;
        if let Some(last) = page.kvs.last() {
            range.key = [last.key.as_slice(), &[0]].concat();
        }
        if range.revision == 0 {
            range.revision = page.header.map_or(0, |header| header.revision);
        }
        found.extend(page.kvs.into_iter().map(|found| (found.key.clone(), found)));
        if !page.more {
            return Ok(found);
        }
    }
}

fn broken(promise: &Promise, found: Option<&KeyValue>) -> Option<String> {
    let text = String::from_utf8_lossy;
    let promised = || format!("{:?} at revision {}", text(&promise.value), promise.revision);
    let Some(found) = found else { return Some(format!("{} is gone", promised())) };
    let kept = if found.mod_revision > promise.revision {
        promise.maybe.contains(&found.value)
    } else {
        found.mod_revision == promise.revision && found.value == promise.value
    };
    (!kept)
        .then(|| format!("{} became {:?} at revision {}", promised(), text(&found.value), found.mod_revision))
}

/// Etcd numbers its states. Whatever began after an answer came must see that answer's state or a later one,
/// and a write must make a new one.
fn out_of_order(answered: &[Answered]) -> Vec<String> {
    let mut by_begin: Vec<&Answered> = answered.iter().collect();
    by_begin.sort_by_key(|one| one.began);
    let mut by_end: Vec<&Answered> = answered.iter().collect();
    by_end.sort_by_key(|one| one.ended);
    let mut ended = by_end.into_iter().peekable();
    let mut newest = 0;
    let mut violations = Vec::new();
    for one in by_begin {
        while let Some(before) = ended.next_if(|before| before.ended < one.began) {
            newest = newest.max(before.revision);
        }
        let least = if one.write { newest + 1 } else { newest };
        if one.revision < least {
            let what = if one.write { "write" } else { "read" };
            violations.push(format!("a {what} at revision {} came after revision {newest}", one.revision));
        }
    }
    violations
}

fn longest_pause(started: Instant, answered: &[Answered]) -> Duration {
    let mut ends: Vec<Instant> = answered.iter().map(|one| one.ended).collect();
    ends.push(started);
    ends.sort();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

fn latencies(answered: &[Answered]) -> Latencies {
    let mut all: Vec<Duration> = answered.iter().map(|one| one.ended - one.began).collect();
    all.sort();
    let at =
        |percent: usize| all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
    Latencies { median: at(50), p99: at(99), longest: at(100) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latencies { median, p99, longest } = self.latencies;
        write!(
            f,
            "{} requests answered, {} of them writes; {} failed; longest pause {:.1?}; took {median:.1?} \
             (median), {p99:.1?} (99 %), {longest:.1?} (longest)",
            self.answered,
            self.writes,
            self.failures.len(),
            self.longest_pause,
        )?;
        for Failure { after, request, error } in &self.failures {
            write!(f, "\nfailed: {request} after {after:.1?}: {error}")?;
        }
        for violation in &self.violations {
            write!(f, "\nviolation: {violation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(start: Instant, from: u64, to: u64, revision: i64, write: bool) -> Answered {
        let at = |ms| start + Duration::from_millis(ms);
        Answered { began: at(from), ended: at(to), revision, write }
    }

    #[test]
    fn later_requests_see_later_states() {
        let now = Instant::now();
        let put = answered(now, 0, 10, 5, true);
        let overlapping = answered(now, 5, 20, 4, false);
        assert!(out_of_order(&[put, overlapping]).is_empty());
        let same_state = answered(now, 11, 20, 5, false);
        assert!(out_of_order(&[put, same_state]).is_empty());
        let stale_read = answered(now, 11, 20, 4, false);
        assert_eq!(out_of_order(&[put, stale_read]).len(), 1);
        let second_history = answered(now, 11, 20, 5, true);
        assert_eq!(out_of_order(&[second_history, put]).len(), 1);
    }

    #[test]
    fn a_promise_is_kept_only_by_its_value_or_one_that_may_have_come_later() {
        let promise = Promise { value: b"new".into(), revision: 7, maybe: vec![b"newer".into()] };
        let found =
            |value: &[u8], mod_revision| KeyValue { value: value.into(), mod_revision, ..Default::default() };
        assert_eq!(broken(&promise, Some(&found(b"new", 7))), None);
        assert_eq!(broken(&promise, Some(&found(b"newer", 9))), None);
        assert!(broken(&promise, Some(&found(b"else", 9))).is_some());
        assert!(broken(&promise, Some(&found(b"new", 6))).is_some());
        assert!(broken(&promise, Some(&found(b"old", 7))).is_some());
        assert!(broken(&promise, None).is_some());
    }

    #[test]
    fn the_longest_pause_counts_from_the_start() {
        let now = Instant::now();
        let all = [answered(now, 290, 300, 2, true), answered(now, 300, 350, 3, true)];
        assert_eq!(longest_pause(now, &all), Duration::from_millis(300));
    }
}
