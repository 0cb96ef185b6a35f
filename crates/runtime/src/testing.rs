//! An API server in memory: objects by path, resource versions, and lines that can be cut.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

#[derive(Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    revision: u64,
}

#[derive(Clone, Default)]
pub struct FakeApi(Arc<Mutex<Store>>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Requests vanish.
    Cut,
    /// Requests arrive and are done; answers vanish.
    AnswersLost,
    /// Requests arrive and are done at once; answers take this long.
    AnswersSlow(Duration),
    /// Every request is refused.
    Refuse(u16),
}

/// One client's way to the API: what passed over it, and how it fails.
#[derive(Clone, Default)]
pub struct Line {
    fault: Arc<Mutex<Fault>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Line {
    pub fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// `METHOD path`, oldest first.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl FakeApi {
    pub fn client(&self, line: &Line) -> Client {
        let (api, line) = (self.clone(), line.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (api, line) = (api.clone(), line.clone());
            async move {
                let (parts, body) = request.into_parts();
                let path = parts.uri.path().to_owned();
                line.requests.lock().unwrap().push(format!("{} {path}", parts.method));
                let fault = *line.fault.lock().unwrap();
                match fault {
                    Fault::Cut => std::future::pending().await,
                    Fault::Refuse(code) => return Ok::<_, BoxError>(answer(status(code))),
                    Fault::None | Fault::AnswersLost | Fault::AnswersSlow(_) => {}
                }
                let body = body.collect_bytes().await?;
                let done = api.handle(&parts.method, &path, serde_json::from_slice(&body).ok());
                match fault {
                    Fault::AnswersLost => std::future::pending().await,
                    Fault::AnswersSlow(delay) => tokio::time::sleep(delay).await,
                    _ => {}
                }
                Ok(answer(done))
            }
        });
        Client::new(service, "default")
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    pub fn delete(&self, path: &str) {
        self.0.lock().unwrap().objects.remove(path);
    }

    /// Writes as somebody else would.
    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        let mut store = self.0.lock().unwrap();
        store.revision += 1;
        let revision = store.revision.to_string();
        let object = store.objects.get_mut(path).unwrap();
        edit(object);
        object["metadata"]["resourceVersion"] = json!(revision);
    }

    fn handle(&self, method: &Method, path: &str, body: Option<Value>) -> Result<Value, StatusCode> {
        let mut store = self.0.lock().unwrap();
        store.revision += 1;
        let revision = store.revision.to_string();
        let body = || body.ok_or(StatusCode::BAD_REQUEST);
        match *method {
            Method::GET => store.objects.get(path).cloned().ok_or(StatusCode::NOT_FOUND),
            Method::POST => {
                let mut object = body()?;
                let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
                if store.objects.contains_key(&path) {
                    return Err(StatusCode::CONFLICT);
                }
                object["metadata"]["resourceVersion"] = json!(revision);
                store.objects.insert(path, object.clone());
                Ok(object)
            }
            Method::PUT | Method::PATCH => {
                let stored = store.objects.get_mut(path).ok_or(StatusCode::NOT_FOUND)?;
                let change = body()?;
                let wanted = &change["metadata"]["resourceVersion"];
                if !wanted.is_null() && *wanted != stored["metadata"]["resourceVersion"] {
                    return Err(StatusCode::CONFLICT);
                }
                if *method == Method::PUT {
                    *stored = change;
                } else {
                    merge(stored, change);
                }
                stored["metadata"]["resourceVersion"] = json!(revision);
                Ok(stored.clone())
            }
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    }
}

fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch,
    }
}

fn status(code: u16) -> Result<Value, StatusCode> {
    Err(StatusCode::from_u16(code).unwrap())
}

fn answer(result: Result<Value, StatusCode>) -> Response<Body> {
    let (code, body) = match result {
        Ok(object) => (StatusCode::OK, object),
        Err(code) => (
            code,
            json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": code.canonical_reason().unwrap_or_default().replace(' ', ""), "message": code.to_string(), "code": code.as_u16(),
            }),
        ),
    };
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}
