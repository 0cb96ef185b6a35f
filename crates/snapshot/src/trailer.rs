//! The end of a snapshot: the SHA-256 of all that is before it.

use sha2::{Digest, Sha256};

pub(crate) const TRAILER: usize = 32;
pub(crate) type Sum = [u8; TRAILER];

/// Hashes a snapshot on its way, the last 32 bytes apart.
#[derive(Default)]
pub(crate) struct TrailerCheck {
    hash: Sha256,
    /// The last bytes seen: 32, or all if there were fewer.
    tail: Vec<u8>,
    bytes: u64,
}

/// What was found at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    pub computed: Sum,
    pub stored: Sum,
}

impl TrailerCheck {
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let Some(body) = piece.len().checked_sub(TRAILER) else {
            self.tail.extend_from_slice(piece);
            let body = self.tail.len().saturating_sub(TRAILER);
            self.hash.update(&self.tail[..body]);
            self.tail.drain(..body);
            return;
        };
        self.hash.update(&self.tail);
        self.hash.update(&piece[..body]);
        self.tail.clear();
        self.tail.extend_from_slice(&piece[body..]);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `None` if there was less than a trailer.
    pub(crate) fn finish(self) -> Option<Checked> {
        let stored = self.tail.try_into().ok()?;
        Some(Checked { computed: self.hash.finalize().into(), stored })
    }
}

impl Checked {
    pub(crate) fn holds(&self) -> bool {
        self.computed == self.stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_do_not_matter(body in prop::collection::vec(any::<u8>(), 0..300), cuts in prop::collection::vec(1usize..80, 1..20)) {
            let mut whole = body.clone();
            whole.extend_from_slice(&Sha256::digest(&body));
            let mut check = TrailerCheck::default();
            let (mut rest, mut cuts) = (whole.as_slice(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                check.update(piece);
                rest = after;
            }
            prop_assert_eq!(check.bytes(), whole.len() as u64);
            prop_assert!(check.finish().unwrap().holds());
        }
    }

    #[test]
    fn less_than_a_trailer_is_none() {
        let mut check = TrailerCheck::default();
        check.update(&[0; 31]);
        assert_eq!(check.finish(), None);
    }
}
