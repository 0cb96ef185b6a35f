//! Rolls the raft log on before a member goes to 3.5 or 3.6, until every member has made a new snapshot.
//!
//! A member replays its log from its last snapshot on, which in a quiet cluster is far back or was never made.
//! - Until 3.4 a GET of `/health` (a probe's, or `etcdctl cluster-health`) is an entry of the v2 store. 3.6 panics at it.
//! - Until 3.4 the database notes how far it is only when keys are written. 3.5 (seen with 3.5.35) then takes members
//!   that were added later for removed ones; it goes on, but as 3.6 it turns them away, and quorum is gone.
//!
//! So entries that change nothing are written first. A list of alarms is such an entry.

use std::time::{Duration, Instant};

use domain::{Name, Version};
use futures::{StreamExt, TryStreamExt, stream};

use super::super::spec::snapshot_count;
use super::{Hands, Outcome};

/// The versions that must not see an old log.
const PARTICULAR: [Version; 2] = [Version::new(3, 5, 0), Version::new(3, 6, 0)];
const AT_ONCE: usize = 64;
/// One round's share, so that the cluster is looked at in between.
const SHARE: Duration = Duration::from_secs(2);
/// The snapshot comes just after the entry that completes its count.
const MARGIN: u64 = 100;

impl Hands<'_> {
    /// Whether `name` may go to `version`, as far as its log is concerned; the reason to wait if not.
    pub(super) async fn log_rolled(&mut self, name: &Name, version: Version) -> Result<(), Outcome> {
        let status = self.seen.observation.statuses.get(name).and_then(|status| status.known());
        // One that does not run is not kept from an image that may help it.
        let Some(status) = status.filter(|status| crosses(status.version, version)) else { return Ok(()) };
        if self.memory.rolled.is_none_or(|(to, _)| to != version) {
            self.memory.rolled = Some((version, status.raft_index));
        }
        let from = self.memory.rolled.map_or(status.raft_index, |(_, from)| from);
        let ours = self.seen.observation.pods.iter().all(|pod| !pod.template.is_empty());
        let missing =
            (from + snapshot_count(self.cluster, ours) + MARGIN).saturating_sub(status.applied_index);
        if missing == 0 {
            return Ok(());
        }
        let voter = self.voter().await?;
        let ends = Instant::now() + SHARE;
        let written = stream::iter(0..missing)
            .take_while(|_| std::future::ready(Instant::now() < ends))
            .map(|_| voter.alarms())
            .buffer_unordered(AT_ONCE)
            .try_fold(0, async |written, _| Ok(written + 1))
            .await;
        let news = match written {
            Ok(written) => format!("{} entries to come", missing - written),
            Err(error) => error.to_string(),
        };
        Err(Outcome::Wait(format!("the log is rolled on before {name} goes to {version}: {news}")))
    }
}

fn crosses(from: Version, to: Version) -> bool {
    PARTICULAR.iter().any(|particular| from < *particular && *particular <= to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("3.3.12", "3.4.15", false)]
    #[case("3.4.15", "3.5.35", true)]
    #[case("3.5.16", "3.5.35", false)]
    #[case("3.5.35", "3.6.16", true)]
    #[case("3.6.4", "3.6.16", false)]
    #[case("3.6.16", "3.5.35", false)]
    fn the_log_is_rolled_only_into_what_reads_it_wrongly(
        #[case] from: &str,
        #[case] to: &str,
        #[case] rolled: bool,
    ) {
        assert_eq!(crosses(from.parse().unwrap(), to.parse().unwrap()), rolled);
    }
}
