//! The operator against a real kube-apiserver and controller manager, without nodes: pods are what a test says they are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests are tests, too")]

mod definition;
mod faults;
mod input;
mod life;
mod specs;
mod storage;
mod support;
mod trust;
