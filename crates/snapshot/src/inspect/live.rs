//! Which keys live, and a digest of them, in memory that does not grow with the database.
//!
//! See `docs/decisions/0010-a-digest-in-bounded-memory.md`.

use super::entry::{Change, Entry};
use serde::Serialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use twox_hash::XxHash3_128;

/// Keys remembered at once: nine megabytes of them.
const REMEMBERED: usize = 400_000;
const PREFIXES: usize = 1024;
const SHOWN: usize = 10;

/// A part of all keys, by their hashes: the whole, a half, a quarter…
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    bits: u32,
    number: u64,
}

impl Share {
    fn has(self, hash: u64) -> bool {
        self.bits == 0 || hash >> (64 - self.bits) == self.number
    }
}

/// The keys that have a later change than some other in the file: without it they would live twice, or for ever.
///
/// Only a change that is not the first of its key and a deletion can outdate another change; and none at or before
/// the last compaction does, since what it outdated is gone. So this is small, unless a lot was written over since.
#[derive(Debug)]
pub(super) struct Outdated {
    share: Share,
    compacted: i64,
    /// How many are remembered at once.
    most: usize,
    /// By the key's hash, the latest revision that outdates those before.
    latest: HashMap<u64, i64>,
}

impl Outdated {
    pub(super) fn new(compacted: i64) -> Self {
        Self { share: Share { bits: 0, number: 0 }, compacted, most: REMEMBERED, latest: HashMap::new() }
    }

    /// For the next part of all keys; `None` after the last.
    pub(super) fn next(self) -> Option<Self> {
        let number = self.share.number + 1;
        let share = Share { number, ..self.share };
        (number < 1 << share.bits).then(|| Self { share, latest: HashMap::new(), ..self })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.latest.is_empty() && self.share.bits == 0
    }

    pub(super) fn note(&mut self, entry: &Entry<'_>) {
        if entry.revision <= self.compacted {
            return;
        }
        let key = match entry.change {
            Change::Put { version: ..=1, .. } | Change::Nothing => return,
            Change::Put { key, .. } | Change::Delete { key } => key,
        };
        let hash = hash(key);
        if !self.share.has(hash) {
            return;
        }
        let latest = self.latest.entry(hash).or_default();
        *latest = entry.revision.max(*latest);
        // Too many for one round: do with half of them in this one, and the others in the next. Rounds after the
        // first may take a little more, for they cannot change what they share.
        while self.latest.len() > self.most && self.share.number == 0 {
            self.share.bits += 1;
            let share = self.share;
            self.latest.retain(|hash, _| share.has(*hash));
        }
    }

    /// `None` if this round is not about this key.
    fn outdates(&self, key: &[u8], revision: i64) -> Option<bool> {
        let hash = hash(key);
        self.share.has(hash).then(|| self.latest.get(&hash).is_some_and(|latest| revision < *latest))
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// Keys that begin alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prefix {
    pub prefix: String,
    pub keys: u64,
    /// Of keys and values.
    pub bytes: u64,
}

/// What lives.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub keys: u64,
    pub bytes: u64,
    pub revision: i64,
    pub changes: u64,
    /// Of the hashes of what lives: it does not depend on their order.
    sum: u128,
    prefixes: HashMap<Vec<u8>, (u64, u64)>,
    others: (u64, u64),
}

impl Live {
    /// Counts an entry, if it lives and belongs to this round.
    pub(super) fn count(&mut self, entry: &Entry<'_>, outdated: &Outdated) {
        if outdated.share.number == 0 {
            self.revision = self.revision.max(entry.revision);
            self.changes += 1;
        }
        let Change::Put { key, value, .. } = entry.change else { return };
        if outdated.outdates(key, entry.revision) != Some(false) {
            return;
        }
        let size = (key.len() + value.len()) as u64;
        self.keys += 1;
        self.bytes += size;
        let mut hash = XxHash3_128::new();
        hash.write(&(key.len() as u64).to_le_bytes());
        hash.write(key);
        hash.write(value);
        self.sum = self.sum.wrapping_add(hash.finish_128());
        let (keys, bytes) = self.of_prefix(prefix(key));
        *keys += 1;
        *bytes += size;
    }

    fn of_prefix(&mut self, prefix: &[u8]) -> &mut (u64, u64) {
        if !self.prefixes.contains_key(prefix) {
            if self.prefixes.len() >= PREFIXES {
                return &mut self.others;
            }
            self.prefixes.insert(prefix.to_owned(), (0, 0));
        }
        self.prefixes.get_mut(prefix).unwrap_or(&mut self.others)
    }

    /// The same for the same keys and values, whatever their order, history and layout.
    pub(super) fn digest(&self) -> String {
        format!("{:032x}", self.sum)
    }

    /// Those with the most bytes, the largest first.
    pub(super) fn biggest_prefixes(&self) -> Vec<Prefix> {
        let named =
            self.prefixes.iter().map(|(name, counts)| (String::from_utf8_lossy(name).into_owned(), counts));
        let others = (self.others.0 > 0).then(|| ("(others)".to_owned(), &self.others));
        let mut all: Vec<Prefix> = named
            .chain(others)
            .map(|(prefix, (keys, bytes))| Prefix { prefix, keys: *keys, bytes: *bytes })
            .collect();
        all.sort_by(|a, b| (b.bytes, &a.prefix).cmp(&(a.bytes, &b.prefix)));
        all.truncate(SHOWN);
        all
    }
}

/// At most two folders of a path: `/registry/pods/` of `/registry/pods/default/web`.
fn prefix(key: &[u8]) -> &[u8] {
    let folders = key.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').take(2);
    &key[..folders.last().map_or(0, |(index, _)| index + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn prefixes_are_two_folders() {
        assert_eq!(prefix(b"/registry/pods/default/web"), b"/registry/pods/");
        assert_eq!(prefix(b"/bench/1"), b"/bench/");
        assert_eq!(prefix(b"a/b/c/d"), b"a/b/");
        assert_eq!(prefix(b"/a"), b"");
        assert_eq!(prefix(b"plain"), b"");
        assert_eq!(prefix(b""), b"");
    }

    /// A history of one store: what changed, and whether it was a deletion.
    fn history() -> impl Strategy<Value = (Vec<(u8, Option<u8>)>, usize)> {
        let change = (0_u8..12, prop::option::weighted(0.8, any::<u8>()));
        prop::collection::vec(change, 0..120).prop_flat_map(|changes| {
            let most = changes.len();
            (Just(changes), 0..=most)
        })
    }

    struct Kept {
        revision: i64,
        key: u8,
        put: Option<(u8, i64)>,
    }

    /// Plays a history as etcd does, compacted once; gives what its file holds, and what lives.
    fn play(changes: &[(u8, Option<u8>)], compact: usize) -> (Vec<Kept>, BTreeMap<u8, u8>) {
        let (mut kept, mut live, mut versions) = (Vec::<Kept>::new(), BTreeMap::new(), BTreeMap::new());
        for (index, (key, put)) in changes.iter().enumerate() {
            let revision = i64::try_from(index).unwrap() + 2;
            match put {
                Some(value) => {
                    let version = *versions.entry(*key).and_modify(|version| *version += 1).or_insert(1);
                    live.insert(*key, *value);
                    kept.push(Kept { revision, key: *key, put: Some((*value, version)) });
                }
                None if versions.remove(key).is_some() => {
                    live.remove(key);
                    kept.push(Kept { revision, key: *key, put: None });
                }
                None => {}
            }
        }
        let compacted = i64::try_from(compact).unwrap() + 1;
        let last: BTreeMap<u8, i64> = kept
            .iter()
            .filter(|change| change.revision <= compacted)
            .map(|change| (change.key, change.revision))
            .collect();
        kept.retain(|change| {
            change.revision > compacted || (last[&change.key] == change.revision && change.put.is_some())
        });
        (kept, live)
    }

    fn counted(kept: &[Kept], compacted: i64, most: usize) -> (u64, String) {
        let keys: Vec<[u8; 1]> = kept.iter().map(|change| [change.key]).collect();
        let values: Vec<Vec<u8>> =
            kept.iter().map(|change| change.put.map(|(value, _)| value).into_iter().collect()).collect();
        let entries: Vec<Entry<'_>> = kept
            .iter()
            .enumerate()
            .map(|(index, change)| {
                let key = &keys[index];
                let change_of = match change.put {
                    Some((_, version)) => Change::Put { key, value: &values[index], version },
                    None => Change::Delete { key },
                };
                Entry { revision: change.revision, change: change_of }
            })
            .collect();
        let mut live = Live::default();
        let mut round = Some(Outdated { most, ..Outdated::new(compacted) });
        while let Some(mut outdated) = round {
            entries.iter().for_each(|entry| outdated.note(entry));
            entries.iter().rev().for_each(|entry| live.count(entry, &outdated));
            round = outdated.next();
        }
        (live.keys, live.digest())
    }

    proptest! {
        /// Whatever was compacted, and however little is remembered at once.
        #[test]
        fn what_lives_is_what_etcd_would_answer((changes, compact) in history(), most in 1_usize..8) {
            let (kept, live) = play(&changes, compact);
            let compacted = i64::try_from(compact).unwrap() + 1;
            let bare: Vec<Kept> = live.iter().map(|(key, value)| Kept { revision: 2, key: *key, put: Some((*value, 1)) }).collect();
            prop_assert_eq!(counted(&kept, compacted, most), counted(&bare, 0, 1));
        }
    }
}
