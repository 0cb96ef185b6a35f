//! Watches as bad as they come: every event late and twice, and every few events the server has forgotten where we were.

use std::time::Duration;

use futures::{StreamExt, stream};
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::json;
use tower::BoxError;

const LATE: Duration = Duration::from_millis(150);
/// Enough for the first list of a small namespace to come through.
const EVENTS: usize = 6;

pub type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

pub fn smooth(response: Response<Body>) -> Response<AnyBody> {
    response.map(|body| body.map_err(BoxError::from).boxed_unsync())
}

/// The same watch, rough. What happens while it is set up again is never told as an event.
pub fn rough(response: Response<Body>) -> Response<AnyBody> {
    let (parts, body) = response.into_parts();
    let chunks = body.into_data_stream().boxed();
    let lines = stream::unfold((chunks, Vec::new(), 0), |(mut chunks, mut rest, seen)| async move {
        loop {
            if seen >= EVENTS {
                return (seen == EVENTS).then(|| (Ok(gone()), (chunks, rest, seen + 1)));
            }
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                tokio::time::sleep(LATE).await;
                let twice = [line.clone(), line].concat();
                return Some((Ok(twice), (chunks, rest, seen + 1)));
            }
            match chunks.next().await? {
                Ok(chunk) => rest.extend_from_slice(&chunk),
                Err(error) => return Some((Err(BoxError::from(error)), (chunks, Vec::new(), EVENTS + 1))),
            }
        }
    });
    let frames = lines.map(|line| line.map(|line| Frame::data(Bytes::from(line))));
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}

/// The answer to a question about a resource that is not served.
pub fn unknown() -> Response<AnyBody> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "the server could not find the requested resource",
    });
    let body = Body::from(status.to_string().into_bytes());
    let mut response = smooth(Response::new(body));
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    response
}

fn gone() -> Vec<u8> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version",
    });
    format!("{}\n", json!({ "type": "ERROR", "object": status })).into_bytes()
}
