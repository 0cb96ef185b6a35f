//! Everything that can be wrong with a snapshot, each in its own words.

use crate::StoreError;
use crate::bolt::{MetaError, PageError, PageId};
use crate::trailer::{Checked, Sum};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is empty")]
    Empty,
    #[error("it is not a snapshot of etcd: {0}")]
    NotASnapshot(MetaError),
    #[error("it is truncated: {size} bytes are there, {expected} were written")]
    Truncated { size: u64, expected: u64 },
    #[error("{extra} bytes follow its end: it is not what etcd wrote")]
    TooLong { extra: u64 },
    #[error("its SHA-256 trailer is missing: it was cut off, or this is a database file and not a snapshot")]
    NoTrailer,
    #[error(
        "its SHA-256 trailer is damaged: it says {}, and the contents, which look whole, have {}",
        hex::encode(.0.stored), hex::encode(.0.computed)
    )]
    Trailer(Sums),
    #[error(
        "its contents are damaged: their SHA-256 is {}, and the trailer says {}",
        hex::encode(.0.computed), hex::encode(.0.stored)
    )]
    Contents(Sums),
    #[error("it is not what was sent")]
    Altered,
    #[error("meta page {page} is damaged: {why}")]
    Meta { page: PageId, why: MetaError },
    #[error("page {page} is damaged: {why}")]
    Page { page: PageId, why: PageError },
    #[error("page {0} is named and does not exist")]
    NoSuchPage(PageId),
    #[error("page {0} is named twice")]
    PageTwice(PageId),
    #[error("page {0} is out of order")]
    PageOrder(PageId),
    #[error("the tree below page {0} is too deep to be true")]
    TooDeep(PageId),
    #[error("there is no bucket {0:?}: it is a database, and not one of etcd")]
    NoBucket(&'static str),
    #[error("bucket {0:?} cannot be read")]
    Bucket(String),
    #[error("page {page} has an entry that is no revision of a key: {why}")]
    Entry { page: PageId, why: &'static str },
}

/// The sum in the trailer, and that of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    pub stored: Sum,
    pub computed: Sum,
}

/// Sums of different contents differ in half of their 256 bits, hardly ever in fewer than 70; a trailer that was hit
/// itself still has most of them.
const NEAR: u32 = 64;

impl Damage {
    pub(crate) fn of_sums(Checked { computed, stored }: Checked) -> Self {
        let differ: u32 = stored.iter().zip(computed).map(|(a, b)| (a ^ b).count_ones()).sum();
        let sums = Sums { stored, computed };
        if differ <= NEAR { Self::Trailer(sums) } else { Self::Contents(sums) }
    }
}

/// Why a snapshot was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    Store(#[from] StoreError),
}
