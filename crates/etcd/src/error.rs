//! What can go wrong with one call to one member.

use crate::{Expect, Identity};
use std::error::Error as _;
use tonic::{Code, Status};

pub type Result<T> = std::result::Result<T, Error>;

/// Why a call gave no answer that we may use.
///
/// A change that ended in [`Unreachable`](Self::Unreachable) or [`TimedOut`](Self::TimedOut) may have been
/// made all the same: read again before repeating it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not an address: write host:port")]
    BadAddress(String),
    #[error("the member cannot be reached: {0}")]
    Unreachable(String),
    #[error("the member did not answer in time")]
    TimedOut,
    #[error("the member knows no leader: quorum is lost or an election is under way")]
    NoLeader,
    #[error("etcd waits until every voter has been connected for 5 s: try again")]
    UnhealthyCluster,
    #[error("etcd waits until more members have started: start them, then try again")]
    NotEnoughStarted,
    #[error("the learner has not caught up with the leader: try again")]
    LearnerNotReady,
    #[error("the cluster has as many learners as it may have: promote or remove one first")]
    TooManyLearners,
    #[error("the member is a voter already")]
    NotALearner,
    #[error("the cluster has no such member")]
    MemberNotFound,
    #[error("another member has this peer URL")]
    PeerUrlTaken,
    #[error("leadership cannot go to this member: it is no voter")]
    NotAVoter,
    #[error("only the leader can do this: ask the leader")]
    NotLeader,
    #[error("the member is a learner, and learners do not serve this: ask a voter")]
    AskedLearner,
    #[error("this version of etcd cannot do this")]
    Unsupported,
    #[error("the answer came from {found}, expected {expected}: the address belongs to another member now")]
    WrongIdentity { expected: Expect, found: Identity },
    #[error("the database is full: raise the quota, or compact and defragment, then disarm the alarm")]
    NoSpace,
    #[error("etcd found its data corrupt")]
    Corrupt,
    #[error("the revision was compacted: ask for a newer one")]
    Compacted,
    #[error("the member has not reached this revision")]
    FutureRevision,
    #[error("etcd refused this user: {0}")]
    Denied(String),
    #[error("the answer makes no sense: {0}")]
    BadAnswer(&'static str),
    #[error("etcd answered {code:?}: {message}")]
    Other { code: Code, message: String },
}

/// Etcd's own words, by which alone its answers can be told apart: versions differ in the codes they send.
/// The first match counts, so the longer of two similar sentences comes first.
const ANSWERS: &[(&str, Error)] = &[
    ("unhealthy cluster", Error::UnhealthyCluster),
    ("not enough started members", Error::NotEnoughStarted),
    ("in sync with leader", Error::LearnerNotReady),
    ("can only promote a learner", Error::NotALearner),
    ("too many learner members", Error::TooManyLearners),
    ("rpc not supported for learner", Error::AskedLearner),
    ("member not found", Error::MemberNotFound),
    ("Peer URLs already exists", Error::PeerUrlTaken),
    ("peerURL exists", Error::PeerUrlTaken),
    ("request timed out", Error::TimedOut),
    ("context deadline exceeded", Error::TimedOut),
    ("no leader", Error::NoLeader),
    ("leader changed", Error::NoLeader),
    ("not leader", Error::NotLeader),
    ("bad leader transferee", Error::NotAVoter),
    ("database space exceeded", Error::NoSpace),
    ("corrupt cluster", Error::Corrupt),
    ("revision has been compacted", Error::Compacted),
    ("is a future revision", Error::FutureRevision),
    ("not capable", Error::Unsupported),
];

impl Error {
    /// The same call may succeed later, with nothing done but waiting.
    pub fn is_wait(&self) -> bool {
        matches!(
            self,
            Self::UnhealthyCluster | Self::NotEnoughStarted | Self::LearnerNotReady | Self::NoLeader
        )
    }

    /// A change may have been made although this error came back.
    pub fn outcome_unknown(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::TimedOut
                | Self::NoLeader
                | Self::WrongIdentity { .. }
                | Self::BadAnswer(_)
                | Self::Other { .. }
        )
    }

    pub(crate) fn of(status: &Status) -> Self {
        // Only errors made on this side have a cause: nothing, or not etcd, answered.
        if let Some(cause) = status.source() {
            return match status.code() {
                Code::Cancelled | Code::DeadlineExceeded => Self::TimedOut,
                _ => Self::Unreachable(innermost(cause)),
            };
        }
        let message = status.message();
        if let Some((_, error)) = ANSWERS.iter().find(|(words, _)| message.contains(words)) {
            return error.clone();
        }
        match status.code() {
            Code::Unimplemented => Self::Unsupported,
            Code::Cancelled | Code::DeadlineExceeded => Self::TimedOut,
            Code::PermissionDenied | Code::Unauthenticated => Self::Denied(message.into()),
            Code::InvalidArgument if message.contains("user name is empty") => Self::Denied(message.into()),
            Code::Unavailable => Self::Unreachable(message.into()),
            // The words of the generated client when the connection is beyond repair.
            Code::Unknown if message.starts_with("Service was not ready") => {
                Self::Unreachable(message.into())
            }
            code => Self::Other { code, message: message.into() },
        }
    }
}

/// The operating system's words ("connection refused") say more than the layers around them.
fn innermost(mut cause: &(dyn std::error::Error + 'static)) -> String {
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Code::Unavailable, "etcdserver: unhealthy cluster", Error::UnhealthyCluster)]
    #[case(Code::Unknown, "etcdserver: unhealthy cluster", Error::UnhealthyCluster)]
    #[case(
        Code::FailedPrecondition,
        "etcdserver: re-configuration failed due to not enough started members",
        Error::NotEnoughStarted
    )]
    #[case(
        Code::FailedPrecondition,
        "etcdserver: can only promote a learner member which is in sync with leader",
        Error::LearnerNotReady
    )]
    #[case(Code::FailedPrecondition, "etcdserver: can only promote a learner member", Error::NotALearner)]
    #[case(
        Code::FailedPrecondition,
        "etcdserver: too many learner members in cluster",
        Error::TooManyLearners
    )]
    #[case(Code::NotFound, "etcdserver: member not found", Error::MemberNotFound)]
    #[case(Code::Unavailable, "etcdserver: no leader", Error::NoLeader)]
    #[case(Code::FailedPrecondition, "etcdserver: not leader", Error::NotLeader)]
    #[case(
        Code::Unavailable,
        "etcdserver: request timed out, possibly due to connection lost",
        Error::TimedOut
    )]
    #[case(Code::Unimplemented, "unknown method MemberPromote", Error::Unsupported)]
    #[case(Code::DeadlineExceeded, "context deadline exceeded", Error::TimedOut)]
    #[case(Code::Unavailable, "etcdserver: rpc not supported for learner", Error::AskedLearner)]
    #[case(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Error::NoSpace)]
    fn knows_etcds_words(#[case] code: Code, #[case] message: &str, #[case] expected: Error) {
        assert_eq!(Error::of(&Status::new(code, message)), expected);
    }

    #[test]
    fn keeps_what_it_does_not_know() {
        let status = Status::new(Code::FailedPrecondition, "etcdserver: something new");
        assert_eq!(
            Error::of(&status),
            Error::Other { code: Code::FailedPrecondition, message: "etcdserver: something new".into() }
        );
        let denied = Status::new(Code::PermissionDenied, "etcdserver: permission denied");
        assert_eq!(Error::of(&denied), Error::Denied("etcdserver: permission denied".into()));
    }
}
