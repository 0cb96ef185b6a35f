//! What the operator may do: asked for at start, and what its manifests grant.

use runtime::rights::Need;

use crate::cli::Controller;
use crate::{backup, cluster, restore};

/// What one controller does in the namespaces that it looks after.
pub fn of(controller: Controller) -> &'static [Need] {
    match controller {
        Controller::Cluster => &cluster::NEEDS,
        Controller::Backup => &backup::NEEDS,
        Controller::Restore => &restore::NEEDS,
    }
}

/// What every controller does there.
pub const EVERYONE: [Need; 1] = [Need::namespaced("", "events", &["create", "patch"])];

/// In the namespace that the operator itself runs in.
pub const AT_HOME: [Need; 1] =
    [Need::namespaced("coordination.k8s.io", "leases", &["get", "create", "update"])];

/// Only with `--create-crd`.
pub const CREATE_CRD: Need =
    Need::cluster("apiextensions.k8s.io", "customresourcedefinitions", &["get", "create", "update"]);

/// Used where they are granted, and done without where they are not.
pub mod optional {
    use super::Need;

    /// A backup comes before a new minor.
    pub const CLUSTER: [Need; 2] = [
        Need::namespaced(api::GROUP, "etcdbackups", &["list", "create"]),
        // The lock of the operator before ours, whose pods are not taken over while it runs.
        Need::namespaced("", "endpoints", &["list"]),
    ];

    /// The leases go with the Deployment.
    pub const AT_HOME: [Need; 2] =
        [Need::namespaced("", "pods", &["get"]), Need::namespaced("apps", "deployments", &["get"])];

    /// A node that is gone proves the data of its members gone.
    pub const EVERYWHERE: [Need; 1] = [Need::cluster("", "nodes", &["get"])];
}

/// What manifests grant a controller.
pub fn granted(controller: Controller) -> Vec<Need> {
    let optional = if controller == Controller::Cluster { optional::CLUSTER.as_slice() } else { &[] };
    [of(controller), optional].concat()
}

/// What manifests grant in the operator's own namespace.
pub fn granted_at_home() -> Vec<Need> {
    [AT_HOME.as_slice(), &optional::AT_HOME].concat()
}
