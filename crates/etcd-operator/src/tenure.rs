//! What a controller works with while it leads.

use std::path::PathBuf;

use domain::HopTable;
use kube::Client;
use runtime::events::Recorder;
use runtime::lease::Leadership;
use runtime::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::scope::Scope;

/// One for each tenure as leader: nothing remembered outlives the right to act on it.
#[derive(Clone)]
pub struct Tenure {
    /// Refuses to write once the tenure is over.
    pub client: Client,
    pub leadership: Leadership,
    pub recorder: Recorder,
    pub rounds: Metrics,
    pub scope: Scope,
    /// The pod that this process runs in.
    pub pod: String,
    /// The image of this program, if somebody said it.
    pub image: Option<String>,
    /// The namespace that this process runs in: claims can be mounted in no other.
    pub namespace: String,
    /// Where claims are mounted, each in a folder of its name.
    pub volumes: PathBuf,
    /// The versions that etcd passes through.
    pub hops: HopTable,
    /// The process is to end.
    pub stop: CancellationToken,
}

impl Tenure {
    /// Completes when the work has to end, for either reason.
    pub async fn over(self) {
        tokio::select! { () = self.stop.cancelled() => {} () = self.leadership.lost() => {} }
    }
}
