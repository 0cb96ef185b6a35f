//! An etcd member that answers as it is told: for unit tests.
//!
//! Untouched, it behaves like one healthy voter of the given version. Change what it believes with
//! [`Fake::set`], and how it reacts to single calls with [`Fake::script`].

mod services;

use crate::{Identity, Listed};
use domain::{Alarm, ClusterId, MemberId, Version};
use prost::bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{future, io};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Status};

/// What the fake believes; all of it can be changed at any time.
#[derive(Debug, Clone)]
pub struct Beliefs {
    pub identity: Identity,
    pub version: Version,
    pub leader: Option<MemberId>,
    pub learner: bool,
    pub members: Vec<Listed>,
    pub alarms: Vec<Alarm>,
    pub raft_term: u64,
    pub raft_index: u64,
    pub db_size: i64,
    /// Said from 3.6 on.
    pub quota: i64,
    pub hash: u32,
    pub revision: i64,
    /// Value and revision of the last change of each key.
    pub keys: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
    pub snapshot: Vec<Bytes>,
    /// Bytes of the snapshot that are promised and never sent.
    pub snapshot_cut: usize,
}

impl Beliefs {
    /// The only member of a cluster, and its leader.
    pub fn single(version: Version) -> Self {
        let identity = Identity { cluster: ClusterId(0xc), member: MemberId(0xa) };
        Self {
            identity,
            version,
            leader: Some(identity.member),
            learner: false,
            members: vec![Listed {
                id: identity.member,
                name: "a".into(),
                peer_urls: vec!["http://a:2380".into()],
                client_urls: vec!["http://a:2379".into()],
                learner: false,
            }],
            alarms: Vec::new(),
            raft_term: 2,
            raft_index: 4,
            db_size: 20480,
            quota: 2 << 30,
            hash: 0,
            revision: 1,
            keys: BTreeMap::new(),
            snapshot: Vec::new(),
            snapshot_cut: 0,
        }
    }
}

/// What becomes of one call.
#[derive(Debug, Clone)]
pub enum Reaction {
    /// Answered from the beliefs.
    Answer,
    /// Never answered.
    Hang,
    /// Refused in these words.
    Refuse(Code, String),
    /// Done, and then refused in these words: the caller cannot know.
    DoAndRefuse(Code, String),
}

/// A fake member on a loopback port. It ends when it is dropped.
#[derive(Debug)]
pub struct Fake {
    address: SocketAddr,
    shared: Shared,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    /// The server ends when this is dropped.
    alive: oneshot::Sender<()>,
}

impl Fake {
    /// On a free port.
    pub async fn start(beliefs: Beliefs) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), beliefs).await
    }

    pub async fn start_at(address: SocketAddr, beliefs: Beliefs) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared =
            Shared(Arc::new(Mutex::new(Inner { beliefs, script: BTreeMap::new(), calls: Vec::new() })));
        let incoming = TcpListenerStream::new(listener);
        let (alive, dropped) = oneshot::channel::<()>();
        let end = async { drop(dropped.await) };
        let server = tokio::spawn(services::router(&shared).serve_with_incoming_shutdown(incoming, end));
        Ok(Self { address, shared, server, alive })
    }

    /// Ends it and frees its port; calls under way are answered before.
    pub async fn stop(self) -> io::Result<()> {
        drop(self.alive);
        self.server.await.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what it believes from now on.
    pub fn set(&self, change: impl FnOnce(&mut Beliefs)) {
        change(&mut self.shared.lock().beliefs);
    }

    pub fn beliefs(&self) -> Beliefs {
        self.shared.lock().beliefs.clone()
    }

    /// The reactions to the next calls of `rpc` (its name in etcd's protocol), in order; then it answers.
    pub fn script(&self, rpc: &'static str, reactions: impl IntoIterator<Item = Reaction>) {
        self.shared.lock().script.entry(rpc).or_default().extend(reactions);
    }

    /// Everything it was asked so far, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.shared.lock().calls.clone()
    }
}

#[derive(Debug)]
struct Inner {
    beliefs: Beliefs,
    script: BTreeMap<&'static str, VecDeque<Reaction>>,
    calls: Vec<&'static str>,
}

#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Inner>>);

/// Who can answer a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// The member alone, learner or not.
    Nothing,
    /// A voter, with or without quorum.
    Voter,
    /// A voter that knows a leader.
    Quorum,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call: noted, put through the script, refused or kept waiting as etcd would, and answered.
    async fn react<Q, A>(
        &self,
        rpc: &'static str,
        needs: Needs,
        request: &Request<Q>,
        answer: impl FnOnce(&mut Beliefs) -> Result<A, Status>,
    ) -> Result<A, Status> {
        let reaction = {
            let mut inner = self.lock();
            inner.calls.push(rpc);
            inner.script.get_mut(rpc).and_then(VecDeque::pop_front).unwrap_or(Reaction::Answer)
        };
        match reaction {
            Reaction::Hang => future::pending().await,
            Reaction::Refuse(code, words) => return Err(Status::new(code, words)),
            Reaction::DoAndRefuse(code, words) => {
                answer(&mut self.lock().beliefs)?;
                return Err(Status::new(code, words));
            }
            Reaction::Answer => {}
        }
        let (learner, leader) = {
            let beliefs = &self.lock().beliefs;
            (beliefs.learner, beliefs.leader)
        };
        if learner && needs != Needs::Nothing {
            return Err(Status::unavailable("etcdserver: rpc not supported for learner"));
        }
        if leader.is_none() {
            if request.metadata().contains_key("hasleader") {
                return Err(Status::unavailable("etcdserver: no leader"));
            }
            if needs == Needs::Quorum {
                future::pending::<()>().await;
            }
        }
        answer(&mut self.lock().beliefs)
    }
}
