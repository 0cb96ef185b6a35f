//! The file format of bbolt, read only: what a page says, and nothing believed that was not checked.
//!
//! A file is a row of pages. The first two are copies of the meta page, which names the root of a tree; its leaves
//! name buckets, each a tree of its own, or, if it is small, a page inside the leaf. A page that holds more than one
//! page's worth overflows into those behind it.

mod meta;
mod page;

#[cfg(feature = "fuzz")]
pub(crate) use meta::fnv1a as checksum;
pub use meta::{META_SIZE, Meta, MetaError};
pub use page::{Branch, HEADER, Kind, Leaf, Page, PageError};

/// Number of a page, and its place in the file.
pub type PageId = u64;

/// What a bucket's entry says: the root of its tree, or the page itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket<'a> {
    Root(PageId),
    Inline(&'a [u8]),
}

const BUCKET_HEADER: usize = 16;

impl<'a> Bucket<'a> {
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (header, rest) = value.split_at_checked(BUCKET_HEADER)?;
        let root = u64::from_le_bytes(header[..8].try_into().ok()?);
        Some(if root == 0 { Self::Inline(rest) } else { Self::Root(root) })
    }
}
