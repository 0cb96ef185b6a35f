//! What tests on a lab are written with: a lab to join, a namespace of one's own, waits with deadlines, a bundle on failure.

mod bundle;
mod namespace;
mod watch;

use std::time::Duration;

use tokio::sync::{Mutex, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use bundle::root as bundle_root;
pub use namespace::TestNamespace;
pub use watch::{gone, wait_for, wait_for_all};

use crate::{Lab, Options, Result};

/// For nodes to come back from what the test before did to them.
const RECOVERY: Duration = Duration::from_mins(3);
/// Tests that break nodes need the lab for themselves; all others share it.
static TURN: RwLock<()> = RwLock::const_new(());
static SHARED: OnceCell<Lab> = OnceCell::const_new();
/// Two tests that find the same node stopped do not both start it.
static REPAIR: Mutex<()> = Mutex::const_new(());

/// The lab that all tests of a run share; `make test` brings it up and takes it down.
pub async fn shared_lab() -> Result<(&'static Lab, RwLockReadGuard<'static, ()>)> {
    let turn = TURN.read().await;
    Ok((ready().await?, turn))
}

/// The same lab, with nobody else on it: for tests that break nodes, links or the API server.
pub async fn lab_alone() -> Result<(&'static Lab, Alone)> {
    let turn = TURN.write().await;
    let lab = ready().await?;
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

/// The lab, with every node as if nobody had broken it before.
async fn ready() -> Result<&'static Lab> {
    let up = || async { Lab::up(&Options { quiet: true, ..Options::full(&shared_name()) }).await };
    let lab = SHARED.get_or_try_init(up).await?;
    let repair = REPAIR.lock().await;
    lab.start_stopped_nodes().await?;
    drop(repair);
    lab.nodes_usable(RECOVERY).await?;
    Ok(lab)
}

/// `LAB_TEST_NAME`, or `test`: never the name of a lab that a person made for themselves.
pub fn shared_name() -> String {
    std::env::var("LAB_TEST_NAME").unwrap_or_else(|_| "test".into())
}
