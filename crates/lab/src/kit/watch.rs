//! Waiting for Kubernetes objects: by watch, with a deadline, and with the last seen state in the error.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// The object, as soon as `holds` is true of it.
pub async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    limit: Duration,
    what: &str,
    holds: impl Fn(&K) -> bool,
) -> Result<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + serde::Serialize + 'static,
{
    wait(api, name, limit, what, |object| object.filter(|o| holds(o)).cloned()).await
}

/// Nothing of that name is there any more.
pub async fn gone<K>(api: &Api<K>, name: &str, limit: Duration) -> Result<()>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + serde::Serialize + 'static,
{
    wait(api, name, limit, "to be gone", |object| object.is_none().then_some(())).await
}

/// All objects that `config` selects, as soon as `holds` is true of them together.
pub async fn wait_for_all<K>(
    api: &Api<K>,
    config: watcher::Config,
    limit: Duration,
    what: &str,
    holds: impl Fn(&[K]) -> bool,
) -> Result<Vec<K>>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut there: BTreeMap<_, K> = BTreeMap::new();
    let place = |object: &K| (object.namespace(), object.name_any());
    let search = async {
        let events = watcher(api.clone(), config).default_backoff();
        pin_mut!(events);
        while let Some(event) = events.next().await {
            // As below: the deadline bounds all of it.
            let Ok(event) = event else { continue };
            let listed = !matches!(event, Event::Init | Event::InitApply(_));
            match event {
                Event::Init => there.clear(),
                Event::InitApply(object) | Event::Apply(object) => {
                    there.insert(place(&object), object);
                }
                Event::Delete(object) => {
                    there.remove(&place(&object));
                }
                Event::InitDone => {}
            }
            let all: Vec<K> = there.values().cloned().collect();
            if listed && holds(&all) {
                return Some(all);
            }
        }
        None
    };
    if let Ok(Some(found)) = tokio::time::timeout(limit, search).await {
        return Ok(found);
    }
    let names: Vec<String> = there.into_keys().map(|(_, name)| name).collect();
    Err(Error::Deadline { what: what.to_owned(), seconds: limit.as_secs(), last: format!("{names:?}") })
}

async fn wait<K, T>(
    api: &Api<K>,
    name: &str,
    limit: Duration,
    what: &str,
    look: impl Fn(Option<&K>) -> Option<T>,
) -> Result<T>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + serde::Serialize + 'static,
{
    let mut last: Option<K> = None;
    let search = async {
        let stream = watcher::watch_object(api.clone(), name).default_backoff();
        pin_mut!(stream);
        while let Some(event) = stream.next().await {
            // A watch that breaks is started anew; the deadline bounds all of it.
            let Ok(object) = event else { continue };
            last.clone_from(&object);
            if let Some(found) = look(object.as_ref()) {
                return Some(found);
            }
        }
        None
    };
    if let Ok(Some(found)) = tokio::time::timeout(limit, search).await {
        return Ok(found);
    }
    let seen =
        last.map_or("the object is not there".to_owned(), |o| serde_json::to_string(&o).unwrap_or_default());
    Err(Error::Deadline { what: format!("{name} {what}"), seconds: limit.as_secs(), last: seen })
}
