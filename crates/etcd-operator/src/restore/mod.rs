//! The EtcdRestore controller.

use runtime::rights::Need;

use crate::tenure::Tenure;

/// The name of this controller, of its metrics and of its lease.
pub const NAME: &str = "restore";

/// What this controller does, beside what every one does; manifests grant at least this.
pub const NEEDS: [Need; 4] = [
    Need::namespaced(api::GROUP, "etcdrestores", &["list", "watch"]),
    Need::namespaced(api::GROUP, "etcdrestores/status", &["update"]),
    Need::namespaced(api::GROUP, "etcdclusters", &["get"]),
    Need::namespaced("", "secrets", &["get"]),
];

/// Works until the tenure is over.
pub async fn run(tenure: Tenure) {
    tenure.over().await;
}
