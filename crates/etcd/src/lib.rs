//! One etcd member over gRPC, from 3.1 to 3.6.
//!
//! A [`Member`] talks to exactly one address, gives every call a deadline, and takes an answer only if it
//! comes from the expected cluster and member: pod IPs are reused, and a wiped member keeps its address.

mod error;
pub mod kv;
mod lease;
mod maintenance;
mod member;
mod membership;
mod watch;

#[cfg(feature = "fake")]
pub mod fake;
#[cfg(feature = "faults")]
pub mod faults;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "traffic")]
pub mod traffic;

pub use error::{Error, Result};
pub use lease::Lease;
pub use maintenance::{Freshness, HashKv, Snapshot, Status};
pub use member::{Expect, Identity, Member};
pub use membership::Listed;
pub use watch::Watcher;

/// Etcd's own messages and services, as its protocol defines them.
#[allow(clippy::pedantic, unused_qualifications)]
pub mod proto {
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
}
