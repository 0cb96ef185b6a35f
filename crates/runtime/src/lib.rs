//! What every operator needs: lease, recorder, conditions, metrics, health, CRDs, rights.
//!
//! The modules know nothing of any one operator; each is used on its own.

pub mod backoff;
pub mod client;
pub mod conditions;
pub mod crd;
pub mod events;
pub mod lease;
pub mod logging;
pub mod metrics;
pub mod rights;
pub mod server;
pub mod shutdown;

#[cfg(test)]
mod testing;
