//! Labels of the objects that belong to a cluster, and the selectors made of them.

use std::collections::BTreeMap;

/// What an object is: [`APP_ETCD`] on everything of a cluster, except on [`APP_IMAGE_CHECK`] pods.
pub const APP: &str = "app";
/// Value of [`APP`] on members, Services, claims and budgets.
pub const APP_ETCD: &str = "etcd";
/// Value of [`APP`] on throw-away pods, so that no selector takes them for members.
pub const APP_IMAGE_CHECK: &str = "etcd-image-check";
/// Name of the `EtcdCluster` that an object belongs to.
pub const CLUSTER: &str = "etcd_cluster";
/// Name of the member that a pod or a claim belongs to.
pub const NODE: &str = "etcd_node";
/// Set to [`SERVING_TRUE`] on the pod of a started voter: the client Service and the budget select nothing else.
pub const SERVING: &str = "etcd.database.coreos.com/serving";
/// The only value of [`SERVING`]; a member that does not serve lacks the label.
pub const SERVING_TRUE: &str = "true";

/// Selector of the operator's watches: every object of every cluster.
pub const WATCH_SELECTOR: &str = CLUSTER;

pub type Labels = BTreeMap<String, String>;

/// Labels of everything that belongs to `cluster`; as a selector, all its members.
pub fn of_cluster(cluster: &str) -> Labels {
    labels([(APP, APP_ETCD), (CLUSTER, cluster)])
}

/// Labels of what belongs to one member: its pod and its claim.
pub fn of_member(cluster: &str, member: &str) -> Labels {
    labels([(APP, APP_ETCD), (CLUSTER, cluster), (NODE, member)])
}

/// Selector of the members that may get client traffic.
pub fn serving(cluster: &str) -> Labels {
    labels([(APP, APP_ETCD), (CLUSTER, cluster), (SERVING, SERVING_TRUE)])
}

/// Labels of a throw-away pod that tries an image for `cluster`.
pub fn of_image_check(cluster: &str) -> Labels {
    labels([(APP, APP_IMAGE_CHECK), (CLUSTER, cluster)])
}

/// The member that an object with these labels belongs to, if it is one of a cluster's.
pub fn member(labels: &Labels) -> Option<&str> {
    let of_etcd = labels.get(APP).is_some_and(|app| app == APP_ETCD) && labels.contains_key(CLUSTER);
    labels.get(NODE).filter(|_| of_etcd).map(String::as_str)
}

/// Whether the operator alone may set this label on pods.
pub fn is_reserved(key: &str) -> bool {
    key == APP || key.starts_with("etcd_") || key.starts_with("etcd.database.coreos.com/")
}

/// Whether these labels let clients reach the pod.
pub fn is_serving(labels: &Labels) -> bool {
    labels.get(SERVING).is_some_and(|value| value == SERVING_TRUE)
}

/// Selector as the API server takes it in lists, watches and the scale subresource.
pub fn selector(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_check_is_never_a_member() {
        let mut check = of_image_check("c");
        assert_eq!(member(&check), None);
        check.insert(NODE.into(), "c-1".into());
        assert_eq!(member(&check), None);
        assert_eq!(member(&of_member("c", "c-1")), Some("c-1"));
    }

    #[test]
    fn selectors_read_as_the_api_server_expects() {
        assert_eq!(selector(&of_cluster("c")), "app=etcd,etcd_cluster=c");
        assert_eq!(selector(&serving("c")), "app=etcd,etcd.database.coreos.com/serving=true,etcd_cluster=c");
    }
}
