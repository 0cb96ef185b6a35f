//! Kubernetes Events, counted when they repeat.
//!
//! They are written as `core/v1`, without `eventTime`: only there may the source be the pod that reports, and
//! only there does a count exist. The newer `events.k8s.io/v1` refuses both.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::metrics::Metrics;

/// The longest message; what is longer ends in `…`.
pub const MAX_MESSAGE: usize = 1024;

/// A repeat after this long is a new event.
const WINDOW: Duration = Duration::from_mins(10);

const MAX_REMEMBERED: usize = 256;

/// An event is a courtesy: a reconcile does not wait longer for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest name that leaves room for the suffix which makes an event's name unique.
const MAX_NAME_PREFIX: usize = 253 - 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    Normal,
    Warning,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Writes events in the name of one pod. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    client: Client,
    component: String,
    metrics: Metrics,
    hasher: RandomState,
    recent: Mutex<HashMap<u64, Recent>>,
}

/// An event that was written not long ago.
#[derive(Clone)]
struct Recent {
    name: String,
    count: i32,
    last: Instant,
}

impl Recorder {
    /// `component` is what `kubectl describe` shows under From: the pod's name.
    pub fn new(client: Client, component: impl Into<String>, metrics: Metrics) -> Self {
        Self(Arc::new(Inner {
            client,
            component: component.into(),
            metrics,
            hasher: RandomState::new(),
            recent: Mutex::default(),
        }))
    }

    /// Writes an event about an object, or counts it if it repeats one. That it cannot be written is logged and
    /// counted, and is no reason to stop.
    pub async fn publish(&self, about: &ObjectReference, severity: Severity, reason: &str, message: &str) {
        let message = shortened(message);
        let error = match timeout(WRITE_TIMEOUT, self.0.write(about, severity, reason, &message)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {WRITE_TIMEOUT:?}"),
        };
        self.0.metrics.event_failed();
        warn!(
            object = about.name,
            namespace = about.namespace,
            severity = severity.as_str(),
            reason,
            message,
            error,
            "an event could not be written"
        );
    }
}

impl Inner {
    async fn write(
        &self,
        about: &ObjectReference,
        severity: Severity,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        // Events about objects without a namespace live in `default`.
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let key = self.hasher.hash_one((
            (&about.kind, &about.namespace, &about.name, &about.uid),
            (severity, reason, message),
        ));
        let now = Time(Timestamp::now());
        if let Some(Recent { name, count, .. }) = self.count_again(key) {
            let patch = Patch::Merge(json!({ "count": count, "lastTimestamp": &now }));
            match api.patch_metadata(&name, &PatchParams::default(), &patch).await {
                Ok(_) => return Ok(()),
                // Events live an hour; one that is gone is written anew.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let name = unique_name(about.name.as_deref().unwrap_or("object"), now.0);
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: about.clone(),
            type_: Some(severity.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            source: Some(EventSource { component: Some(self.component.clone()), host: None }),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            ..Event::default()
        };
        api.create(&PostParams::default(), &event).await?;
        self.remember(key, name);
        Ok(())
    }

    fn count_again(&self, key: u64) -> Option<Recent> {
        let mut recent = self.recent();
        let entry = recent.get_mut(&key).filter(|entry| entry.last.elapsed() < WINDOW)?;
        entry.count = entry.count.saturating_add(1);
        entry.last = Instant::now();
        Some(entry.clone())
    }

    fn remember(&self, key: u64, name: String) {
        let mut recent = self.recent();
        if recent.len() >= MAX_REMEMBERED {
            recent.retain(|_, entry| entry.last.elapsed() < WINDOW);
        }
        if recent.len() >= MAX_REMEMBERED
            && let Some(oldest) = recent.iter().min_by_key(|(_, entry)| entry.last).map(|(key, _)| *key)
        {
            recent.remove(&oldest);
        }
        recent.insert(key, Recent { name, count: 1, last: Instant::now() });
    }

    fn recent(&self) -> MutexGuard<'_, HashMap<u64, Recent>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shortened(message: &str) -> String {
    const ENDING: &str = "…";
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MAX_MESSAGE - ENDING.len());
    format!("{}{ENDING}", &message[..end])
}

fn unique_name(object: &str, now: Timestamp) -> String {
    let prefix = &object[..object.floor_char_boundary(MAX_NAME_PREFIX)];
    format!("{prefix}.{:x}", now.as_nanosecond())
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::testing::{FakeApi, Fault, Line};

    fn about(name: &str) -> ObjectReference {
        ObjectReference {
            kind: Some("EtcdCluster".into()),
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(format!("uid-of-{name}")),
            ..ObjectReference::default()
        }
    }

    fn recorder() -> (Recorder, Line, Registry) {
        let (line, mut registry) = (Line::default(), Registry::default());
        let metrics = Metrics::register(&mut registry, "0");
        (Recorder::new(FakeApi::default().client(&line), "op-1", metrics), line, registry)
    }

    fn verbs(line: &Line) -> Vec<String> {
        line.requests().iter().filter_map(|request| request.split(' ').next().map(str::to_owned)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_same_event_within_the_window_is_counted() {
        let (recorder, line, _) = recorder();
        recorder.publish(&about("a"), Severity::Normal, "Member Removed", "m").await;
        recorder.publish(&about("a"), Severity::Normal, "Member Removed", "m").await;
        assert_eq!(verbs(&line), ["POST", "PATCH"]);
        recorder.publish(&about("b"), Severity::Normal, "Member Removed", "m").await;
        recorder.publish(&about("a"), Severity::Warning, "Member Removed", "m").await;
        recorder.publish(&about("a"), Severity::Normal, "Other", "m").await;
        recorder.publish(&about("a"), Severity::Normal, "Member Removed", "n").await;
        assert_eq!(verbs(&line)[2..], ["POST"; 4]);
        tokio::time::advance(WINDOW).await;
        recorder.publish(&about("a"), Severity::Normal, "Member Removed", "m").await;
        assert_eq!(verbs(&line)[6..], ["POST"], "too long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
        let (recorder, line, _) = recorder();
        for n in 0..=MAX_REMEMBERED {
            tokio::time::advance(Duration::from_millis(1)).await;
            recorder.publish(&about("a"), Severity::Normal, "R", &n.to_string()).await;
        }
        assert_eq!(recorder.0.recent().len(), MAX_REMEMBERED);
        let before = line.requests().len();
        recorder.publish(&about("a"), Severity::Normal, "R", "1").await;
        recorder.publish(&about("a"), Severity::Normal, "R", "0").await;
        assert_eq!(verbs(&line)[before..], ["PATCH", "POST"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_counted_and_does_not_stop_anyone() {
        let (recorder, line, registry) = recorder();
        line.set(Fault::Refuse(403));
        recorder.publish(&about("a"), Severity::Normal, "R", "m").await;
        line.set(Fault::Cut);
        recorder.publish(&about("a"), Severity::Normal, "R", "m").await;
        line.set(Fault::None);
        recorder.publish(&about("a"), Severity::Normal, "R", "m").await;
        assert_eq!(verbs(&line), ["POST"; 3], "what was not written is not counted as a repeat");
        let text = crate::metrics::text(&registry).unwrap();
        assert!(text.contains("events_failed_total 2"), "{text}");
    }

    #[test]
    fn messages_and_names_fit() {
        assert_eq!(shortened("as it is "), "as it is ");
        let long = "ü".repeat(MAX_MESSAGE);
        let short = shortened(&long);
        assert!(short.len() <= MAX_MESSAGE && short.ends_with("ü…"), "{}", short.len());
        let name = unique_name(&"x".repeat(300), "2200-01-01T00:00:00Z".parse().unwrap());
        assert!(name.len() <= 253, "{name}");
    }
}
