//! Troubles on the way to members, for tests: whoever runs [`within`] meets them at every call.

use std::sync::Arc;

use crate::{Error, Result};

/// What happens to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// It never reaches the member, and fails so.
    Refused(Error),
    /// If it is done, it fails so all the same.
    AnswerLost(Error),
    /// If it is done, nobody lives to hear of it.
    Death,
    /// Nobody lives to make it.
    Dead,
}

/// Who decides about troubles, and hears of what was done.
pub trait Troubles: Send + Sync {
    /// `call` is the name of etcd's message, such as `MemberAdd`.
    fn before(&self, call: &str) -> Trouble;
    /// Kept as long as a call is under way.
    fn sent(&self) -> Box<dyn Send>;
    fn after(&self, call: &str, done: bool);
    /// A call ended in [`Trouble::Death`]: its caller waits for ever.
    fn died(&self);
}

tokio::task_local! {
    static TROUBLES: Arc<dyn Troubles>;
}

/// Runs a future whose calls to members meet `troubles`; not those of tasks that it spawns.
pub async fn within<F: Future>(troubles: Arc<dyn Troubles>, future: F) -> F::Output {
    TROUBLES.scope(troubles, future).await
}

pub(crate) async fn between<Q, A>(call: impl Future<Output = Result<A>>) -> Result<A> {
    let Ok(troubles) = TROUBLES.try_with(Arc::clone) else { return call.await };
    let name = std::any::type_name::<Q>().rsplit("::").next().unwrap_or_default();
    let name = name.strip_suffix("Request").unwrap_or(name);
    let trouble = troubles.before(name);
    match &trouble {
        Trouble::Refused(error) => return Err(error.clone()),
        Trouble::Dead => return std::future::pending().await,
        Trouble::None | Trouble::AnswerLost(_) | Trouble::Death => {}
    }
    let sent = troubles.sent();
    let answer = call.await;
    troubles.after(name, answer.is_ok());
    drop(sent);
    match trouble {
        Trouble::AnswerLost(error) if answer.is_ok() => Err(error),
        Trouble::Death if answer.is_ok() => {
            troubles.died();
            std::future::pending().await
        }
        _ => answer,
    }
}
