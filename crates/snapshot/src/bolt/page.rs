//! One page: its header and its elements.

use super::PageId;

/// Bytes of a page's header.
pub const HEADER: usize = 16;
const BRANCH_FLAG: u16 = 0x01;
const LEAF_FLAG: u16 = 0x02;
const ELEMENT: usize = 16;
const BUCKET_FLAG: u32 = 0x01;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Branch,
    Leaf,
}

/// Why a page cannot be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    #[error("it ends early")]
    Short,
    #[error("it says that it is page {0}")]
    WrongId(PageId),
    #[error("it is neither branch nor leaf (flags {0:#06x})")]
    Flags(u16),
    #[error("element {0} reaches beyond the page")]
    Element(usize),
    #[error("element {0} is out of order")]
    Order(usize),
    #[error("it has no elements")]
    NoElements,
    #[error("a branch was expected")]
    NotABranch,
    #[error("a leaf was expected")]
    NotALeaf,
    #[error("it reaches beyond the end of the database")]
    Overflow,
    #[error("it reaches into page {0}, which is in use")]
    Overlap(PageId),
}

/// A page with all its bytes, overflow included.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    pub kind: Kind,
    /// How many pages behind it belong to it.
    pub overflow: u32,
    count: usize,
    bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
pub struct Branch<'a> {
    pub key: &'a [u8],
    pub child: PageId,
}

#[derive(Debug, Clone, Copy)]
pub struct Leaf<'a> {
    pub is_bucket: bool,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> Page<'a> {
    /// Checks the header; elements are checked as they are read.
    pub fn parse(bytes: &'a [u8], expected: PageId) -> Result<Self, PageError> {
        let id = u64_at(bytes, 0).ok_or(PageError::Short)?;
        if id != expected {
            return Err(PageError::WrongId(id));
        }
        let flags = u16_at(bytes, 8).ok_or(PageError::Short)?;
        let kind = match flags {
            BRANCH_FLAG => Kind::Branch,
            LEAF_FLAG => Kind::Leaf,
            _ => return Err(PageError::Flags(flags)),
        };
        let count = u16_at(bytes, 10).ok_or(PageError::Short)?.into();
        let overflow = u32_at(bytes, 12).ok_or(PageError::Short)?;
        Ok(Self { kind, overflow, count, bytes })
    }

    /// The children of a branch, in strictly ascending order of their keys; there is at least one.
    pub fn branches(self) -> Result<impl Iterator<Item = Result<Branch<'a>, PageError>>, PageError> {
        match self.kind {
            Kind::Leaf => return Err(PageError::NotABranch),
            Kind::Branch if self.count == 0 => return Err(PageError::NoElements),
            Kind::Branch => {}
        }
        let branch = move |index: usize| {
            let start = HEADER + index * ELEMENT;
            let position = u32_at(self.bytes, start)?;
            let size = u32_at(self.bytes, start + 4)?;
            let child = u64_at(self.bytes, start + 8)?;
            Some(Branch { key: slice(self.bytes, start, position, size)?, child })
        };
        Ok(ordered(self.count, branch, |branch| branch.key))
    }

    /// The entries of a leaf, in strictly ascending order of their keys.
    pub fn leaves(self) -> Result<impl Iterator<Item = Result<Leaf<'a>, PageError>>, PageError> {
        if self.kind != Kind::Leaf {
            return Err(PageError::NotALeaf);
        }
        let leaf = move |index: usize| {
            let start = HEADER + index * ELEMENT;
            let flags = u32_at(self.bytes, start)?;
            let position = u32_at(self.bytes, start + 4)?;
            let key_size = u32_at(self.bytes, start + 8)?;
            let value_size = u32_at(self.bytes, start + 12)?;
            let key = slice(self.bytes, start, position, key_size)?;
            let value = slice(self.bytes, start, position.checked_add(key_size)?, value_size)?;
            Some(Leaf { is_bucket: flags & BUCKET_FLAG != 0, key, value })
        };
        Ok(ordered(self.count, leaf, |leaf| leaf.key))
    }
}

/// Reads elements one by one; stops after the first that is wrong.
fn ordered<'a, T: 'a>(
    count: usize,
    read: impl Fn(usize) -> Option<T> + 'a,
    key: impl Fn(&T) -> &'a [u8] + 'a,
) -> impl Iterator<Item = Result<T, PageError>> + 'a {
    let (mut last, mut broken) = (None::<&'a [u8]>, false);
    (0..count).map_while(move |index| {
        if broken {
            return None;
        }
        let element = match read(index) {
            None => Err(PageError::Element(index)),
            Some(element) if last.is_some_and(|last| last >= key(&element)) => Err(PageError::Order(index)),
            Some(element) => {
                last = Some(key(&element));
                Ok(element)
            }
        };
        broken = element.is_err();
        Some(element)
    })
}

/// `size` bytes at `position` behind the element that begins at `start`.
fn slice(bytes: &[u8], start: usize, position: u32, size: u32) -> Option<&[u8]> {
    let from = start.checked_add(usize::try_from(position).ok()?)?;
    bytes.get(from..from.checked_add(usize::try_from(size).ok()?)?)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
