//! Objects to try, made from a CRD's own schema: for every field some that the schema allows, and some that it refuses.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Map, Value, json};

const SIDE_BY_SIDE: usize = 16;

/// Quantities are the only texts of ours with a pattern.
const QUANTITY: &str = "1";
/// An array or a text that is longer than this is not tried.
const LONGEST: u64 = 70_000;

/// An object that differs from the first one in one field.
#[derive(Clone, Debug)]
pub struct Case {
    /// As the API server writes it, such as `spec.pod.labels`.
    pub field: String,
    pub object: Value,
    /// The schema itself refuses it. Rules may still refuse what it allows.
    pub wrong: bool,
    /// The outermost thing that had to be made for the field to be in; a rule may not like the rest of that.
    pub made: Option<String>,
}

impl Case {
    /// Whether a refusal says what it is about.
    fn is_named(&self, said: &str) -> bool {
        let leaf = self.field.rsplit('.').next().unwrap_or_default().trim_end_matches("[0]");
        said.contains(leaf) || self.made.as_ref().is_some_and(|made| said.contains(made))
    }
}

/// What the API server said to all of them.
#[derive(Debug, Default)]
pub struct Tried {
    pub fields: usize,
    pub refused: usize,
    /// What it accepts.
    pub accepted: Vec<Case>,
    /// What it should have refused, and refusals that do not name the field.
    pub wrong: Vec<String>,
}

/// Asks the API server about every field of a kind; nothing is stored.
pub async fn tried(
    client: &kube::Client,
    namespace: &str,
    crd: &CustomResourceDefinition,
    spec: &Value,
) -> Result<Tried, kube::Error> {
    let (group, kind, version) = (&crd.spec.group, &crd.spec.names.kind, &crd.spec.versions[0]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, &version.name, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let api_version = format!("{group}/{}", version.name);
    let base = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "c"}, "spec": spec});
    let mut tried = Tried::default();
    if let Some(said) = refusal(&api, &base).await? {
        tried.wrong.push(format!("{spec} was refused: {said}"));
    }
    let schema = serde_json::to_value(&version.schema).map_err(kube::Error::SerdeError)?;
    let all = cases(&schema["openAPIV3Schema"]["properties"]["spec"], &base);
    tried.fields = all.iter().map(|case| &case.field).collect::<BTreeSet<_>>().len();
    let asked = stream::iter(all).map(|case| {
        let api = &api;
        async move { (refusal(api, &case.object).await, case) }
    });
    let answers: Vec<_> = asked.buffered(SIDE_BY_SIDE).collect().await;
    for (answer, case) in answers {
        match answer? {
            None if case.wrong => {
                tried.wrong.push(format!("{} was accepted: {}", case.field, case.object["spec"]));
            }
            None => tried.accepted.push(case),
            Some(said) => {
                tried.refused += 1;
                if !case.is_named(&said) {
                    tried.wrong.push(format!("{} is not named: {said}", case.field));
                }
            }
        }
    }
    Ok(tried)
}

async fn refusal(api: &Api<DynamicObject>, object: &Value) -> Result<Option<String>, kube::Error> {
    let object: DynamicObject = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&dry, &object).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if [400, 422].contains(&status.code) => {
            Ok(Some(status.message.clone()))
        }
        Err(error) => Err(error),
    }
}

/// `schema` is that of the spec, and `base` an object that is accepted.
pub fn cases(schema: &Value, base: &Value) -> Vec<Case> {
    let mut walker = Walker { base, cases: Vec::new() };
    walker.visit(schema, &mut vec![("spec".to_owned(), schema)]);
    walker.cases
}

/// The smallest value that the schema allows.
pub fn example(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return json!(1);
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required
                .map(|name| (name.to_owned(), example(&schema["properties"][name])))
                .collect::<Map<_, _>>()
                .into()
        }
        Some("array") => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            (0..least).map(|_| example(&schema["items"])).collect::<Vec<_>>().into()
        }
        Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or(1)),
        Some("boolean") => json!(false),
        _ if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        _ if schema["pattern"].is_string() => json!(QUANTITY),
        _ => {
            json!("a".repeat(usize::try_from(schema["minLength"].as_u64().unwrap_or(1).max(1)).unwrap_or(1)))
        }
    }
}

struct Walker<'a> {
    base: &'a Value,
    cases: Vec<Case>,
}

type Path<'s> = Vec<(String, &'s Value)>;

impl Walker<'_> {
    fn visit<'s>(&mut self, schema: &'s Value, path: &mut Path<'s>) {
        if path.len() > 1 {
            for value in allowed(schema) {
                self.add(path, Some(value), false);
            }
            for value in refused(schema) {
                self.add(path, Some(value), true);
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            path.push((name.to_owned(), &schema["properties"][name]));
            let defaulted = schema["properties"][name].get("default").is_some();
            self.add(path, None, !defaulted);
            path.pop();
        }
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            path.push((name.clone(), below));
            self.visit(below, path);
            path.pop();
        }
        for (below, name) in [(&schema["items"], "0"), (&schema["additionalProperties"], "key")] {
            if below.is_object() {
                path.push((name.to_owned(), below));
                self.visit(below, path);
                path.pop();
            }
        }
    }

    fn add(&mut self, path: &Path<'_>, value: Option<Value>, wrong: bool) {
        let mut object = self.base.clone();
        put(&mut object, path, value);
        let fields: Vec<String> = (1..=path.len()).map(|length| field(&path[..length])).collect();
        let pointers = path.iter().scan(String::new(), |all, (name, _)| {
            all.push('/');
            all.push_str(name);
            Some(all.clone())
        });
        let mut parents = fields.iter().zip(pointers).take(path.len() - 1);
        let made = parents.find(|(_, pointer)| self.base.pointer(pointer).is_none());
        let made = made.map(|(field, _)| field.clone());
        self.cases.push(Case { field: field(path), object, wrong, made });
    }
}

/// As the API server writes it.
fn field(path: &[(String, &Value)]) -> String {
    path.iter().fold(String::new(), |all, (name, _)| match name.as_str() {
        "0" => format!("{all}[0]"),
        name if all.is_empty() => name.to_owned(),
        name => format!("{all}.{name}"),
    })
}

/// Sets what is at `path`, and makes what is missing on the way, with all that it needs.
fn put(object: &mut Value, path: &[(String, &Value)], value: Option<Value>) {
    let Some(((name, schema), rest)) = path.split_first() else { return };
    if name == "0" {
        if !object.is_array() || object.as_array().is_some_and(Vec::is_empty) {
            *object = json!([example(schema)]);
        }
        let first = &mut object[0];
        match (rest.is_empty(), value) {
            (true, Some(value)) => *first = value,
            (true, None) => *object = json!([]),
            (false, value) => put(first, rest, value),
        }
        return;
    }
    if !object.is_object() {
        *object = json!({});
    }
    let Some(fields) = object.as_object_mut() else { return };
    match (rest.is_empty(), value) {
        (true, Some(value)) => drop(fields.insert(name.clone(), value)),
        (true, None) => drop(fields.remove(name)),
        (false, value) => put(fields.entry(name.clone()).or_insert_with(|| example(schema)), rest, value),
    }
}

/// Values at the edges of what the schema allows.
fn allowed(schema: &Value) -> Vec<Value> {
    if let Some(all) = schema["enum"].as_array() {
        return all.clone();
    }
    let mut values = vec![example(schema)];
    match schema["type"].as_str() {
        Some("boolean") => values.push(json!(true)),
        Some("integer") => {
            let (least, most) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
            let within = |value: &i64| {
                least.is_none_or(|least| *value >= least) && most.is_none_or(|most| *value <= most)
            };
            let tried = [-1, 0, 1, 2, i64::from(i32::MAX)].into_iter().chain(least).chain(most);
            values.extend(tried.filter(within).map(|value| json!(value)));
        }
        Some("string") if schema["pattern"].is_null() && schema["format"].is_null() => {
            if schema["minLength"].as_u64().unwrap_or(0) == 0 {
                values.push(json!(""));
            }
            if let Some(most) = schema["maxLength"].as_u64().filter(|most| *most <= LONGEST) {
                values.push(json!("a".repeat(usize::try_from(most).unwrap_or(0))));
            }
            values.extend([json!("with spaces"), json!("Ünïcödé"), json!("a/b"), json!("../..")]);
        }
        _ => {}
    }
    values
}

/// Values that the schema does not allow.
fn refused(schema: &Value) -> Vec<Value> {
    let mut values = Vec::new();
    let free = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        values.extend([json!({}), json!([])]);
    } else {
        match schema["type"].as_str() {
            Some("object") if !free => values.extend([json!("text"), json!([])]),
            Some("array") => values.extend([json!("text"), json!({})]),
            Some("integer") => values.extend([json!("text"), json!(1.5), json!({})]),
            Some("boolean") => values.extend([json!("text"), json!(1)]),
            Some("string") => values.extend([json!(7), json!({})]),
            _ => {}
        }
    }
    if let Some(least) = schema["minimum"].as_i64() {
        values.push(json!(least - 1));
    }
    if let Some(most) = schema["maximum"].as_i64() {
        values.push(json!(most.saturating_add(1)));
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| *most <= LONGEST) {
        values.push(json!("a".repeat(usize::try_from(most + 1).unwrap_or(0))));
    }
    if let Some(most) = schema["maxItems"].as_u64().filter(|most| *most <= 100) {
        let item = example(&schema["items"]);
        values.push(json!(vec![item; usize::try_from(most + 1).unwrap_or(0)]));
    }
    if let Some(least) = schema["minItems"].as_u64().filter(|least| *least > 0) {
        values.push(json!(vec![example(&schema["items"]); usize::try_from(least - 1).unwrap_or(0)]));
    }
    if schema["pattern"].is_string() {
        values.push(json!("no quantity!"));
    }
    if schema["enum"].is_array() {
        values.push(json!("no such word"));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_tried_with_what_fits_and_with_what_does_not() {
        let schema = json!({"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 7},
            "pod": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "maxLength": 3},
                "list": {"type": "array", "items": {"type": "string"}},
            }},
        }});
        let base = json!({"spec": {"size": 3}});
        let all = cases(&schema, &base);
        let of = |field: &str, wrong: bool| {
            let these = all.iter().filter(|case| case.field == field && case.wrong == wrong);
            these.map(|case| case.object.clone()).collect::<Vec<_>>()
        };
        assert!(of("spec.size", false).contains(&json!({"spec": {"size": 7}})));
        assert!(of("spec.size", true).contains(&json!({"spec": {"size": 8}})));
        assert!(of("spec.size", true).contains(&json!({"spec": {}})), "required");
        let long = json!({"spec": {"size": 3, "pod": {"name": "aaaa"}}});
        assert!(of("spec.pod.name", true).contains(&long));
        let item = json!({"spec": {"size": 3, "pod": {"name": "a", "list": [7]}}});
        assert!(of("spec.pod.list[0]", true).contains(&item), "with all that its parents need");
    }
}
