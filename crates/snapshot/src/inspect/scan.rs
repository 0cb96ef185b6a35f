//! All leaves of a file, in the order in which they lie there: large reads, little memory, whatever the store.

use super::file::File;
use super::tree::Pages;
use super::{Damage, InspectError};
use crate::StoreError;
use crate::aside::Aside;
use crate::body::BodyHash;
use crate::bolt::{HEADER, Page, PageError, PageId};
use futures::{StreamExt, TryStreamExt, stream};
use prost::bytes::Bytes;
use std::sync::Arc;

/// Read at once; a multiple of every page size.
const CHUNK: u64 = 1 << 20;
/// Chunks on their way while one is worked on.
const AHEAD: usize = 3;
/// Chunks that wait to be hashed.
const QUEUED: usize = 2;

/// What is done with each leaf. It runs where it may take its time, one call after the other.
pub(super) trait Work: Send + 'static {
    fn leaf(&mut self, id: PageId, page: Page<'_>) -> Result<(), Damage>;
}

/// Reads the chunks that hold `wanted` leaves, or all of them if they shall be hashed.
pub(super) async fn scan<W: Work>(
    file: &File,
    wanted: &Arc<Pages>,
    used: &Arc<Pages>,
    mut work: W,
    hash: Option<BodyHash>,
) -> Result<(W, Option<BodyHash>), InspectError> {
    let body = file.body();
    let page_size = file.meta.page_size;
    let all = hash.is_some();
    let ranges = (0..body.div_ceil(CHUNK)).map(|number| number * CHUNK..((number + 1) * CHUNK).min(body));
    let ranges = ranges
        .filter(|range| all || wanted.first_in(range.start / page_size, range.end / page_size).is_some());
    let hash = hash.map(|hash| Aside::start(hash, QUEUED, BodyHash::update));
    // On tasks of their own: they go on while a chunk is worked on.
    let mut chunks = stream::iter(ranges)
        .map(|range| {
            let place = file.place.clone();
            let read = tokio::spawn(async move { (range.start, place.read(range.clone()).await) });
            async { read.await.map_err(|panic| broken(file, &panic)) }
        })
        .buffered(AHEAD);
    while let Some((start, chunk)) = chunks.try_next().await? {
        let chunk = chunk?;
        if let Some(hash) = &hash {
            hash.update(chunk.clone()).await;
        }
        let (leaves, rest) = on_leaves(file, wanted, used, work, start, chunk).await?;
        work = leaves;
        if let Some(id) = rest {
            let page = file.page(id).await?;
            let offset = id * page_size;
            let alone = Arc::new(only(file, id));
            work = on_leaves(file, &alone, used, work, offset, page).await?.0;
        }
    }
    let hashed = match hash {
        Some(hash) => Some(hash.finish().await.ok_or_else(|| broken(file, &"hashing ended early"))?),
        None => None,
    };
    Ok((work, hashed))
}

fn only(file: &File, id: PageId) -> Pages {
    let mut pages = Pages::none(file.meta.end);
    pages.insert(id);
    pages
}

fn broken(file: &File, why: &impl ToString) -> InspectError {
    StoreError::Other { place: file.place.to_string(), why: why.to_string() }.into()
}

/// Works on the leaves of one chunk; gives the last, if it goes on behind the chunk.
async fn on_leaves<W: Work>(
    file: &File,
    wanted: &Arc<Pages>,
    used: &Arc<Pages>,
    mut work: W,
    start: u64,
    chunk: Bytes,
) -> Result<(W, Option<PageId>), InspectError> {
    let (file, wanted, used) = (file.clone(), wanted.clone(), used.clone());
    let place = file.clone();
    let task = tokio::task::spawn_blocking(move || {
        let page_size = file.meta.page_size;
        let first = start / page_size;
        let pages = first..first + (chunk.len() as u64) / page_size;
        let mut rest = None;
        for id in pages.filter(|id| wanted.has(*id)) {
            let offset = usize::try_from((id - first) * page_size).unwrap_or(usize::MAX);
            let bytes = chunk.get(offset..).unwrap_or_default();
            let damaged = |why| Damage::Page { page: id, why };
            let span = file.span(id, bytes.get(..HEADER).unwrap_or(bytes))?;
            if let Some(other) = used.first_in(id + 1, id + span / page_size) {
                return Err(damaged(PageError::Overlap(other)));
            }
            match usize::try_from(span).ok().and_then(|span| bytes.get(..span)) {
                Some(bytes) => work.leaf(id, Page::parse(bytes, id).map_err(damaged)?)?,
                None => rest = Some(id),
            }
        }
        Ok((work, rest))
    });
    Ok(task.await.map_err(|panic| broken(&place, &panic))??)
}
