//! The version that a cluster has agreed on, below whose minor no etcd starts any more. Only the peer port tells it, and
//! it answers without quorum, too.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use api::names::PEER_PORT;
use domain::Version;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Most answer in a millisecond; a lost quorum is to be told soon, and this comes on top of the members' own deadline.
const DEADLINE: Duration = Duration::from_millis(500);
/// Far more than two versions need.
const LONGEST: usize = 4096;

/// The highest that any member gives.
pub async fn agreed(members: impl IntoIterator<Item = IpAddr>) -> Option<Version> {
    let asked = members.into_iter().map(|ip| tokio::time::timeout(DEADLINE, ask(ip)));
    join_all(asked).await.into_iter().filter_map(|answer| answer.ok().flatten()).max()
}

async fn ask(ip: IpAddr) -> Option<Version> {
    let address = SocketAddr::new(ip, PEER_PORT);
    let url: Uri = format!("http://{address}/version").parse().ok()?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = client.get(url).await.ok()?;
    read(&Limited::new(answer.into_body(), LONGEST).collect().await.ok()?.to_bytes())
}

/// Before the first election it says `not_decided`.
fn read(answer: &[u8]) -> Option<Version> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    answer["etcdcluster"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_says_is_read() {
        assert_eq!(read(br#"{"etcdserver":"3.5.16","etcdcluster":"3.5.0"}"#), Some(Version::new(3, 5, 0)));
        assert_eq!(
            read(br#"{"etcdserver":"3.6.4","etcdcluster":"3.5.0","storage":"3.5.0"}"#),
            Some(Version::new(3, 5, 0))
        );
        assert_eq!(read(br#"{"etcdserver":"3.5.16","etcdcluster":"not_decided"}"#), None);
        assert_eq!(read(b"404 page not found"), None);
    }
}
