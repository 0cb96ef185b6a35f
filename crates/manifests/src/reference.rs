//! Reference pages, from the schemas of the CRDs: what `kubectl explain` says, on one page each.

use std::fmt::Write as _;

use api::nginx::crd::{DEFAULT_NAMESPACE, Stage};
use serde_json::Value;

use crate::install::definitions;
use crate::{File, MadeError};

/// Fields that are Kubernetes' own, or another page's: the page says where to read on.
const ELSEWHERE: [(&str, &str); 7] = [
    ("affinity", "As in a [pod](https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/)."),
    (
        "tolerations",
        "As in a [pod](https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/).",
    ),
    (
        "etcdEnv",
        "As `env` of a [container](https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-container/).",
    ),
    (
        "resources",
        "As in a [container](https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/).",
    ),
    (
        "securityContext",
        "As in a [pod](https://kubernetes.io/docs/tasks/configure-pod-container/security-context/).",
    ),
    (
        "persistentVolumeClaimSpec",
        "As in a [claim](https://kubernetes.io/docs/concepts/storage/persistent-volumes/#persistentvolumeclaims).",
    ),
    ("clusterTemplate", "As `spec` of an [EtcdCluster](etcdcluster.md)."),
];

pub fn files() -> Result<Vec<File>, MadeError> {
    let mut crds = definitions()?;
    crds.push(nginx_operator::manifests::definition(Stage::Second, DEFAULT_NAMESPACE)?);
    Ok(crds.iter().map(page).collect())
}

fn page(crd: &Value) -> File {
    let names = &crd["spec"]["names"];
    let (kind, singular) = (text(&names["kind"]), text(&names["singular"]));
    let mut page = format!("# {kind}\n\n");
    for version in list(&crd["spec"]["versions"]).iter().filter(|version| version["served"] == true) {
        let schema = &version["schema"]["openAPIV3Schema"];
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "## {}/{}\n\n{}{}\n\n",
            text(&crd["spec"]["group"]),
            text(&version["name"]),
            if version["deprecated"] == true { "Deprecated. " } else { "" },
            one_line(schema),
        );
        let short = list(&names["shortNames"]).iter().map(text).collect::<Vec<_>>();
        if !short.is_empty() {
            let _ = write!(page, "Short names: `{}`.\n\n", short.join("`, `"));
        }
        for section in ["spec", "status"] {
            let root = &schema["properties"][section];
            if root.is_object() {
                let _ = write!(page, "### {section}\n\n{}\n\n", one_line(root));
                page.push_str("| field | type | what |\n|---|---|---|\n");
                fields(root, "", &mut page);
                page.push('\n');
                rules(root, &mut page);
            }
        }
    }
    (format!("docs/reference/{singular}.md"), format!("{}\n", page.trim_end()))
}

fn fields(schema: &Value, path: &str, page: &mut String) {
    let required = list(&schema["required"]);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        let must = if required.iter().any(|one| one == name) { " (required)" } else { "" };
        let elsewhere = ELSEWHERE.iter().find(|(own, _)| own == name).map(|(_, where_to)| *where_to);
        let mut what = vec![one_line(field)];
        what.extend(limits(field));
        what.extend(elsewhere.map(str::to_owned));
        what.retain(|part| !part.is_empty());
        let _ =
            writeln!(page, "| `{path}`{must} | {} | {} |", kind(field), what.join(" ").replace('|', "\\|"));
        if elsewhere.is_none() {
            fields(field, &format!("{path}."), page);
            fields(&field["items"], &format!("{path}[]."), page);
        }
    }
}

fn kind(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "quantity".into();
    }
    match text(&field["type"]) {
        "array" => format!("list of {}", kind(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}", kind(&field["additionalProperties"]))
        }
        "string" if field["format"] == "date-time" => "time".into(),
        other => other.to_owned(),
    }
}

/// What the schema itself says of the values: defaults, choices, bounds, and the words of its rules.
fn limits(field: &Value) -> Vec<String> {
    let mut said = Vec::new();
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(default) = field.get("default") {
        said.push(format!("Default: `{}`.", shown(default)));
    }
    let choices: Vec<String> = list(&field["enum"]).iter().map(|one| format!("`{}`", shown(one))).collect();
    if !choices.is_empty() {
        said.push(format!("One of {}.", choices.join(", ")));
    }
    for (bound, word) in [("minimum", "At least"), ("maximum", "At most")] {
        if let Some(value) = field.get(bound) {
            said.push(format!("{word} {value}."));
        }
    }
    said.extend(messages(field).map(|message| format!("Rule: {message}.")));
    said
}

/// The rules of a whole section.
fn rules(root: &Value, page: &mut String) {
    let rules: Vec<&str> = messages(root).collect();
    if !rules.is_empty() {
        let _ = write!(page, "Rules:\n- {}\n\n", rules.join("\n- "));
    }
}

fn messages(schema: &Value) -> impl Iterator<Item = &str> {
    list(&schema["x-kubernetes-validations"]).iter().map(|rule| text(&rule["message"]))
}

fn one_line(schema: &Value) -> String {
    text(&schema["description"]).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
