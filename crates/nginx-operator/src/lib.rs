//! The nginx operator: small, complete, and the template for your own.
//!
//! Read it in this order. [`operand`] says what an `NginxOperator` asks for, [`plan`] what is to be done, [`health`]
//! how the operand is, [`report`] what is said about it: all four are pure. [`reconcile`] goes through them in turn,
//! [`watches`] says when, and [`operator`] is the process around it. [`webhook`] and [`storage`] are what it takes to
//! have two versions of an API.

pub mod cli;
pub mod health;
pub mod kept;
pub mod manifests;
pub mod metrics;
pub mod operand;
pub mod operator;
pub mod plan;
pub mod reconcile;
pub mod report;
pub mod source;
pub mod storage;
pub mod watches;
pub mod webhook;
pub mod written;

/// Name of the program, of its lease, and of it as a writer of fields.
pub const NAME: &str = "nginx-operator";
