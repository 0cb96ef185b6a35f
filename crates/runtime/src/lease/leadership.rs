//! One tenure as leader: the right to act, which ends by itself.

use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use kube::Client;
use kube::client::Body;
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// The right to act for one tenure. A later tenure is another `Leadership`, so that work begun under this one
/// never goes on under the next.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Tenure>);

#[derive(Debug)]
struct Tenure {
    lease: String,
    valid_until: Mutex<Instant>,
    ended: CancellationToken,
}

/// This process may no longer act.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no longer leader: lease {lease} was lost, given up, or not renewed in time")]
pub struct Lost {
    pub lease: String,
}

impl Leadership {
    pub(super) fn begin(lease: String, valid_until: Instant) -> Self {
        let ended = CancellationToken::new();
        Self(Arc::new(Tenure { lease, valid_until: Mutex::new(valid_until), ended }))
    }

    /// Asks our own clock, not a task that may be late: a process that was frozen gets its "no" here first.
    pub fn check(&self) -> Result<(), Lost> {
        if self.0.ended.is_cancelled() || Instant::now() >= self.valid_until() {
            return Err(Lost { lease: self.0.lease.clone() });
        }
        Ok(())
    }

    /// Completes when this tenure is over.
    pub async fn lost(&self) {
        self.0.ended.cancelled().await;
    }

    /// Cancelled when this tenure is over.
    pub fn token(&self) -> CancellationToken {
        self.0.ended.clone()
    }

    /// The same client, which refuses every write once this tenure is over.
    #[must_use]
    pub fn guard(&self, client: &Client) -> Client {
        let (leadership, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (leadership, inner) = (leadership.clone(), inner.clone());
            async move {
                if request.method() != Method::GET {
                    leadership.check()?;
                }
                inner.send(request).await.map_err(BoxError::from)
            }
        });
        Client::new(service, client.default_namespace())
    }

    pub(super) fn lease(&self) -> &str {
        &self.0.lease
    }

    pub(super) fn valid_until(&self) -> Instant {
        *self.0.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tenure that is over stays over, even if an answer comes late.
    pub(super) fn extend(&self, valid_until: Instant) {
        *self.0.valid_until.lock().unwrap_or_else(PoisonError::into_inner) = valid_until;
    }

    pub(super) fn end(&self) {
        self.0.ended.cancel();
    }
}
