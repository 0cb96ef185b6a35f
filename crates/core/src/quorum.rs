//! Quorum arithmetic.

/// How many of `voters` must agree.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}
