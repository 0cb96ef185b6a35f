//! Snapshots of etcd: taken from an up-to-date member, streamed to a store, read back page by page, and made to
//! count by a manifest. No Kubernetes here.

mod aside;
mod body;
pub mod bolt;
mod fetch;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod inspect;
pub mod manifest;
mod members;
mod progress;
mod save;
pub mod store;
mod trailer;
mod turn;
mod upload;

pub use fetch::{Expect, FetchError, Mismatch, fetch, verify_data_dir};
pub use inspect::{Contents, Damage, InspectError, Kind, Prefix, inspect};
pub use manifest::Manifest;
pub use members::{Candidate, Endpoints, FindError, find};
pub use progress::Progress;
pub use save::{From, Meta, Naming, SaveError, save};
pub use store::{Place, StoreError, StoreSource};
pub use upload::sweep;
