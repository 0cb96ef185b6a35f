//! The EtcdBackup controller.

mod plan;
mod timing;

use runtime::rights::Need;

use crate::tenure::Tenure;

/// The name of this controller, of its metrics and of its lease.
pub const NAME: &str = "backup";

/// What this controller does, beside what every one does; manifests grant at least this.
pub const NEEDS: [Need; 4] = [
    Need::namespaced(api::GROUP, "etcdbackups", &["list", "watch"]),
    Need::namespaced(api::GROUP, "etcdbackups/status", &["update"]),
    Need::namespaced(api::GROUP, "etcdclusters", &["get"]),
    Need::namespaced("", "secrets", &["get"]),
];

/// Works until the tenure is over.
pub async fn run(tenure: Tenure) {
    tenure.over().await;
}
