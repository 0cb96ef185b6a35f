//! A layer that counts every request and gives each a time limit.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes, Incoming};
use kube::client::Body;
use thiserror::Error;
use tower::util::BoxService;
use tower::{BoxError, Layer, Service};

use crate::metrics::{Code, Metrics};

/// What is under every client; another layer, such as one that injects faults, goes on top of it.
pub type Stack = Observe<BoxService<Request<Body>, Response<Incoming>, BoxError>>;

type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

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
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let target = Target::of(request.method(), request.uri());
        let limit = target.limit();
        let count = Count { metrics: self.metrics.clone(), target, code: Code::Cancelled };
        let timeout = self.timeout;
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answered = async {
                let (parts, body) = answer.await.map_err(Into::into)?.into_parts();
                let body = body.map_err(Into::into);
                let body = match limit {
                    Limit::Whole => Full::new(body.collect().await?.to_bytes())
                        .map_err(|never| match never {})
                        .boxed_unsync(),
                    Limit::Start | Limit::None => body.boxed_unsync(),
                };
                Ok::<_, BoxError>(Response::from_parts(parts, body))
            };
            let answer = match limit {
                Limit::None => Ok(answered.await),
                Limit::Start | Limit::Whole => tokio::time::timeout(timeout, answered).await,
            };
            let (code, answer) = match answer {
                Err(_) => (Code::Timeout, Err(TimedOut(timeout).into())),
                Ok(Err(error)) => (Code::Failed, Err(error)),
                Ok(Ok(response)) => (Code::Status(response.status().as_u16()), Ok(response)),
            };
            count.done(code);
            answer
        })
    }
}

/// Counts a request when it is over, also when its caller stopped waiting.
struct Count {
    metrics: Metrics,
    target: Target,
    code: Code,
}

impl Count {
    fn done(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.metrics.requested(self.target.verb, std::mem::take(&mut self.target.resource), self.code);
    }
}

/// How much of an answer the time limit covers.
#[derive(Clone, Copy)]
enum Limit {
    Whole,
    Start,
    None,
}

/// What a request is about, in the words of RBAC.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    pub verb: &'static str,
    /// `pods`, `pods/status`, `leases.coordination.k8s.io`; `none` for `/version` and the like.
    pub resource: String,
}

impl Target {
    pub fn of(method: &Method, uri: &Uri) -> Self {
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

    /// No time limit fits an answer that ends when the caller wants; but a watch begins at once.
    fn limit(&self) -> Limit {
        let streams = ["/log", "/exec", "/attach", "/portforward", "/proxy"];
        if self.verb == "watch" {
            Limit::Start
        } else if streams.iter().any(|end| self.resource.ends_with(end)) {
            Limit::None
        } else {
            Limit::Whole
        }
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
    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
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

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// A server that is silent for so long before its answer begins, and again before it ends.
    fn slow(
        start: u64,
        end: u64,
    ) -> (
        Observe<
            impl Service<Request<Body>, Response = Response<AnyBody>, Error = BoxError, Future: Send + 'static>,
        >,
        Registry,
    ) {
        let mut registry = Registry::default();
        let layer = ObserveLayer::new(Metrics::register(&mut registry, "0"), TIMEOUT);
        let service = layer.layer(tower::service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(Duration::from_secs(start)).await;
            let rest = stream::once(async move {
                tokio::time::sleep(Duration::from_secs(end)).await;
                Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{}")))
            });
            Ok::<_, BoxError>(Response::new(StreamBody::new(rest).boxed_unsync()))
        }));
        (service, registry)
    }

    fn request(uri: &str) -> Request<Body> {
        Request::get(uri).body(Body::empty()).unwrap()
    }

    fn counted(registry: &Registry, labels: &str) -> bool {
        crate::metrics::text(registry).unwrap().contains(&format!("api_requests_total{{{labels}}} 1\n"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_or_stops_half_way_is_given_up_on() {
        for (start, end) in [(31, 0), (0, 31), (20, 20)] {
            let (mut service, registry) = slow(start, end);
            let error = service.call(request("/api/v1/pods")).await.map(|_| ()).unwrap_err();
            assert_eq!(error.to_string(), "the Kubernetes API gave no answer within 30s");
            assert!(counted(&registry, r#"verb="list",resource="pods",code="timeout""#));
        }
        let (mut service, registry) = slow(15, 14);
        let answer = service.call(request("/api/v1/pods")).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "{}");
        assert!(counted(&registry, r#"verb="list",resource="pods",code="200""#));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_must_begin_but_may_last() {
        let (mut service, registry) = slow(31, 0);
        service.call(request("/api/v1/pods?watch=true")).await.map(|_| ()).expect_err("never began");
        assert!(counted(&registry, r#"verb="watch",resource="pods",code="timeout""#));
        let (mut service, _) = slow(0, 300);
        let answer = service.call(request("/api/v1/pods?watch=true")).await.expect("began");
        answer.into_body().collect().await.expect("and went on");
        let (mut service, _) = slow(300, 300);
        let log = service.call(request("/api/v1/namespaces/n/pods/p/log")).await.expect("a log has no limit");
        log.into_body().collect().await.expect("nor has its end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_stops_waiting_is_counted() {
        let (mut service, registry) = slow(10, 0);
        let call = service.call(request("/api/v1/pods"));
        tokio::time::timeout(Duration::from_secs(5), call).await.map(|_| ()).expect_err("stopped waiting");
        assert!(counted(&registry, r#"verb="list",resource="pods",code="cancelled""#));
    }
}
