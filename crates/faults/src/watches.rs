//! Watches that are late, repeat themselves, and expire.

use std::time::Duration;

use futures::{StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::json;
use tower::BoxError;

use crate::AnyBody;

/// How bad watches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rough {
    /// Each event comes this much later than it could.
    pub late: Duration,
    /// Each event is told twice.
    pub twice: bool,
    /// After so many events the server has forgotten where we were (410). The next one is never told: only who lists again
    /// sees what became of it.
    pub expires_after: Option<usize>,
    /// Only watches of this resource are bad, such as `pods`.
    pub only: Option<&'static str>,
}

struct State {
    chunks: stream::BoxStream<'static, Result<Bytes, BoxError>>,
    rest: Vec<u8>,
    told: usize,
    over: bool,
}

/// The same watch, rough.
pub fn rough(response: Response<AnyBody>, how: Rough) -> Response<AnyBody> {
    let (parts, body) = response.into_parts();
    let start = State { chunks: body.into_data_stream().boxed(), rest: Vec::new(), told: 0, over: false };
    let lines = stream::unfold(start, move |mut state| async move {
        loop {
            if state.over {
                return None;
            }
            if let Some(end) = state.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = state.rest.drain(..=end).collect();
                tokio::time::sleep(how.late).await;
                if how.expires_after.is_some_and(|most| state.told >= most) {
                    state.over = true;
                    return Some((Ok(gone()), state));
                }
                state.told += 1;
                let told = if how.twice { [line.clone(), line].concat() } else { line };
                return Some((Ok(told), state));
            }
            match state.chunks.next().await? {
                Ok(chunk) => state.rest.extend_from_slice(&chunk),
                Err(error) => {
                    state.over = true;
                    return Some((Err(error), state));
                }
            }
        }
    });
    let frames = lines.map(|line| line.map(|line| Frame::data(Bytes::from(line))));
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}

fn gone() -> Vec<u8> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version",
    });
    format!("{}\n", json!({ "type": "ERROR", "object": status })).into_bytes()
}
