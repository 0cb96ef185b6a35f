//! What this process wrote itself and its caches may not show yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use tokio::time::Instant;

/// A watch that is slower than this is not waited for: the API server is asked instead.
const PATIENCE: Duration = Duration::from_secs(5);

enum Write<K> {
    /// As the API server answered.
    Object(Arc<K>),
    /// The object of this UID is gone.
    Gone(String),
}

/// Our own writes of one kind in one cluster, by object name, each until the cache has caught up with it.
pub struct Written<K>(BTreeMap<String, (Instant, Write<K>)>);

impl<K> Default for Written<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Resource> Written<K> {
    pub fn object(&mut self, object: K) {
        self.0.insert(object.name_any(), (Instant::now(), Write::Object(Arc::new(object))));
    }

    pub fn gone(&mut self, name: &str, uid: &str) {
        self.0.insert(name.to_owned(), (Instant::now(), Write::Gone(uid.to_owned())));
    }

    /// The cache's objects with our own writes laid over them, and whether that can be trusted.
    pub fn over(&mut self, cached: Vec<Arc<K>>) -> (Vec<Arc<K>>, bool) {
        let mut objects: BTreeMap<String, Arc<K>> =
            cached.into_iter().map(|object| (object.name_any(), object)).collect();
        let mut trusted = true;
        self.0.retain(|name, (at, write)| {
            let seen = objects.get(name);
            let caught_up = match &*write {
                Write::Object(ours) => {
                    seen.is_some_and(|seen| reached(seen.meta().resource_version.as_deref(), ours))
                }
                Write::Gone(uid) => seen.is_none_or(|seen| seen.meta().uid.as_ref() != Some(uid)),
            };
            if caught_up {
                return false;
            }
            if at.elapsed() > PATIENCE {
                trusted = false;
                return false;
            }
            match write {
                Write::Object(ours) => drop(objects.insert(name.clone(), ours.clone())),
                Write::Gone(_) => drop(objects.remove(name)),
            }
            true
        });
        (objects.into_values().collect(), trusted)
    }
}

/// Whether a cached resource version is at least as new as what we wrote. They are numbers that only grow.
fn reached<K: Resource>(cached: Option<&str>, ours: &Arc<K>) -> bool {
    let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
    match (number(cached), number(ours.meta().resource_version.as_deref())) {
        (Some(cached), Some(ours)) => cached >= ours,
        _ => cached == ours.meta().resource_version.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::ObjectMeta;

    fn pod(name: &str, uid: &str, version: &str) -> Pod {
        let metadata = ObjectMeta {
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    fn seen(written: &mut Written<Pod>, cached: &[Pod]) -> (Vec<String>, bool) {
        let (objects, trusted) = written.over(cached.iter().cloned().map(Arc::new).collect());
        let shown = |pod: &Arc<Pod>| {
            format!("{}:{}", pod.name_any(), pod.meta().resource_version.as_deref().unwrap_or("?"))
        };
        (objects.iter().map(shown).collect(), trusted)
    }

    #[tokio::test(start_paused = true)]
    async fn our_write_shows_until_the_cache_has_it_or_something_newer() {
        let mut written = Written::default();
        written.object(pod("a", "1", "10"));
        assert_eq!(seen(&mut written, &[]), (vec!["a:10".into()], true));
        assert_eq!(seen(&mut written, &[pod("a", "1", "9")]), (vec!["a:10".into()], true));
        assert_eq!(seen(&mut written, &[pod("a", "1", "11")]), (vec!["a:11".into()], true));
        assert_eq!(seen(&mut written, &[]), (vec![], true), "caught up: from now on the cache alone counts");
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_deleted_stays_hidden_and_its_successor_does_not() {
        let mut written = Written::default();
        written.gone("a", "1");
        assert_eq!(seen(&mut written, &[pod("a", "1", "9")]), (vec![], true));
        assert_eq!(seen(&mut written, &[pod("a", "2", "12")]), (vec!["a:12".into()], true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_does_not_catch_up_is_not_trusted() {
        let mut written = Written::default();
        written.object(pod("a", "1", "10"));
        tokio::time::advance(PATIENCE * 2).await;
        assert_eq!(seen(&mut written, &[]), (vec![], false));
        assert_eq!(seen(&mut written, &[]), (vec![], true), "asked for once");
    }
}
