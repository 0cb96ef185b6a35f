//! Trees of pages: branches are read one by one, leaves only named.

use super::file::File;
use super::{Damage, InspectError};
use crate::bolt::{Kind, Page, PageError, PageId};
use futures::{StreamExt, TryStreamExt, stream};

/// Branches read at once: in a store, each is a request.
const AT_ONCE: usize = 8;
/// A hundred children each: no file has a tree of ten levels.
const DEEPEST: usize = 16;

/// A set of pages, in one bit each.
#[derive(Debug, Clone)]
pub(super) struct Pages(Vec<u64>);

impl Pages {
    pub(super) fn none(end: PageId) -> Self {
        Self(vec![0; usize::try_from(end.div_ceil(64)).unwrap_or(usize::MAX)])
    }

    /// Whether it is new.
    pub(super) fn insert(&mut self, id: PageId) -> bool {
        let Some((word, bit)) = Self::place(id).and_then(|(word, bit)| Some((self.0.get_mut(word)?, bit)))
        else {
            return false;
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(super) fn has(&self, id: PageId) -> bool {
        Self::place(id).and_then(|(word, bit)| Some(self.0.get(word)? & bit != 0)).unwrap_or(false)
    }

    fn place(id: PageId) -> Option<(usize, u64)> {
        Some((usize::try_from(id / 64).ok()?, 1 << (id % 64)))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The first page of the set in `from..to`.
    pub(super) fn first_in(&self, from: PageId, to: PageId) -> Option<PageId> {
        (from..to).find(|id| self.has(*id))
    }
}

/// Names every leaf below `root`, in order, with the key that its parent has for it. `used` learns every page, and no
/// page is used twice.
pub(super) async fn leaves(
    file: &File,
    root: PageId,
    used: &mut Pages,
    mut visit: impl FnMut(PageId, &[u8]) -> Result<(), Damage>,
) -> Result<(), InspectError> {
    let mut take = |id| {
        file.check_id(id)?;
        if used.insert(id) { Ok(()) } else { Err(Damage::PageTwice(id)) }
    };
    take(root)?;
    let height = height(file, root).await?;
    if height == 0 {
        return Ok(visit(root, b"")?);
    }
    let mut level = vec![root];
    for depth in 1..=height {
        let mut next = Vec::new();
        let mut last = None::<Vec<u8>>;
        let mut pages = stream::iter(level)
            .map(|id| async move { Ok::<_, InspectError>((id, file.page(id).await?)) })
            .buffered(AT_ONCE);
        while let Some((id, bytes)) = pages.try_next().await? {
            let damaged = |why| Damage::Page { page: id, why };
            for branch in Page::parse(&bytes, id).map_err(damaged)?.branches().map_err(damaged)? {
                let branch = branch.map_err(damaged)?;
                if last.as_deref().is_some_and(|last| last >= branch.key) {
                    return Err(Damage::PageOrder(branch.child).into());
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(branch.key);
                take(branch.child)?;
                if depth == height {
                    visit(branch.child, branch.key)?;
                } else {
                    next.push(branch.child);
                }
            }
        }
        level = next;
    }
    Ok(())
}

/// Levels of branches above the leaves: the same all over the tree.
async fn height(file: &File, root: PageId) -> Result<usize, InspectError> {
    let mut id = root;
    for height in 0..DEEPEST {
        let bytes = file.page(id).await?;
        let damaged = |why| Damage::Page { page: id, why };
        let page = Page::parse(&bytes, id).map_err(damaged)?;
        if page.kind == Kind::Leaf {
            return Ok(height);
        }
        let mut branches = page.branches().map_err(damaged)?;
        let first = branches.next().unwrap_or(Err(PageError::NoElements)).map_err(damaged)?;
        id = first.child;
    }
    Err(Damage::TooDeep(root).into())
}
