//! A file of pages in a store, and where it ends.

use super::{Damage, InspectError, Kind};
use crate::Place;
use crate::bolt::{HEADER, META_SIZE, Meta, MetaError, Page, PageError, PageId};
use crate::trailer::TRAILER;
use prost::bytes::Bytes;

/// The largest page there is; the second meta page begins with it at the latest.
const LARGEST_PAGE: u64 = 65536;
/// No page holds more than a few of etcd's largest requests.
const LARGEST_SPAN: u64 = 512 << 20;
const FIRST_PAGE: PageId = 2;

#[derive(Clone, Debug)]
pub(super) struct File {
    pub place: Place,
    pub size: u64,
    pub meta: Meta,
}

impl File {
    /// Finds the meta page that counts, and that nothing is missing at the end.
    pub(super) async fn open(place: &Place, kind: Kind) -> Result<Self, InspectError> {
        let size = place.size().await?;
        if size == 0 {
            return Err(Damage::Empty.into());
        }
        let head = place.read(0..size.min(LARGEST_PAGE + META_SIZE as u64)).await?;
        let meta = match kind {
            Kind::Snapshot => snapshot_meta(&head, size)?,
            Kind::Database => database_meta(&head)?,
        };
        let file = Self { place: place.clone(), size, meta };
        let body = file.body();
        let damage = match kind {
            Kind::Database if size < body => Damage::Truncated { size, expected: body },
            Kind::Database => return Ok(file),
            Kind::Snapshot if size == body => Damage::NoTrailer,
            Kind::Snapshot => match size.cmp(&(body.saturating_add(TRAILER as u64))) {
                std::cmp::Ordering::Equal => return Ok(file),
                std::cmp::Ordering::Less => {
                    Damage::Truncated { size, expected: body.saturating_add(TRAILER as u64) }
                }
                std::cmp::Ordering::Greater => Damage::TooLong { extra: size - body - TRAILER as u64 },
            },
        };
        Err(damage.into())
    }

    /// Bytes of the database, without a trailer or space that is not used yet.
    pub(super) fn body(&self) -> u64 {
        self.meta.end.saturating_mul(self.meta.page_size)
    }

    /// Refuses pages that cannot be.
    pub(super) fn check_id(&self, id: PageId) -> Result<(), Damage> {
        if (FIRST_PAGE..self.meta.end).contains(&id) { Ok(()) } else { Err(Damage::NoSuchPage(id)) }
    }

    /// How many bytes a page has, by its header.
    pub(super) fn span(&self, id: PageId, header: &[u8]) -> Result<u64, Damage> {
        let damaged = |why| Damage::Page { page: id, why };
        let page = Page::parse(header, id).map_err(damaged)?;
        let pages = u64::from(page.overflow) + 1;
        let bytes = pages * self.meta.page_size;
        if id + pages > self.meta.end || bytes > LARGEST_SPAN {
            return Err(damaged(PageError::Overflow));
        }
        Ok(bytes)
    }

    /// A whole page, with what overflows.
    pub(super) async fn page(&self, id: PageId) -> Result<Bytes, InspectError> {
        self.check_id(id)?;
        let start = id * self.meta.page_size;
        let bytes = self.place.read(start..start + self.meta.page_size).await?;
        let span = self.span(id, bytes.get(..HEADER).unwrap_or(&bytes))?;
        if span == self.meta.page_size {
            return Ok(bytes);
        }
        Ok(self.place.read(start..start + span).await?)
    }
}

/// A snapshot has two good meta pages, which say the same.
fn snapshot_meta(head: &[u8], size: u64) -> Result<Meta, Damage> {
    let first = Meta::parse(head);
    let second = second_meta(head, first.ok());
    match (first, second) {
        (Ok(first), Some(Ok(_))) => Ok(first),
        (Ok(first), _) if size < first.page_size + META_SIZE as u64 => {
            let expected = first.end.saturating_mul(first.page_size).saturating_add(TRAILER as u64);
            Err(Damage::Truncated { size, expected })
        }
        (Ok(_), second) => {
            let why = second.and_then(Result::err).unwrap_or(MetaError::Short);
            Err(Damage::Meta { page: 1, why })
        }
        (Err(why), Some(Ok(_))) | (Err(why @ MetaError::Checksum), _) => Err(Damage::Meta { page: 0, why }),
        (Err(why), _) => Err(Damage::NotASnapshot(why)),
    }
}

/// Of a database in use, the later of the good ones counts: etcd writes them in turn.
fn database_meta(head: &[u8]) -> Result<Meta, Damage> {
    let first = Meta::parse(head);
    let second = second_meta(head, first.ok());
    let later =
        [first.ok(), second.and_then(Result::ok)].into_iter().flatten().max_by_key(|meta| meta.transaction);
    later.ok_or(match first {
        Err(why @ MetaError::Checksum) => Damage::Meta { page: 0, why },
        Err(why) => Damage::NotASnapshot(why),
        Ok(_) => Damage::Empty,
    })
}

/// It follows the first page, whose size only a meta page tells.
fn second_meta(head: &[u8], first: Option<Meta>) -> Option<Result<Meta, MetaError>> {
    let at = |size: u64| head.get(usize::try_from(size).ok()?..);
    if let Some(first) = first {
        return at(first.page_size).map(Meta::parse);
    }
    let sizes = (10..=16).map(|bits| 1_u64 << bits);
    sizes
        .filter_map(|size| Some((size, Meta::parse(at(size)?).ok()?)))
        .find(|(size, meta)| meta.page_size == *size)
        .map(|(_, meta)| Ok(meta))
}
