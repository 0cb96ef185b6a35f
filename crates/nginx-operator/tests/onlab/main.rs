//! The operator as its users run it: from its manifests, on real nodes, with real nginx and clients that never stop asking.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests, too")]

mod operand;
mod support;
mod versions;
