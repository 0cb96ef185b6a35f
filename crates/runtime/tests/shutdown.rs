//! Its own test program: a signal reaches the whole process.

use std::process::Command;
use std::time::Duration;

#[tokio::test]
async fn sigterm_cancels_the_token() {
    let token = runtime::shutdown::on_signal().expect("handlers");
    assert!(!token.is_cancelled());
    let sent = Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status().expect("kill");
    assert!(sent.success());
    tokio::time::timeout(Duration::from_secs(10), token.cancelled()).await.expect("told in time");
}
