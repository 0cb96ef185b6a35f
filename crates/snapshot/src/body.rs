//! The sum of a snapshot's body, which is all but its trailer, when it is read back.

use crate::Damage;
use crate::trailer::Sum;
use sha2::{Digest, Sha256};
use twox_hash::XxHash3_128;

/// What was sent to a store, to be known again when it is read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub sha256: Sum,
    /// Of the same bytes, and computed many times as fast: it tells accidents, as the digest does.
    pub quick: u128,
}

/// The sum of all but the trailer, while it is read.
pub(crate) enum BodyHash {
    Unknown(Sha256),
    Sent(Sent, Box<XxHash3_128>),
}

impl BodyHash {
    pub(crate) fn new(sent: Option<Sent>) -> Self {
        sent.map_or_else(|| Self::Unknown(Sha256::new()), |sent| Self::Sent(sent, Box::default()))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Unknown(hash) => hash.update(bytes),
            Self::Sent(_, hash) => hash.write(bytes),
        }
    }

    /// The SHA-256, of what was sent if this is the same.
    pub(crate) fn finish(self) -> Result<Sum, Damage> {
        match self {
            Self::Unknown(hash) => Ok(hash.finalize().into()),
            Self::Sent(sent, hash) if hash.finish_128() == sent.quick => Ok(sent.sha256),
            Self::Sent(..) => Err(Damage::Altered),
        }
    }
}
