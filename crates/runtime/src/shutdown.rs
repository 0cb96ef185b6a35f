//! SIGTERM and SIGINT as a token.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A token that is cancelled at the first SIGTERM or SIGINT. The second ends the process at once, for a person
/// who does not want to wait.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let mut next = async || tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} };
        next().await;
        info!("stopping; a second signal stops at once");
        cancelled.cancel();
        next().await;
        warn!("stopped at once");
        std::process::exit(130);
    });
    Ok(token)
}
