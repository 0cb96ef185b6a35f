//! Watches, for clients in tests.

use crate::kv::end_of;
use crate::member::Ask;
use crate::proto::etcdserverpb::{self as pb, watch_client::WatchClient, watch_request::RequestUnion};
pub use crate::proto::mvccpb::Event;
use crate::{Error, Member, Result};
use futures::stream::{self, StreamExt};
use tokio::time::timeout;
use tonic::Streaming;

/// Every change under one prefix, in order.
#[derive(Debug)]
pub struct Watcher {
    answers: Streaming<pb::WatchResponse>,
    member: Member,
}

impl Member {
    /// Watches a prefix from `revision` on (0: from now on). Waits until the member says that it watches.
    pub async fn watch(&self, prefix: impl Into<Vec<u8>>, revision: i64) -> Result<Watcher> {
        let key = prefix.into();
        let create = pb::WatchCreateRequest {
            range_end: end_of(&key),
            key,
            start_revision: revision,
            progress_notify: false,
        };
        let ask = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        // Etcd ends the watch when our side of the stream ends.
        let asks = stream::iter([ask]).chain(stream::pending());
        let mut client = WatchClient::new(self.channel.clone());
        let answers = timeout(self.deadline(), client.watch(Ask::Cluster(asks).request()))
            .await
            .map_err(|_| Error::TimedOut)?
            .map_err(|status| Error::of(&status))?
            .into_inner();
        let mut watcher = Watcher { answers, member: self.clone() };
        timeout(self.deadline(), watcher.answer()).await.map_err(|_| Error::TimedOut)??;
        Ok(watcher)
    }
}

impl Watcher {
    /// The next changes. Waits for them as long as it takes.
    pub async fn next(&mut self) -> Result<Vec<Event>> {
        loop {
            let answer = self.answer().await?;
            if !answer.events.is_empty() {
                return Ok(answer.events);
            }
        }
    }

    async fn answer(&mut self) -> Result<pb::WatchResponse> {
        let answer = self
            .answers
            .message()
            .await
            .map_err(|status| Error::of(&status))?
            .ok_or(Error::BadAnswer("the watch ended"))?;
        self.member.check(answer.header.as_ref())?;
        match answer {
            pb::WatchResponse { canceled: true, compact_revision: 1.., .. } => Err(Error::Compacted),
            pb::WatchResponse { canceled: true, .. } => Err(Error::BadAnswer("etcd cancelled the watch")),
            answer => Ok(answer),
        }
    }
}
