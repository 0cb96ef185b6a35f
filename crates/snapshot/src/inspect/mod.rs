//! What a snapshot holds, and whether it is whole: read by ranges from any store, in memory that does not grow with it.

mod damage;
mod entry;
mod file;
mod live;
mod scan;
mod tree;

pub use damage::{Damage, InspectError};
pub use live::Prefix;

use crate::Place;
use crate::body::{BodyHash, Sent};
use crate::bolt::{Bucket, Page, PageId};
use crate::trailer::{Checked, Sum, TRAILER};
use domain::Version;
use entry::{Entry, parse_revision};
use file::File;
use live::{Live, Outdated};
use scan::{Work, scan};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tree::{Pages, leaves};

const KEY: &str = "key";
const META: &str = "meta";
const CLUSTER: &str = "cluster";
/// The small buckets that are read whole have no more than this.
const SMALL: usize = 4096;

/// What is inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As etcd gives it: whole, with a trailer.
    Snapshot,
    /// The database of a member that does not run: it has no trailer, and may have space at its end.
    Database,
}

/// What a snapshot holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// Bytes of the whole.
    pub size: u64,
    /// Of the database; in a snapshot the trailer says the same.
    pub sha256: String,
    pub revision: i64,
    /// The last revision that was compacted; 0 if none was.
    pub compacted: i64,
    /// Live keys.
    pub keys: u64,
    /// Of live keys and their values.
    pub live_bytes: u64,
    /// Changes of keys that are kept, live or not.
    pub changes: u64,
    /// Of live keys and values: the same for the same data, whatever its layout and history.
    pub digest: String,
    /// The version of the cluster, without its patch, where the database says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub page_size: u64,
    /// By bytes, the largest first.
    pub prefixes: Vec<Prefix>,
}

/// Reads all of it.
pub async fn inspect(place: &Place, kind: Kind) -> Result<Contents, InspectError> {
    read(place, kind, BodyHash::new(None)).await
}

/// Reads all of a snapshot that was just sent there: it is the same, or damaged.
pub(crate) async fn read_back(place: &Place, sent: Sent) -> Result<Contents, InspectError> {
    read(place, Kind::Snapshot, BodyHash::new(Some(sent))).await
}

async fn read(place: &Place, kind: Kind, hash: BodyHash) -> Result<Contents, InspectError> {
    let file = File::open(place, kind).await?;
    let mut used = Pages::none(file.meta.end);
    let buckets = small_tree(&file, file.meta.root, &mut used).await?;
    let mut layout = Layout { keys: Pages::none(file.meta.end), all: Pages::none(file.meta.end) };
    let mut small = BTreeMap::new();
    let mut inline_keys = None;
    let mut key_root = None;
    for (name, value) in &buckets {
        let unreadable = || Damage::Bucket(String::from_utf8_lossy(name).into_owned());
        let bucket = Bucket::parse(value).ok_or_else(unreadable)?;
        match (name.as_slice(), bucket) {
            (b"key", Bucket::Root(root)) => key_root = Some(root),
            (b"key", Bucket::Inline(page)) => inline_keys = Some(page.to_vec()),
            (b"meta" | b"cluster", bucket) => {
                let entries = match bucket {
                    Bucket::Root(root) => small_tree(&file, root, &mut used).await?,
                    Bucket::Inline(page) => inline(page).ok_or_else(unreadable)?,
                };
                small.insert(name.as_slice(), entries);
            }
            (_, Bucket::Root(root)) => {
                leaves(&file, root, &mut used, |id, _| {
                    layout.all.insert(id);
                    Ok(())
                })
                .await?;
            }
            (_, Bucket::Inline(page)) => drop(inline(page).ok_or_else(unreadable)?),
        }
    }
    let meta = small.get(META.as_bytes()).ok_or(Damage::NoBucket(META))?;
    let compacted = find(meta, b"finishedCompactRev").and_then(parse_revision).map_or(0, |(main, _)| main);
    let mut recent = Pages::none(file.meta.end);
    if let Some(root) = key_root {
        let mut before = None;
        leaves(&file, root, &mut used, |id, key| {
            layout.keys.insert(id);
            layout.all.insert(id);
            // A leaf whose successor begins at or before the compaction has nothing that is later.
            if let Some(before) = before.replace(id)
                && parse_revision(key).is_none_or(|(main, _)| main > compacted)
            {
                recent.insert(before);
            }
            Ok(())
        })
        .await?;
        before.map(|last| recent.insert(last));
    } else if inline_keys.is_none() {
        return Err(Damage::NoBucket(KEY).into());
    }
    let found = count(&file, layout, recent, used, Outdated::new(compacted), inline_keys, hash).await?;
    let (live, computed) = found;
    if kind == Kind::Snapshot {
        let stored = place.read(file.body()..file.body() + TRAILER as u64).await?;
        let stored = stored.as_ref().try_into().map_err(|_| Damage::NoTrailer)?;
        let checked = Checked { computed, stored };
        if !checked.holds() {
            return Err(Damage::of_sums(checked).into());
        }
    }
    Ok(Contents {
        size: file.size,
        sha256: hex::encode(computed),
        // Etcd begins with 1, and a compaction may have removed the last change itself.
        revision: live.revision.max(compacted).max(1),
        compacted,
        keys: live.keys,
        live_bytes: live.bytes,
        changes: live.changes,
        digest: live.digest(),
        version: version(meta, small.get(CLUSTER.as_bytes()).map_or(&[], Vec::as_slice)),
        page_size: file.meta.page_size,
        prefixes: live.biggest_prefixes(),
    })
}

/// Leaves by what they hold.
struct Layout {
    keys: Pages,
    all: Pages,
}

/// Learns which changes are outdated, then counts what lives and hashes the whole file on the way. Where too much is
/// outdated to be remembered, it goes round again for the other keys.
async fn count(
    file: &File,
    layout: Layout,
    recent: Pages,
    used: Pages,
    outdated: Outdated,
    inline_keys: Option<Vec<u8>>,
    hash: BodyHash,
) -> Result<(Live, Sum), InspectError> {
    let (keys, all) = (Arc::new(layout.keys), Arc::new(layout.all));
    let (recent, used) = (Arc::new(recent), Arc::new(used));
    let mut hash = Some(hash);
    let mut computed = [0; 32];
    let mut live = Live::default();
    let mut outdated = outdated;
    let mut learned = false;
    // Where most leaves may hold something that outdates another, all are read once in the hope that nothing does.
    if recent.count() * 2 > keys.count() {
        let hopeful = Hopeful { live: Live::default(), outdated, keys: keys.clone() };
        let (hopeful, hashed) = scan(file, &all, &used, hopeful, hash.take()).await?;
        computed = hashed.map_or(Ok(computed), BodyHash::finish)?;
        if hopeful.outdated.is_empty() {
            return Ok((hopeful.live, computed));
        }
        outdated = hopeful.outdated;
        learned = true;
    }
    let mut next = Some(outdated);
    while let Some(outdated) = next {
        let mut learning = Learn(outdated);
        if !std::mem::take(&mut learned) {
            learning = scan(file, &recent, &used, learning, None).await?.0;
        }
        let mut counting = Count { live, outdated: learning.0, keys: keys.clone() };
        if let Some(page) = &inline_keys {
            counting.inline(page)?;
        }
        let (counted, hashed) = scan(file, &all, &used, counting, hash.take()).await?;
        computed = hashed.map_or(Ok(computed), BodyHash::finish)?;
        live = counted.live;
        next = counted.outdated.next();
    }
    Ok((live, computed))
}

/// Counts everything as if nothing were outdated, and learns whether that is so.
struct Hopeful {
    live: Live,
    outdated: Outdated,
    keys: Arc<Pages>,
}

impl Work for Hopeful {
    fn leaf(&mut self, id: PageId, page: Page<'_>) -> Result<(), Damage> {
        if !self.keys.has(id) {
            return check(id, page);
        }
        each(id, page, |entry| {
            self.outdated.note(entry);
            // Once something is outdated, all is counted again.
            if self.outdated.is_empty() {
                self.live.count(entry, &self.outdated);
            }
        })
    }
}

struct Learn(Outdated);

impl Work for Learn {
    fn leaf(&mut self, id: PageId, page: Page<'_>) -> Result<(), Damage> {
        each(id, page, |entry| self.0.note(entry))
    }
}

struct Count {
    live: Live,
    outdated: Outdated,
    keys: Arc<Pages>,
}

impl Count {
    fn inline(&mut self, page: &[u8]) -> Result<(), Damage> {
        let damaged = |why| Damage::Page { page: 0, why };
        let page = Page::parse(page, 0).map_err(damaged)?;
        each(0, page, |entry| self.outdated.note(entry))?;
        each(0, page, |entry| self.live.count(entry, &self.outdated))
    }
}

impl Work for Count {
    fn leaf(&mut self, id: PageId, page: Page<'_>) -> Result<(), Damage> {
        if self.keys.has(id) {
            return each(id, page, |entry| self.live.count(entry, &self.outdated));
        }
        check(id, page)
    }
}

/// A leaf of another bucket: that it can be read is all that counts.
fn check(id: PageId, page: Page<'_>) -> Result<(), Damage> {
    let damaged = |why| Damage::Page { page: id, why };
    page.leaves().map_err(damaged)?.try_for_each(|leaf| leaf.map(drop)).map_err(damaged)
}

/// Every revision of a leaf of the bucket `key`.
fn each(id: PageId, page: Page<'_>, mut visit: impl FnMut(&Entry<'_>)) -> Result<(), Damage> {
    let damaged = |why| Damage::Page { page: id, why };
    for leaf in page.leaves().map_err(damaged)? {
        let leaf = leaf.map_err(damaged)?;
        visit(&Entry::parse(leaf.key, leaf.value).map_err(|why| Damage::Entry { page: id, why })?);
    }
    Ok(())
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries of a tree that is known to be small.
async fn small_tree(file: &File, root: PageId, used: &mut Pages) -> Result<Entries, InspectError> {
    let mut ids = Vec::new();
    leaves(file, root, used, |id, _| {
        ids.push(id);
        if ids.len() > SMALL { Err(Damage::PageTwice(id)) } else { Ok(()) }
    })
    .await?;
    let mut entries = Vec::new();
    for id in ids {
        let bytes = file.page(id).await?;
        let damaged = |why| Damage::Page { page: id, why };
        for leaf in Page::parse(&bytes, id).map_err(damaged)?.leaves().map_err(damaged)? {
            let leaf = leaf.map_err(damaged)?;
            entries.push((leaf.key.to_vec(), leaf.value.to_vec()));
        }
    }
    Ok(entries)
}

fn inline(page: &[u8]) -> Option<Entries> {
    let leaves = Page::parse(page, 0).ok()?.leaves().ok()?;
    leaves.map(|leaf| leaf.ok().map(|leaf| (leaf.key.to_vec(), leaf.value.to_vec()))).collect()
}

fn find<'a>(entries: &'a [(Vec<u8>, Vec<u8>)], key: &[u8]) -> Option<&'a [u8]> {
    entries.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_slice())
}

/// The minor that the database says it is of: its own from 3.6 on, before that the cluster's.
fn version(meta: &[(Vec<u8>, Vec<u8>)], cluster: &[(Vec<u8>, Vec<u8>)]) -> Option<String> {
    let said = find(meta, b"storageVersion").or_else(|| find(cluster, b"clusterVersion"))?;
    let version: Version = std::str::from_utf8(said).ok()?.parse().ok()?;
    Some(format!("{}.{}", version.major, version.minor))
}
