//! Waiting for something with a deadline, and saying at the end of it what was seen instead.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

const PAUSE: Duration = Duration::from_millis(100);

/// Asks again and again until `look` has it. `Ok(Err(seen))` means "not yet, this is how it looks"; `Err` ends the wait.
pub async fn until<T, S: Display>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Result<T, S>>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        match look().await? {
            Ok(found) => return Ok(found),
            Err(seen) if Instant::now() > end => {
                return Err(Error::Deadline {
                    what: what.to_owned(),
                    seconds: limit.as_secs(),
                    last: seen.to_string(),
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
