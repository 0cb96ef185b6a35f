//! A layer that counts every request and gives each, watches and streams apart, a time limit.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use kube::client::Body;
use thiserror::Error;
use tower::{BoxError, Layer, Service};

use crate::metrics::{Code, Metrics};

#[derive(Clone)]
pub struct ObserveLayer {
    metrics: Metrics,
    timeout: Duration,
}

impl ObserveLayer {
    pub fn new(metrics: Metrics, timeout: Duration) -> Self {
        Self { metrics, timeout }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe { inner, metrics: self.metrics.clone(), timeout: self.timeout }
    }
}

pub struct Observe<S> {
    inner: S,
    metrics: Metrics,
    timeout: Duration,
}

#[derive(Debug, Error)]
#[error("the Kubernetes API gave no answer within {0:?}")]
pub struct TimedOut(Duration);

impl<S, B> Service<Request<Body>> for Observe<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let target = Target::of(request.method(), request.uri());
        let (metrics, timeout) = (self.metrics.clone(), self.timeout);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = if target.is_stream() {
                Some(answer.await)
            } else {
                tokio::time::timeout(timeout, answer).await.ok()
            };
            let (code, answer) = match answer {
                None => (Code::Timeout, Err(TimedOut(timeout).into())),
                Some(Err(error)) => (Code::Failed, Err(error.into())),
                Some(Ok(response)) => (Code::Status(response.status().as_u16()), Ok(response)),
            };
            metrics.requested(target.verb, target.resource, code);
            answer
        })
    }
}

/// What a request is about, in the words of RBAC.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    verb: &'static str,
    /// `pods`, `pods/status`, `leases.coordination.k8s.io`; `none` for `/version` and the like.
    resource: String,
}

impl Target {
    fn of(method: &Method, uri: &Uri) -> Self {
        let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
        let group = match segments.next() {
            Some("api") => Some(""),
            Some("apis") => segments.next(),
            _ => None,
        };
        let path: Vec<&str> = segments.skip(1).collect();
        let (Some(group), false) = (group, path.is_empty()) else {
            return Self { verb: verb(method, uri, true), resource: "none".to_owned() };
        };
        let (kind, name, subresource) = match path.as_slice() {
            ["namespaces", _, sub @ ("status" | "finalize")] => ("namespaces", true, Some(*sub)),
            ["namespaces", _, kind, rest @ ..] | [kind, rest @ ..] => {
                (*kind, !rest.is_empty(), rest.get(1).copied())
            }
            [] => ("none", false, None),
        };
        let mut resource = kind.to_owned();
        if !group.is_empty() {
            resource.push('.');
            resource.push_str(group);
        }
        if let Some(subresource) = subresource {
            resource.push('/');
            resource.push_str(subresource);
        }
        Self { verb: verb(method, uri, name), resource }
    }

    /// Answers that end when the caller wants: no time limit fits them.
    fn is_stream(&self) -> bool {
        let stream = ["/log", "/exec", "/attach", "/portforward", "/proxy"];
        self.verb == "watch" || stream.iter().any(|end| self.resource.ends_with(end))
    }
}

fn verb(method: &Method, uri: &Uri, named: bool) -> &'static str {
    let watch = || uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
    match (method.as_str(), named) {
        ("GET", _) if watch() => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn requests_are_named_as_rbac_names_them() {
        let cases = [
            ("GET", "/api/v1/namespaces/ns/pods/p", "get", "pods"),
            ("GET", "/api/v1/namespaces/ns/pods?labelSelector=a", "list", "pods"),
            ("GET", "/api/v1/pods?watch=true&x=y", "watch", "pods"),
            ("PATCH", "/api/v1/namespaces/ns/pods/p/status", "patch", "pods/status"),
            ("GET", "/api/v1/namespaces/ns/pods/p/log", "get", "pods/log"),
            ("GET", "/api/v1/namespaces/ns", "get", "namespaces"),
            ("GET", "/api/v1/namespaces", "list", "namespaces"),
            ("PUT", "/api/v1/namespaces/ns/finalize", "update", "namespaces/finalize"),
            ("DELETE", "/api/v1/namespaces/ns/pods", "deletecollection", "pods"),
            ("DELETE", "/api/v1/namespaces/ns/pods/p", "delete", "pods"),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l",
                "update",
                "leases.coordination.k8s.io",
            ),
            (
                "POST",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "create",
                "customresourcedefinitions.apiextensions.k8s.io",
            ),
            ("GET", "/apis/x.io/v1/namespaces/ns/foos/f/scale", "get", "foos.x.io/scale"),
            ("GET", "/version", "get", "none"),
            ("GET", "/apis", "get", "none"),
            ("GET", "/api/v1", "get", "none"),
        ];
        for (method, uri, verb, resource) in cases {
            let target = Target::of(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(target, Target { verb, resource: resource.to_owned() }, "{method} {uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up_on_but_a_watch_is_not() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, "0");
        let layer = ObserveLayer::new(metrics, Duration::from_secs(30));
        let silent = tower::service_fn(|_: Request<Body>| async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            Ok::<_, BoxError>(Response::new(Body::empty()))
        });
        let mut service = layer.layer(silent);
        let request = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
        let error = service.call(request("/api/v1/pods")).await.map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the Kubernetes API gave no answer within 30s");
        service.call(request("/api/v1/pods?watch=true")).await.expect("a watch may be silent");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"{verb="list",resource="pods",code="timeout"} 1"#), "{text}");
        assert!(text.contains(r#"{verb="watch",resource="pods",code="200"} 1"#), "{text}");
    }
}
