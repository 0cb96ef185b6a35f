//! A way to the lab's S3 server that stops at a request of one's choice: whatever is done then is done at that very step.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use lab::Lab;
use lab::control::Control;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::{LIMIT, Outcome};

/// When a request is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The store has not heard of it.
    Asked,
    /// The store has done it, and whoever asked does not know.
    Answered,
}

pub struct Gate {
    /// Where it listens, for the machine's processes and for pods.
    pub url: String,
    holds: Holds,
    task: JoinHandle<()>,
}

/// The most that is read at once; the head of a request is much shorter.
const PIECE: usize = 64 * 1024;

type Holds = Arc<Mutex<Vec<Arc<Hold>>>>;
type Matches = Box<dyn Fn(&str) -> bool + Send + Sync>;

struct Hold {
    matches: Matches,
    /// What the machine's own processes ask is let through.
    pods_only: bool,
    moment: Moment,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum State {
    Set,
    Taken,
    Reached,
    Open,
}

/// A request that is stopped, or will be; it goes on when this is dropped.
pub struct Held(Arc<Hold>);

impl Gate {
    pub async fn open(lab: &Lab) -> Outcome<Self> {
        let store = Control::S3.address(&lab.layout);
        let listener = TcpListener::bind((lab.layout.host_ip(), 0)).await?;
        let (url, holds) = (format!("http://{}", listener.local_addr()?), Holds::default());
        let theirs = holds.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // However a connection ends, its client sees that it ended.
                tokio::spawn(pass(client, store, theirs.clone()));
            }
        });
        Ok(Self { url, holds, task })
    }

    /// The first request line that matches, such as `PUT /bucket/key HTTP/1.1`, is stopped there.
    pub fn hold(&self, moment: Moment, matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> Held {
        self.set(moment, false, Box::new(matches))
    }

    /// The same, of those that come from a pod.
    pub fn hold_of_pods(
        &self,
        moment: Moment,
        matches: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Held {
        self.set(moment, true, Box::new(matches))
    }

    fn set(&self, moment: Moment, pods_only: bool, matches: Matches) -> Held {
        let hold = Arc::new(Hold { matches, pods_only, moment, state: watch::Sender::new(State::Set) });
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).push(hold.clone());
        Held(hold)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Held {
    /// Waits until the request stands at the gate.
    pub async fn reached(&self) -> Outcome {
        let mut state = self.0.state.subscribe();
        let reached = state.wait_for(|state| *state == State::Reached);
        tokio::time::timeout(LIMIT, reached).await.map_err(|_| "the request never came")??;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state.send_replace(State::Open);
    }
}

impl Hold {
    fn take(&self, line: &str, of_pod: bool) -> bool {
        (of_pod || !self.pods_only)
            && (self.matches)(line)
            && self.state.send_if_modified(|state| {
                let free = *state == State::Set;
                *state = if free { State::Taken } else { *state };
                free
            })
    }

    /// Stands until it is let go; what the client sends meanwhile is kept. Who gives up meanwhile has asked for nothing.
    async fn stand(&self, client: &mut TcpStream, sent: &mut Vec<u8>) -> io::Result<()> {
        let mut state = self.state.subscribe();
        self.state.send_if_modified(|state| {
            let taken = *state == State::Taken;
            *state = if taken { State::Reached } else { *state };
            taken
        });
        loop {
            tokio::select! {
                _ = state.wait_for(|state| *state == State::Open) => return Ok(()),
                read = client.read_buf(sent) => if read? == 0 { return Err(io::ErrorKind::ConnectionAborted.into()) },
            }
        }
    }
}

async fn pass(mut client: TcpStream, store: SocketAddr, holds: Holds) -> io::Result<()> {
    let mut upstream = TcpStream::connect(store).await?;
    // Whoever is of this machine comes from the address that it goes to.
    let of_pod = client.peer_addr()?.ip() != client.local_addr()?.ip();
    let (mut asked, mut answered) = (Vec::with_capacity(PIECE), Vec::with_capacity(PIECE));
    let mut late: Option<Arc<Hold>> = None;
    loop {
        tokio::select! {
            read = client.read_buf(&mut asked) => {
                if read? == 0 {
                    return Ok(());
                }
                match taken(&holds, &asked, of_pod) {
                    Some(hold) if hold.moment == Moment::Asked => hold.stand(&mut client, &mut asked).await?,
                    Some(hold) => late = Some(hold),
                    None => {}
                }
                upstream.write_all(&asked).await?;
                asked.clear();
            }
            read = upstream.read_buf(&mut answered) => {
                if read? == 0 {
                    return Ok(());
                }
                if let Some(hold) = late.take() {
                    hold.stand(&mut client, &mut asked).await?;
                }
                client.write_all(&answered).await?;
                answered.clear();
            }
        }
    }
}

/// Clients write a request's first line in one piece, and the piece begins with it.
fn taken(holds: &Holds, piece: &[u8], of_pod: bool) -> Option<Arc<Hold>> {
    let line = piece.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok().filter(|line| line.ends_with(" HTTP/1.1"))?;
    let holds = holds.lock().unwrap_or_else(PoisonError::into_inner);
    holds.iter().find(|hold| hold.take(line, of_pod)).cloned()
}
