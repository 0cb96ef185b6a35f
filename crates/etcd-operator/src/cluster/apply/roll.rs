//! Rolls the raft log on before a member goes to 3.6.
//!
//! Until 3.4 a GET of `/health` (a probe's, or `etcdctl cluster-health`) is an entry of the v2 store in the log. 3.6 replays
//! its log from the last snapshot on, panics at such an entry, and its half-started member tells others that they were
//! removed: quorum is gone. In a quiet cluster the last snapshot is far back; so entries that change nothing are
//! written until every member has made a new one. A list of alarms is such an entry.

use std::time::{Duration, Instant};

use domain::{Name, Version};
use futures::{StreamExt, TryStreamExt, stream};

use super::super::spec::snapshot_count;
use super::{Hands, Outcome};

/// The first that does not read v2 entries.
const FIRST_WITHOUT: Version = Version::new(3, 6, 0);
const AT_ONCE: usize = 32;
/// One round's share, so that the cluster is looked at in between.
const SHARE: Duration = Duration::from_secs(2);
/// The snapshot comes just after the entry that completes its count.
const MARGIN: u64 = 100;

impl Hands<'_> {
    /// Whether `name` may go to `version`, as far as its log is concerned; the reason to wait if not.
    pub(super) async fn log_rolled(&mut self, name: &Name, version: Version) -> Result<(), Outcome> {
        let wait = |why: String| Err(Outcome::Wait(why));
        let Some(status) = self.seen.observation.statuses.get(name).and_then(|status| status.known()) else {
            return Ok(()); // It does not run: its image may be the very thing that fails.
        };
        if version < FIRST_WITHOUT || status.version >= FIRST_WITHOUT {
            self.memory.rolled_from = None;
            return Ok(());
        }
        let ours = self.seen.observation.pods.iter().all(|pod| !pod.template.is_empty());
        let from = *self.memory.rolled_from.get_or_insert(status.raft_index);
        let until = from + snapshot_count(self.cluster, ours) + MARGIN;
        if status.applied_index >= until {
            return Ok(());
        }
        let voter = match self.voter().await {
            Ok(voter) => voter,
            Err(why) => return Err(why),
        };
        let ends = Instant::now() + SHARE;
        let missing = until.saturating_sub(status.applied_index);
        let written = stream::iter(0..missing)
            .take_while(|_| std::future::ready(Instant::now() < ends))
            .map(|_| voter.alarms())
            .buffer_unordered(AT_ONCE)
            .try_fold(0_u64, async |written, _| Ok(written + 1))
            .await;
        match written {
            Ok(written) => wait(format!(
                "the log of {name} is rolled on before 3.6: {} entries to come",
                missing - written
            )),
            Err(error) => wait(format!("the log of {name} is rolled on before 3.6, and etcd says: {error}")),
        }
    }
}
