//! What this process wrote itself and its caches may not show yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use tokio::time::Instant;

/// A watch that is slower than this is not waited for: the API server is asked instead.
const PATIENCE: Duration = Duration::from_secs(5);

enum Write<K> {
    /// Made by us: a cache that lacks it has not heard of it yet.
    Created(Arc<K>),
    /// Changed by us: a cache that lacks it knows that it is gone.
    Changed(Arc<K>),
    /// The object of this UID is gone.
    Gone(Option<String>),
}

/// Our own writes of one kind in one cluster, by object name, each until the cache has caught up with it.
pub struct Written<K>(BTreeMap<String, (Instant, Write<K>)>);

impl<K> Default for Written<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Resource> Written<K> {
    pub fn created(&mut self, object: K) {
        self.note(object.name_any(), Write::Created(Arc::new(object)));
    }

    pub fn changed(&mut self, object: K) {
        self.note(object.name_any(), Write::Changed(Arc::new(object)));
    }

    pub fn gone(&mut self, name: &str, uid: &str) {
        self.note(name.to_owned(), Write::Gone(Some(uid.to_owned())));
    }

    fn note(&mut self, name: String, write: Write<K>) {
        self.0.insert(name, (Instant::now(), write));
    }

    /// The cache's objects with our own writes laid over them, and whether that can be trusted.
    pub fn over(&mut self, cached: Vec<Arc<K>>) -> (Vec<Arc<K>>, bool) {
        let mut objects: BTreeMap<String, Arc<K>> =
            cached.into_iter().map(|object| (object.name_any(), object)).collect();
        let mut trusted = true;
        self.0.retain(|name, (at, write)| {
            let seen = objects.get(name);
            let caught_up = match &*write {
                Write::Created(ours) => seen.is_some_and(|seen| reached(seen, ours)),
                Write::Changed(ours) => seen.is_none_or(|seen| reached(seen, ours)),
                Write::Gone(uid) => seen.is_none_or(|seen| seen.meta().uid != *uid),
            };
            if caught_up {
                return false;
            }
            if at.elapsed() > PATIENCE {
                trusted = false;
                return false;
            }
            match write {
                Write::Created(ours) | Write::Changed(ours) => {
                    drop(objects.insert(name.clone(), ours.clone()));
                }
                Write::Gone(_) => drop(objects.remove(name)),
            }
            true
        });
        (objects.into_values().collect(), trusted)
    }

    /// Takes over what the API server says now, so that a cache that lags does not undo it.
    pub fn settle(&mut self, live: &[Arc<K>]) {
        for (name, (_, write)) in &mut self.0 {
            let now = live.iter().find(|object| object.meta().name.as_ref() == Some(name));
            *write = match (now, &*write) {
                (Some(object), _) => Write::Created(object.clone()),
                (None, Write::Created(ours) | Write::Changed(ours)) => Write::Gone(ours.meta().uid.clone()),
                (None, Write::Gone(uid)) => Write::Gone(uid.clone()),
            };
        }
    }
}

/// Whether a cached object is at least as new as what we wrote. Resource versions are numbers that only grow.
fn reached<K: Resource>(cached: &Arc<K>, ours: &Arc<K>) -> bool {
    let (cached, ours) = (&cached.meta().resource_version, &ours.meta().resource_version);
    let number = |version: &Option<String>| version.as_ref().and_then(|version| version.parse::<u64>().ok());
    match (number(cached), number(ours)) {
        (Some(cached), Some(ours)) => cached >= ours,
        _ => cached == ours,
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
    async fn what_we_made_shows_until_the_cache_has_it_or_something_newer() {
        let mut written = Written::default();
        written.created(pod("a", "1", "10"));
        assert_eq!(seen(&mut written, &[]), (vec!["a:10".into()], true));
        assert_eq!(seen(&mut written, &[pod("a", "1", "9")]), (vec!["a:10".into()], true));
        assert_eq!(seen(&mut written, &[pod("a", "1", "11")]), (vec!["a:11".into()], true));
        assert_eq!(seen(&mut written, &[]), (vec![], true), "caught up: from now on the cache alone counts");
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_changed_is_gone_when_the_cache_lacks_it() {
        let mut written = Written::default();
        written.changed(pod("a", "1", "10"));
        assert_eq!(seen(&mut written, &[pod("a", "1", "9")]), (vec!["a:10".into()], true));
        assert_eq!(seen(&mut written, &[]), (vec![], true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_deleted_stays_hidden_and_its_successor_does_not() {
        let mut written = Written::default();
        written.gone("a", "1");
        assert_eq!(seen(&mut written, &[pod("a", "1", "9")]), (vec![], true));
        assert_eq!(seen(&mut written, &[pod("a", "2", "12")]), (vec!["a:12".into()], true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_list_has_the_last_word() {
        let mut written = Written::default();
        written.created(pod("a", "1", "10"));
        written.changed(pod("b", "2", "11"));
        written.settle(&[Arc::new(pod("b", "2", "15"))]);
        let lagging = [pod("a", "1", "10"), pod("b", "2", "9")];
        assert_eq!(seen(&mut written, &lagging), (vec!["b:15".into()], true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_does_not_catch_up_is_not_trusted() {
        let mut written = Written::default();
        written.created(pod("a", "1", "10"));
        tokio::time::advance(PATIENCE * 2).await;
        assert_eq!(seen(&mut written, &[]), (vec![], false));
        assert_eq!(seen(&mut written, &[]), (vec![], true), "asked for once");
    }
}
