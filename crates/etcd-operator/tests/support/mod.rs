//! What scenarios on the lab are written with: an operator of one's own, a cluster to edit and to wait on, clients that
//! write and read all the time.
#![allow(dead_code)] // Each test uses its part.

mod clients;
mod cluster;
mod operator;

pub use clients::Clients;
pub use cluster::Cluster;
pub use operator::Operator;

/// Whatever goes wrong in a test, as text for the one who reads it.
pub type Result<T, E = Failed> = std::result::Result<T, E>;

#[derive(Debug)]
pub struct Failed(pub String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Fails the test with a sentence, so that its namespace is bundled up and removed.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err($crate::support::Failed(format!($($why)+)));
        }
    };
}
