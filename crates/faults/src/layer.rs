//! The layer in front of a Kubernetes client.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::Body;
use runtime::client::Target;
use serde_json::json;
use tower::{BoxError, Layer, Service};

use crate::watches::rough;
use crate::{Fate, Fault, Hit, Line};

pub type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A stale start is stale for this long: then its watches begin to catch up.
const BEHIND: Duration = Duration::from_secs(1);

/// Questions and signs of life, which decide nothing.
const ASIDE: [&str; 2] = ["leases.coordination.k8s.io", "selfsubjectaccessreviews.authorization.k8s.io"];

#[derive(Clone)]
pub struct FaultLayer(pub(crate) Line);

impl<S> Layer<S> for FaultLayer {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty { line: self.0.clone(), inner }
    }
}

pub struct Faulty<S> {
    line: Line,
    inner: S,
}

/// A client over another one, with the layer between them.
pub fn over(line: &Line, client: &kube::Client) -> kube::Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    kube::Client::new(line.layer().layer(service), client.default_namespace())
}

impl<S, B> Service<Request<Body>> for Faulty<S>
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
        let line = self.line.clone();
        if line.is_dead() {
            return Box::pin(std::future::pending());
        }
        let target = Target::of(request.method(), request.uri());
        let uri = request.uri().to_string();
        let only_asks = request.method() == Method::GET || uri.contains("dryRun=");
        let read = only_asks || target.resource == "events";
        let kind = format!("{} {}", target.verb, target.resource);
        let aside = ASIDE.contains(&target.resource.as_str());
        let what = format!("{} {uri}", request.method());
        let fate = if aside { Fate::Pass } else { line.fate(&kind, what, read) };
        match fate {
            Fate::Unknown => return Box::pin(async { Ok(refusal(StatusCode::NOT_FOUND)) }),
            // A watch that breaks before it begins is tried again with a list; nothing new is learnt from it.
            Fate::Hit(hit) if target.verb != "watch" => {
                if let Some(answer) = refused(hit) {
                    return Box::pin(async { answer });
                }
            }
            _ => {}
        }
        let sent = (target.verb != "watch").then(|| line.sent());
        let answer = self.inner.call(request);
        Box::pin(async move {
            if matches!(fate, Fate::Stale) && target.verb == "watch" {
                tokio::time::sleep(BEHIND).await;
            }
            let answer = answer.await.map_err(Into::into)?;
            let answer = answer.map(|body| body.map_err(Into::into).boxed_unsync());
            let done = answer.status().is_success();
            if done && !aside && !read {
                note(&line, &kind, &target, answer.status());
            }
            drop(sent);
            if done && matches!(fate, Fate::Hit(Hit::Death)) {
                line.die();
            }
            if line.is_dead() {
                return std::future::pending().await;
            }
            match fate {
                Fate::Hit(Hit::AnswerLost) if done => Err("the answer was lost by the test".into()),
                // Only the lists that watches begin with come in pages, and only those may be old.
                _ if target.verb == "list" && uri.contains("limit=") => {
                    listed(&line, uri, answer, matches!(fate, Fate::Stale)).await
                }
                _ => match line.fault() {
                    Fault::Watches(how)
                        if target.verb == "watch" && how.only.is_none_or(|only| only == target.resource) =>
                    {
                        Ok(rough(answer, how))
                    }
                    _ => Ok(answer),
                },
            }
        })
    }
}

/// The answer to a write that is not done.
fn refused(hit: Hit) -> Option<Result<Response<AnyBody>, BoxError>> {
    match hit {
        Hit::Death | Hit::AnswerLost => None,
        Hit::Lost => Some(Err("the request was lost by the test".into())),
        Hit::Conflict => Some(Ok(refusal(StatusCode::CONFLICT))),
        Hit::TooMany => Some(Ok(refusal(StatusCode::TOO_MANY_REQUESTS))),
        Hit::ServerError => Some(Ok(refusal(StatusCode::INTERNAL_SERVER_ERROR))),
    }
}

/// Counts what was made: whoever makes an object by applying it is told 201, too.
fn note(line: &Line, kind: &str, target: &Target, answer: StatusCode) {
    let made = match target.verb {
        _ if answer == StatusCode::CREATED => Some("create"),
        "delete" => Some("delete"),
        _ => None,
    };
    line.write(|book| {
        book.wrote(kind);
        if let Some(made) = made {
            book.made_one(&format!("{made} {}", target.resource));
        }
    });
}

async fn listed(
    line: &Line,
    uri: String,
    answer: Response<AnyBody>,
    stale: bool,
) -> Result<Response<AnyBody>, BoxError> {
    let (parts, body) = answer.into_parts();
    let now = body.collect().await?.to_bytes();
    let shown = line.write(|book| {
        if stale {
            // Once: whoever lists again because that is too old sees what there is.
            return book.lists.remove(&uri).unwrap_or(now);
        }
        book.lists.entry(uri).or_insert_with(|| now.clone());
        now
    });
    let mut answer = Response::from_parts(parts, whole(shown));
    answer.headers_mut().remove(http::header::CONTENT_LENGTH);
    Ok(answer)
}

fn whole(bytes: Bytes) -> AnyBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn refusal(code: StatusCode) -> Response<AnyBody> {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "refused by the test",
    });
    let mut answer = Response::new(whole(Bytes::from(status.to_string())));
    *answer.status_mut() = code;
    answer
}
