//! How far a backup or a restore has come.

use domain::MemberId;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This member gives the snapshot.
    Chosen { member: MemberId, leader: bool },
    /// On the way to the store, or from it; how much is to come is not always known.
    Moved { bytes: u64, total: Option<u64> },
    /// All of it is in the store; it is read back now.
    Verifying { bytes: u64 },
    /// Revision, keys and digest are known, and the backup counts.
    Done { revision: i64, keys: u64 },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { member, leader: false } => write!(f, "follower {member} gives the snapshot"),
            Self::Chosen { member, leader: true } => {
                write!(f, "leader {member} gives the snapshot: no follower can")
            }
            Self::Moved { bytes, total: Some(total) } => write!(f, "{bytes} of {total} bytes moved"),
            Self::Moved { bytes, total: None } => write!(f, "{bytes} bytes moved"),
            Self::Verifying { bytes } => write!(f, "reading back {bytes} bytes"),
            Self::Done { revision, keys } => write!(f, "revision {revision}, {keys} keys"),
        }
    }
}
