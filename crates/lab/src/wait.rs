//! Waiting for what tells nobody when it happens, such as a port, a process or a file: asked again and again, with a deadline, and
//! what was seen instead in the error. Kubernetes objects tell: `kit::wait_for` and `kit::wait_for_all` watch them.

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
