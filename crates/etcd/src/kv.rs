//! Keys and values: for tests, the traffic client and the proofs of freshness.

use crate::member::Ask;
use crate::proto::etcdserverpb::{
    self as pb,
    compare::{CompareResult, CompareTarget, TargetUnion},
    kv_client::KvClient,
    request_op::Request,
};
pub use crate::proto::etcdserverpb::{
    Compare, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
pub use crate::proto::mvccpb::KeyValue;
use crate::{Error, Member, Result};

/// Need not exist: reading it is proof enough. The same key as etcdctl reads.
pub(crate) const HEALTH_KEY: &str = "health";

impl Member {
    /// Writes a key; gives the revision of the write.
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<i64> {
        self.put_request(pb::PutRequest { key: key.into(), value: value.into(), lease: 0 }).await
    }

    pub(crate) async fn put_request(&self, put: pb::PutRequest) -> Result<i64> {
        let mut client = KvClient::new(self.channel.clone());
        let answer = self.call(Ask::Cluster(put), |request| client.put(request)).await?;
        revision(answer.header)
    }

    /// Reads a key linearizably.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<KeyValue>> {
        let range = RangeRequest { key: key.into(), ..Default::default() };
        Ok(self.range(range).await?.kvs.pop())
    }

    /// Reads linearizably, unless the request says otherwise.
    pub async fn range(&self, range: RangeRequest) -> Result<RangeResponse> {
        let mut client = KvClient::new(self.channel.clone());
        // A serializable read is answered by the member alone.
        let ask = if range.serializable { Ask::Local(range) } else { Ask::Cluster(range) };
        self.call(ask, |request| client.range(request)).await
    }

    /// Deletes a key; gives the number of keys deleted.
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<i64> {
        let mut client = KvClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::DeleteRangeRequest { key: key.into(), range_end: Vec::new() });
        Ok(self.call(ask, |request| client.delete_range(request)).await?.deleted)
    }

    pub async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse> {
        let mut client = KvClient::new(self.channel.clone());
        self.call(Ask::Cluster(txn), |request| client.txn(request)).await
    }

    /// Forgets what was before `revision`, and waits until the space is free inside the database.
    pub async fn compact(&self, revision: i64) -> Result<()> {
        let mut client = KvClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::CompactionRequest { revision, physical: true });
        self.call(ask, |request| client.compact(request)).await?;
        Ok(())
    }
}

pub(crate) fn revision(header: Option<pb::ResponseHeader>) -> Result<i64> {
    header.map(|header| header.revision).ok_or(Error::BadAnswer("it has no header"))
}

/// All keys that begin with `prefix`.
pub fn under(prefix: impl Into<Vec<u8>>) -> RangeRequest {
    let key = prefix.into();
    RangeRequest { range_end: end_of(&key), key, ..Default::default() }
}

/// The first key after all that begin with `prefix`; etcd reads a single zero as "to the end".
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// The key was last changed at `revision`; 0 means that it does not exist.
pub fn last_changed_at(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare {
        key: key.into(),
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
    }
}

pub fn put_op(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> RequestOp {
    let put = pb::PutRequest { key: key.into(), value: value.into(), lease: 0 };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_sibling() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
        assert_eq!(end_of(b""), b"\0");
    }
}
