//! Backups of real etcd, from 3.1 to 3.6, in folders and on a real S3 server; and everything that can be wrong with them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod damage;
mod etcds;
mod mutants;
mod s3;
mod stores;
mod survivors;
mod versions;

use jiff::Timestamp;
use lab::programs::{Program, Programs, default_cache};
use snapshot::store::Secret;
use snapshot::{Endpoints, From, Manifest, Meta, Naming, Place, SaveError, StoreSource, save, store};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Generous: the machine may be busy with other tests.
const SOON: Duration = Duration::from_secs(30);

/// The real program, built if this is the first time.
fn program(program: Program) -> PathBuf {
    Programs::new(&default_cache().unwrap()).path(program).unwrap()
}

fn meta(owner: &str) -> Meta {
    Meta {
        slot: Timestamp::now(),
        owner_uid: owner.into(),
        owner: format!("test/{owner}"),
        cluster_name: Some("example".into()),
        cluster_spec: Some(serde_json::json!({"size": 3, "version": "3.5.16"})),
    }
}

fn folder(root: &Path, path: &str) -> Place {
    let source = StoreSource::Volume { root: root.to_owned(), path: path.into() };
    store::open(&source, &Secret::new()).unwrap()
}

async fn saved(endpoints: &Endpoints, place: &Place, naming: Naming) -> Result<(Place, Manifest), SaveError> {
    let from = From::Cluster(endpoints.clone());
    save(from, place, naming, &meta("uid"), &CancellationToken::new(), |_| {}).await
}
