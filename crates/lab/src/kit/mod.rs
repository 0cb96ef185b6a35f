//! What tests on a lab are written with: a lab to join, a namespace of one's own, waits with deadlines, a bundle on failure.

mod bundle;
mod namespace;
mod watch;

use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use bundle::root as bundle_root;
pub use namespace::TestNamespace;
pub use watch::{gone, wait_for};

use crate::{Lab, Options, Result};

/// Tests that break nodes need the lab for themselves; all others share it.
static TURN: RwLock<()> = RwLock::const_new(());
static SHARED: OnceCell<Lab> = OnceCell::const_new();

/// The lab that all tests of a run share; `make test` brings it up and takes it down.
pub async fn shared_lab() -> Result<(&'static Lab, RwLockReadGuard<'static, ()>)> {
    let turn = TURN.read().await;
    Ok((joined().await?, turn))
}

/// The same lab, with nobody else on it: for tests that break nodes, links or the API server.
pub async fn lab_alone() -> Result<(&'static Lab, Alone)> {
    let turn = TURN.write().await;
    let lab = joined().await?;
    Ok((lab, Alone { lab, _turn: turn }))
}

/// Whatever became of the test, its cuts and pauses are undone before the next one starts.
pub struct Alone {
    lab: &'static Lab,
    _turn: RwLockWriteGuard<'static, ()>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Err(error) = self.lab.mend() {
            eprintln!("the lab could not be mended: {error}");
        }
    }
}

async fn joined() -> Result<&'static Lab> {
    SHARED
        .get_or_try_init(|| async {
            Lab::up(&Options { quiet: true, ..Options::full(&shared_name()) }).await
        })
        .await
}

/// `LAB_TEST_NAME`, or `test`: never the name of a lab that a person made for themselves.
pub fn shared_name() -> String {
    std::env::var("LAB_TEST_NAME").unwrap_or_else(|_| "test".into())
}
