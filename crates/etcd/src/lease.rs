//! Leases, for clients in tests.

use crate::member::Ask;
use crate::proto::etcdserverpb::{self as pb, lease_client::LeaseClient};
use crate::{Error, Member, Result};
use tokio::time::timeout;

/// A lease that etcd granted. It ends by itself unless it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub id: i64,
    /// Seconds.
    pub ttl: i64,
}

impl Member {
    pub async fn grant_lease(&self, ttl_seconds: i64) -> Result<Lease> {
        let mut client = LeaseClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::LeaseGrantRequest { ttl: ttl_seconds, id: 0 });
        let answer = self.call(ask, |request| client.lease_grant(request)).await?;
        Ok(Lease { id: answer.id, ttl: answer.ttl })
    }

    /// Renews once; `None` if the lease has ended.
    pub async fn renew_lease(&self, lease: Lease) -> Result<Option<Lease>> {
        let mut client = LeaseClient::new(self.channel.clone());
        let asks = futures::stream::iter([pb::LeaseKeepAliveRequest { id: lease.id }]);
        let renew = async {
            let mut answers = client.lease_keep_alive(Ask::Cluster(asks).request()).await?.into_inner();
            answers.message().await
        };
        let answer = timeout(self.deadline(), renew)
            .await
            .map_err(|_| Error::TimedOut)?
            .map_err(|status| Error::of(&status))?
            .ok_or(Error::BadAnswer("the stream ended without one"))?;
        self.check(answer.header.as_ref())?;
        Ok((answer.ttl > 0).then_some(Lease { id: answer.id, ttl: answer.ttl }))
    }

    /// Ends a lease; its keys are deleted.
    pub async fn revoke_lease(&self, lease: Lease) -> Result<()> {
        let mut client = LeaseClient::new(self.channel.clone());
        let ask = Ask::Cluster(pb::LeaseRevokeRequest { id: lease.id });
        self.call(ask, |request| client.lease_revoke(request)).await?;
        Ok(())
    }

    /// Writes a key that lives as long as the lease.
    pub async fn put_leased(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        lease: Lease,
    ) -> Result<i64> {
        self.put_request(pb::PutRequest { key: key.into(), value: value.into(), lease: lease.id }).await
    }
}
