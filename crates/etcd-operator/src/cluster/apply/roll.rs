//! Rolls the raft log on by entries that change nothing. A list of alarms is such an entry.

use std::time::{Duration, Instant};

use domain::{Read, Rolled};
use futures::{StreamExt, TryStreamExt, stream};

use super::{Hands, Outcome};

const AT_ONCE: usize = 64;
/// One round's share, so that the cluster is looked at in between.
const SHARE: Duration = Duration::from_secs(2);

impl Hands<'_> {
    pub(super) async fn roll_log(&mut self, to: Rolled) -> Outcome {
        self.memory.rolled = Some(to);
        let voter = match self.voter().await {
            Ok(voter) => voter,
            Err(why) => return why,
        };
        let statuses = self.seen.observation.statuses.values().filter_map(Read::known);
        let newest = statuses.map(|status| status.raft_index).max().unwrap_or(to.until);
        let ends = Instant::now() + SHARE;
        let written = stream::iter(newest..to.until)
            .take_while(|_| std::future::ready(Instant::now() < ends))
            .map(|_| voter.alarms())
            .buffer_unordered(AT_ONCE)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await;
        written.map_or_else(|error| Outcome::Wait(error.to_string()), |()| Outcome::Done)
    }
}
