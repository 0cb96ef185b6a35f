//! The connection to one member, and the rule by which its answers are taken.

use crate::proto::etcdserverpb as pb;
use crate::{Error, Result};
use domain::{ClusterId, MemberId};
use hyper_util::client::legacy::connect::HttpConnector;
use std::{fmt, time::Duration};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, metadata::MetadataValue};

/// Long enough for an election during the call, short enough for a reconcile.
const DEADLINE: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// Member lists and statuses are small, and there is a connection for every member of every cluster.
const WINDOW: u32 = 64 * 1024;
/// A snapshot comes as fast as it is taken.
const WIDE_WINDOW: u32 = 1 << 20;
const QUEUED_CALLS: usize = 16;

/// Who sent an answer, from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub cluster: ClusterId,
    pub member: MemberId,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {} of cluster {}", self.member, self.cluster)
    }
}

fn channel(uri: &http::Uri, window: u32) -> Channel {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    // A node that was cut off answers nothing, not even a reset: let the next call open a new connection.
    tcp.set_tcp_user_timeout(Some(DEADLINE));
    Endpoint::from(uri.clone())
        .initial_stream_window_size(window)
        .initial_connection_window_size(window)
        .buffer_size(QUEUED_CALLS)
        .connect_with_connector_lazy(tcp)
}

/// Whose answers are taken; `None` takes anyone's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expect {
    pub cluster: Option<ClusterId>,
    pub member: Option<MemberId>,
}

impl Expect {
    fn accepts(self, found: Identity) -> bool {
        self.cluster.is_none_or(|id| id == found.cluster) && self.member.is_none_or(|id| id == found.member)
    }
}

impl From<Identity> for Expect {
    fn from(identity: Identity) -> Self {
        Self { cluster: Some(identity.cluster), member: Some(identity.member) }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = self.member.map_or("any".to_owned(), |id| id.to_string());
        let cluster = self.cluster.map_or("any".to_owned(), |id| id.to_string());
        write!(f, "member {member} of cluster {cluster}")
    }
}

/// One etcd member. Clones share the connection, which is opened by the first call and again after a loss.
#[derive(Debug, Clone)]
pub struct Member {
    pub(crate) channel: Channel,
    uri: http::Uri,
    expect: Expect,
    deadline: Duration,
}

impl Member {
    /// Takes a socket address or `host:port`. Nothing is sent yet. Needs a tokio runtime around it.
    pub fn connect(address: impl fmt::Display, expect: Expect) -> Result<Self> {
        let address = address.to_string();
        let bad = || Error::BadAddress(address.clone());
        let uri: http::Uri = format!("http://{address}").parse().map_err(|_| bad())?;
        if uri.port().is_none() || uri.path() != "/" {
            return Err(bad());
        }
        let channel = channel(&uri, WINDOW);
        Ok(Self { channel, uri, expect, deadline: DEADLINE })
    }

    /// The same member, on a connection of its own for much at once.
    pub(crate) fn wide(&self) -> Self {
        Self { channel: channel(&self.uri, WIDE_WINDOW), ..self.clone() }
    }

    /// The same member and connection, with another deadline for each call.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same connection, with other expectations.
    #[must_use]
    pub fn expecting(&self, expect: Expect) -> Self {
        Self { expect, ..self.clone() }
    }

    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// One call whose answer says who sent it.
    pub(crate) async fn call<Q, A, F>(&self, ask: Ask<Q>, send: impl FnOnce(Request<Q>) -> F) -> Result<A>
    where
        A: Answer,
        F: Future<Output = std::result::Result<Response<A>, tonic::Status>>,
    {
        let answer = self.call_unsigned(ask, send).await?;
        self.check(answer.header())?;
        Ok(answer)
    }

    /// One call whose answer has no header: the caller asks for the identity before.
    pub(crate) async fn call_unsigned<Q, A, F>(
        &self,
        ask: Ask<Q>,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A>
    where
        F: Future<Output = std::result::Result<Response<A>, tonic::Status>>,
    {
        let mut request = ask.request();
        request.set_timeout(self.deadline);
        let answered = async {
            match timeout(self.deadline, send(request)).await {
                Ok(Ok(response)) => Ok(response.into_inner()),
                Ok(Err(status)) => Err(Error::of(&status)),
                Err(_) => Err(Error::TimedOut),
            }
        };
        #[cfg(feature = "faults")]
        let answered = crate::faults::between::<Q, A>(answered);
        answered.await
    }

    pub(crate) fn check(&self, header: Option<&pb::ResponseHeader>) -> Result<Identity> {
        let header = header.ok_or(Error::BadAnswer("it has no header"))?;
        let found = Identity { cluster: ClusterId(header.cluster_id), member: MemberId(header.member_id) };
        if self.expect.accepts(found) {
            Ok(found)
        } else {
            Err(Error::WrongIdentity { expected: self.expect, found })
        }
    }
}

/// A message, and whether the member may answer it without knowing a leader.
pub(crate) enum Ask<Q> {
    /// Answered by the member alone.
    Local(Q),
    /// Needs the cluster: without a leader etcd says so at once, where it would keep us waiting otherwise.
    Cluster(Q),
}

impl<Q> Ask<Q> {
    pub(crate) fn request(self) -> Request<Q> {
        match self {
            Self::Local(message) => Request::new(message),
            Self::Cluster(message) => {
                let mut request = Request::new(message);
                request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
                request
            }
        }
    }
}

/// An answer with a header.
pub(crate) trait Answer {
    fn header(&self) -> Option<&pb::ResponseHeader>;
}

macro_rules! answers {
    ($($message:ident),* $(,)?) => {
        $(impl Answer for pb::$message {
            fn header(&self) -> Option<&pb::ResponseHeader> {
                self.header.as_ref()
            }
        })*
    };
}

answers!(
    CompactionResponse,
    DeleteRangeResponse,
    HashKvResponse,
    LeaseGrantResponse,
    LeaseKeepAliveResponse,
    LeaseRevokeResponse,
    MemberAddResponse,
    MemberListResponse,
    MemberPromoteResponse,
    MemberRemoveResponse,
    PutResponse,
    RangeResponse,
    StatusResponse,
    TxnResponse,
    WatchResponse,
);
