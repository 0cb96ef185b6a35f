//! What the members themselves say, asked one by one.

use std::collections::BTreeSet;

use domain::Version;
use etcd::{Expect, Member};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use lab::wait::until;

use super::{Cluster, LIMIT, Outcome};

impl Cluster<'_> {
    async fn links(&self) -> Outcome<Vec<Member>> {
        let connect = |endpoint: &String| Ok(Member::connect(endpoint, Expect::default())?);
        self.endpoints().await?.iter().map(connect).collect()
    }

    /// The versions that answer now; a member that is just restarting does not.
    pub async fn versions(&self) -> Outcome<Vec<Version>> {
        let mut versions = Vec::new();
        for member in self.links().await? {
            versions.extend(member.status().await.map(|status| status.version).ok());
        }
        versions.sort_unstable();
        Ok(versions)
    }

    /// Waits until that many members run the version.
    pub async fn reaches(&self, count: usize, version: &str) -> Outcome {
        let version: Version = version.parse()?;
        let what = format!("{count} members of {version}");
        let reached = until(&what, LIMIT, async || {
            let seen = self.versions().await.map_err(|e| lab::Error::usage(e.to_string()))?;
            let there = seen.iter().filter(|seen| **seen == version).count() >= count;
            Ok(if there { Ok(()) } else { Err(format!("{seen:?}")) })
        });
        Ok(reached.await?)
    }

    /// Every member holds the same keys and the same history of them. Asked at rest, from 3.3 on.
    pub async fn same_data(&self) -> Outcome {
        let members = self.links().await?;
        let mut hashes = BTreeSet::new();
        let mut revision = 0;
        for member in &members {
            // Has all that was agreed on before; the first one says up to where is compared.
            let reached = member.revision().await?;
            revision = if revision == 0 { reached } else { revision };
            let hash = member.hash_kv(revision).await?;
            hashes.insert((hash.hash, hash.compact_revision));
        }
        match hashes.len() {
            1 => Ok(()),
            _ => Err(format!(
                "{} members, and at revision {revision} their hashes are {hashes:?}",
                members.len()
            )
            .into()),
        }
    }

    /// Messages of all events of that reason about this cluster, repeated ones once.
    pub async fn told(&self, reason: &str) -> Outcome<Vec<String>> {
        let fields = format!("involvedObject.name={},reason={reason}", self.name);
        let events = self.test.api::<Event>().list(&ListParams::default().fields(&fields)).await?;
        Ok(events.items.into_iter().filter_map(|event| event.message).collect())
    }
}
