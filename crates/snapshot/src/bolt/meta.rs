//! The meta page.

use super::PageId;
use super::page::{HEADER, u32_at, u64_at};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// Of the meta's fields, behind the page's header.
const FIELDS: usize = 64;
/// What must be read of a meta page.
pub const META_SIZE: usize = HEADER + FIELDS;
const META_FLAG: u16 = 0x04;
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 1024..=65536;

/// What a meta page says of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub page_size: u64,
    /// The tree that names the buckets.
    pub root: PageId,
    /// The first page that does not exist.
    pub end: PageId,
    /// The transaction that wrote it; of two, the later counts.
    pub transaction: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error("it is too short")]
    Short,
    #[error("it does not begin with the mark of a database")]
    NoMark,
    #[error("its format is {0}, not {VERSION}")]
    Version(u32),
    #[error("its checksum is wrong")]
    Checksum,
    #[error("a page of {0} bytes cannot be")]
    PageSize(u32),
}

impl Meta {
    /// `bytes` begins with the page's header.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetaError> {
        let short = || MetaError::Short;
        let fields = bytes.get(HEADER..META_SIZE).ok_or_else(short)?;
        let flags = u16::from_le_bytes([bytes[8], bytes[9]]);
        if u32_at(fields, 0) != Some(MAGIC) || flags & META_FLAG == 0 {
            return Err(MetaError::NoMark);
        }
        let version = u32_at(fields, 4).ok_or_else(short)?;
        if version != VERSION {
            return Err(MetaError::Version(version));
        }
        if u64_at(fields, 56) != Some(fnv1a(&fields[..56])) {
            return Err(MetaError::Checksum);
        }
        let page_size = u32_at(fields, 8).ok_or_else(short)?;
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(MetaError::PageSize(page_size));
        }
        Ok(Self {
            page_size: page_size.into(),
            root: u64_at(fields, 16).ok_or_else(short)?,
            end: u64_at(fields, 40).ok_or_else(short)?,
            transaction: u64_at(fields, 48).ok_or_else(short)?,
        })
    }
}

pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
