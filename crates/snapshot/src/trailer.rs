//! The end of a snapshot: the SHA-256 of all that is before it.

use crate::body::Sent;
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_128;

pub(crate) const TRAILER: usize = 32;
pub(crate) type Sum = [u8; TRAILER];

/// Hashes a snapshot on its way, the last 32 bytes apart.
#[derive(Default)]
pub(crate) struct TrailerCheck {
    sha256: Sha256,
    quick: XxHash3_128,
    /// The last bytes seen: 32, or all if there were fewer.
    tail: Vec<u8>,
}

/// What was found at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    pub computed: Sum,
    pub stored: Sum,
}

impl TrailerCheck {
    pub(crate) fn update(&mut self, piece: &[u8]) {
        let Some(body) = piece.len().checked_sub(TRAILER) else {
            self.tail.extend_from_slice(piece);
            let body = self.tail.len().saturating_sub(TRAILER);
            let body: Vec<u8> = self.tail.drain(..body).collect();
            return self.hash(&body);
        };
        let before = std::mem::replace(&mut self.tail, piece[body..].to_vec());
        self.hash(&before);
        self.hash(&piece[..body]);
    }

    fn hash(&mut self, body: &[u8]) {
        self.sha256.update(body);
        self.quick.write(body);
    }

    /// `None` if there was less than a trailer.
    pub(crate) fn finish(self) -> Option<(Checked, Sent)> {
        let (computed, stored) = (self.sha256.finalize().into(), self.tail.try_into().ok()?);
        Some((Checked { computed, stored }, Sent { sha256: computed, quick: self.quick.finish_128() }))
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
    use crate::Damage;
    use crate::body::BodyHash;
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
            let (checked, sent) = check.finish().unwrap();
            prop_assert!(checked.holds());
            let mut known = BodyHash::new(Some(sent));
            body.chunks(7).for_each(|chunk| known.update(chunk));
            prop_assert_eq!(known.finish(), Ok(checked.computed));
            let mut other = BodyHash::new(Some(sent));
            other.update(&whole);
            prop_assert_eq!(other.finish(), Err(Damage::Altered));
        }
    }

    #[test]
    fn less_than_a_trailer_is_none() {
        let mut check = TrailerCheck::default();
        check.update(&[0; 31]);
        assert_eq!(check.finish(), None);
    }
}
