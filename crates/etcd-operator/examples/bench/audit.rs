//! What the operator asked of the API server, from the lab's audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use lab::control::audit_log;
use lab::kit::TestNamespace;
use serde::Deserialize;

use crate::Outcome;

const AGENT: &str = "etcd-operator/";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<Object>,
}

#[derive(Deserialize)]
struct Object {
    resource: String,
    namespace: Option<String>,
    #[serde(default)]
    subresource: String,
}

/// The log from some moment on.
pub struct Audit {
    path: PathBuf,
    from: u64,
    namespace: String,
}

impl Audit {
    pub fn from_now(test: &TestNamespace<'_>) -> Outcome<Self> {
        let path = audit_log(&test.lab.layout);
        let from = path.metadata()?.len();
        Ok(Self { path, from, namespace: test.name.clone() })
    }

    /// Writes since then, leases and events aside.
    pub fn writes(&self) -> Outcome<f64> {
        self.count(|verb, resource| !is_read(verb) && resource != "leases" && resource != "events")
    }

    /// All requests since then, but for leases and for watches, which end from time to time and are renewed.
    pub fn requests(&self) -> Outcome<f64> {
        self.count(|verb, resource| verb != "watch" && resource != "leases")
    }

    fn count(&self, counts: impl Fn(&str, &str) -> bool) -> Outcome<f64> {
        let mut file = File::open(&self.path)?;
        // Full logs are set aside for a new one.
        let whole = file.metadata()?.len() < self.from;
        file.seek(SeekFrom::Start(if whole { 0 } else { self.from }))?;
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for line in BufReader::new(file).lines() {
            let Ok(Line { stage, verb, user_agent, object_ref: Some(object) }) = serde_json::from_str(&line?)
            else {
                continue;
            };
            // What has no namespace, such as nodes, may be anybody's, and counts: the lab has no other operator.
            let here = object.namespace.as_ref().is_none_or(|namespace| *namespace == self.namespace);
            let ours = here && user_agent.starts_with(AGENT) && stage == "ResponseComplete";
            if ours && counts(&verb, &object.resource) {
                let slash = if object.subresource.is_empty() { "" } else { "/" };
                *seen
                    .entry(format!("{verb} {}{slash}{}", object.resource, object.subresource))
                    .or_default() += 1;
            }
        }
        let told: Vec<String> = seen.iter().map(|(what, count)| format!("{count} {what}")).collect();
        eprintln!("requests: {}", told.join(", "));
        Ok(f64::from(seen.values().sum::<u32>()))
    }
}

fn is_read(verb: &str) -> bool {
    matches!(verb, "get" | "list" | "watch")
}
