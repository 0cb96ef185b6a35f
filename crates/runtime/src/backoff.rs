//! Waiting longer after each failure in a row, for each key on its own.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Doubles from `first` up to `most`; each wait is shortened at random by up to a quarter, so that what failed
/// together is not tried together.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub first: Duration,
    pub most: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), most: Duration::from_mins(2) }
    }
}

impl Policy {
    /// The wait after so many failures in a row.
    pub fn wait(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let full = self.first.saturating_mul(doubled).min(self.most);
        full.mul_f64(rand::rng().random_range(0.75..=1.0))
    }
}

/// The next try, for a condition or a log line to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Failures in a row, this one included.
    pub failures: u32,
    pub after: Duration,
}

/// Failures in a row by key. An entry lives from the first failure to the next success.
#[derive(Debug)]
pub struct Backoff<K> {
    policy: Policy,
    failures: Mutex<HashMap<K, u32>>,
}

impl<K: Eq + Hash> Backoff<K> {
    pub fn new(policy: Policy) -> Self {
        Self { policy, failures: Mutex::default() }
    }

    pub fn failed(&self, key: K) -> Retry {
        let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = all.entry(key).or_default();
        *failures = failures.saturating_add(1);
        Retry { failures: *failures, after: self.policy.wait(*failures) }
    }

    /// Call it on success, and when the object is gone.
    pub fn forget(&self, key: &K) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Forgets all but these.
    pub fn retain(&self, keep: impl Fn(&K) -> bool) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| keep(key));
    }
}

/// Tries until it works, saying each time what failed; `None` if stopped first.
pub async fn until_ok<T, E, F>(
    policy: Policy,
    stop: &CancellationToken,
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Option<T>
where
    E: std::fmt::Display,
    F: Future<Output = Result<T, E>>,
{
    let mut failures = 0;
    loop {
        let error = tokio::select! {
            () = stop.cancelled() => return None,
            result = attempt() => match result {
                Ok(value) => return Some(value),
                Err(error) => error,
            },
        };
        failures += 1;
        let after = policy.wait(failures);
        warn!(%error, failures, ?after, "{what} failed; trying again");
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(after) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const POLICY: Policy = Policy { first: Duration::from_secs(1), most: Duration::from_mins(1) };

    #[test]
    fn waits_double_up_to_the_most_and_never_overflow() {
        for (failures, seconds) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (40, 60), (u32::MAX, 60)] {
            let (wait, full) = (POLICY.wait(failures), Duration::from_secs(seconds));
            assert!(wait <= full && wait >= full.mul_f64(0.74), "{failures}: {wait:?}");
        }
    }

    #[test]
    fn keys_fail_on_their_own_and_success_forgets() {
        let backoff = Backoff::new(POLICY);
        assert_eq!(backoff.failed("a").failures, 1);
        assert_eq!(backoff.failed("a").failures, 2);
        assert_eq!(backoff.failed("b").failures, 1);
        backoff.forget(&"a");
        assert_eq!(backoff.failed("a").failures, 1);
        assert_eq!(backoff.failed("c").failures, 1);
        backoff.retain(|key| *key == "b");
        assert_eq!((backoff.failed("a").failures, backoff.failed("b").failures), (1, 2));
        backoff.forget(&"a");
        backoff.forget(&"b");
        assert!(backoff.failures.lock().unwrap().is_empty(), "nothing is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn tries_until_it_works_or_is_stopped() {
        let (stop, tries) = (CancellationToken::new(), Cell::new(0));
        let works_third = || async {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err("no") } else { Ok(tries.get()) }
        };
        assert_eq!(until_ok(POLICY, &stop, "it", works_third).await, Some(3));

        let stopped = until_ok(POLICY, &stop, "it", || async {
            stop.cancel();
            Err::<(), _>("never")
        });
        assert_eq!(stopped.await, None);
    }
}
