//! What a person needs to understand a failed test: objects, events, logs of pods and of the lab's components.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, LogParams};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};

use super::TestNamespace;

/// Where bundles go: `LAB_BUNDLES`, or a folder for temporary files.
pub fn root() -> PathBuf {
    std::env::var_os("LAB_BUNDLES").map_or_else(|| std::env::temp_dir().join("lab-bundles"), PathBuf::from)
}

/// Collects what it can and says where; a part that cannot be had is noted in its place, never an error on top of one.
pub async fn collect(test: &TestNamespace<'_>) -> String {
    let folder = root().join(&test.name);
    if let Err(error) = fs::create_dir_all(&folder) {
        return format!("nowhere: {}: {error}", folder.display());
    }
    objects(test, &folder).await;
    pods(test, &folder).await;
    components(test, &folder);
    folder.display().to_string()
}

fn note(path: &Path, text: impl AsRef<[u8]>) {
    if let Err(error) = fs::write(path, text) {
        eprintln!("{}: {error}", path.display());
    }
}

async fn objects(test: &TestNamespace<'_>, folder: &Path) {
    let discovery = match Discovery::new(test.client.clone()).run().await {
        Ok(discovery) => discovery,
        Err(error) => return note(&folder.join("objects.error"), error.to_string()),
    };
    for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
        if capabilities.scope != Scope::Namespaced
            || !capabilities.supports_operation(verbs::LIST)
            || resource.kind == "Event"
        {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(test.client.clone(), &test.name, &resource);
        let Ok(list) = api.list(&ListParams::default()).await else { continue };
        if !list.items.is_empty() {
            let json = serde_json::to_string_pretty(&list.items).unwrap_or_default();
            note(&folder.join(format!("{}.json", resource.plural)), json);
        }
    }
    let events: Api<Event> = test.api();
    if let Ok(list) = events.list(&ListParams::default()).await {
        let mut lines: Vec<String> = list.items.iter().map(event_line).collect();
        lines.sort();
        note(&folder.join("events.txt"), lines.join("\n"));
    }
}

fn event_line(event: &Event) -> String {
    let time = event.last_timestamp.as_ref().map(|t| t.0.to_string()).unwrap_or_default();
    let object = event.involved_object.name.as_deref().unwrap_or_default();
    let (reason, message) =
        (event.reason.as_deref().unwrap_or_default(), event.message.as_deref().unwrap_or_default());
    format!("{time}  {object}  {reason}: {message}")
}

async fn pods(test: &TestNamespace<'_>, folder: &Path) {
    let api: Api<Pod> = test.api();
    let Ok(list) = api.list(&ListParams::default()).await else { return };
    for pod in list.items {
        let containers =
            pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        for container in containers {
            for previous in [false, true] {
                let params =
                    LogParams { container: Some(container.name.clone()), previous, ..LogParams::default() };
                let Ok(log) = api.logs(&pod.name_any(), &params).await else { continue };
                let suffix = if previous { ".previous" } else { "" };
                note(&folder.join(format!("{}.{}{suffix}.log", pod.name_any(), container.name)), log);
            }
        }
    }
}

fn components(test: &TestNamespace<'_>, folder: &Path) {
    for name in crate::control::processes(&test.lab.layout).names() {
        let log = crate::control::processes(&test.lab.layout).log(&name);
        note(&folder.join(format!("lab-{name}.log")), crate::process::tail(&log, 2000));
    }
}
