//! Troubles between an operator and the APIs that it uses: a tower layer in front of its Kubernetes client, and the same in
//! front of its calls to etcd; and specs to try. For tests alone: no program of ours depends on it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "a helper of tests")]

mod book;
mod layer;
mod members;
pub mod specs;
mod stop;
mod watches;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

pub use book::Book;
pub use layer::{AnyBody, FaultLayer, Faulty};
pub use stop::Stop;
pub use watches::Rough;

/// One write of a life, by what it is and the how-manyth of that: its number among all writes would be another in the
/// next life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// Verb and resource, such as `create pods`, or `etcd MemberAdd`.
    pub kind: String,
    pub nth: usize,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.kind, self.nth)
    }
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// It is done, and the process dies.
    Death,
    /// It is done, and its answer does not come in time.
    AnswerLost,
    /// It is not done, and no answer comes in time.
    Lost,
    /// It is not done: somebody was faster (409), or etcd is to be asked again later.
    Conflict,
    /// It is not done: too many requests (429).
    TooMany,
    /// It is not done: the server failed (500).
    ServerError,
}

impl Hit {
    pub const ALL: [Self; 6] =
        [Self::Death, Self::AnswerLost, Self::Lost, Self::Conflict, Self::TooMany, Self::ServerError];

    /// Whether the write is not done. The others wait for one that is.
    pub(crate) fn prevents(self) -> bool {
        !matches!(self, Self::Death | Self::AnswerLost)
    }
}

/// The trouble of one life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    At(Point, Hit),
    /// The process dies at this point, and what it lists when it starts again is as old as the first lists of this life.
    StaleStart(Point),
    Watches(Rough),
    /// This many reads fail, chosen by the seed.
    Reads {
        seed: u64,
        most: usize,
    },
}

/// Whether a run tries every fault at every point: with `FAULTS=all`.
pub fn all() -> bool {
    std::env::var("FAULTS").is_ok_and(|which| which == "all")
}

/// Of a run that does not: `FAULTS_SEED` chooses which others it tries.
pub fn seed() -> u64 {
    std::env::var("FAULTS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Longer than an operator's first retry takes: who asks nothing for that long is at rest.
const REST: Duration = Duration::from_millis(1500);

/// A process's way to the APIs. It works until its fault is death; another process goes on with [`Line::successor`].
#[derive(Clone)]
pub struct Line(Arc<Shared>);

struct Shared {
    fault: Mutex<Fault>,
    book: Arc<Mutex<Book>>,
    /// Told of everything that is asked for, watches apart.
    asked: Arc<Notify>,
    dead: CancellationToken,
    under_way: TaskTracker,
    stale: bool,
    /// Parts of requests that the API server does not seem to know.
    hidden: Arc<Mutex<Vec<String>>>,
    stop: Mutex<Option<stop::Point>>,
}

/// What is done with one request.
enum Fate {
    Pass,
    Hit(Hit),
    /// The answer of this list is the first one again.
    Stale,
    Unknown,
}

impl Line {
    pub fn new(fault: Fault) -> Self {
        Self::with(fault, (Arc::default(), Arc::default()), false, Arc::default())
    }

    /// From now on, the API server does not seem to know what has this in its `METHOD path?query`.
    pub fn hide(&self, part: impl Into<String>) {
        self.0.hidden.lock().unwrap().push(part.into());
    }

    /// It knows everything again.
    pub fn reveal(&self) {
        self.0.hidden.lock().unwrap().clear();
    }

    /// The line of the process that follows: no fault but the staleness that this one's fault asks for, and the same book.
    #[must_use]
    pub fn successor(&self) -> Self {
        let stale = matches!(self.fault(), Fault::StaleStart(_));
        let heard = (self.0.book.clone(), self.0.asked.clone());
        Self::with(Fault::None, heard, stale, self.0.hidden.clone())
    }

    fn with(
        fault: Fault,
        (book, asked): (Arc<Mutex<Book>>, Arc<Notify>),
        stale: bool,
        hidden: Arc<Mutex<Vec<String>>>,
    ) -> Self {
        let (dead, under_way) = (CancellationToken::new(), TaskTracker::new());
        let (fault, stop) = (Mutex::new(fault), Mutex::default());
        Self(Arc::new(Shared { fault, book, asked, dead, under_way, stale, hidden, stop }))
    }

    /// From now on reads do not fail.
    pub fn calm(&self) {
        let mut fault = self.0.fault.lock().unwrap();
        if matches!(*fault, Fault::Reads { .. }) {
            *fault = Fault::None;
        }
    }

    /// A new chapter of the same life, with a trouble of its own, whose points are counted anew. Gives the book of the one
    /// that ends.
    pub fn turn(&self, fault: Fault) -> Book {
        *self.0.fault.lock().unwrap() = fault;
        self.write(Book::turn)
    }

    fn fault(&self) -> Fault {
        self.0.fault.lock().unwrap().clone()
    }

    /// Whether anything but a watch is asked for within this time, by this process or those after it.
    pub async fn asks_within(&self, window: Duration) -> bool {
        timeout(window, self.0.asked.notified()).await.is_ok()
    }

    /// Waits until nothing but watches is asked for: then what is there is the end.
    pub async fn comes_to_rest(&self, limit: Duration) -> Result<(), String> {
        let rest = async { while self.asks_within(REST).await {} };
        timeout(limit, rest).await.map_err(|_| format!("still asking: {:#?}", self.book(Book::tail)))
    }

    pub fn layer(&self) -> FaultLayer {
        FaultLayer(self.clone())
    }

    /// Another client whose requests go over this line.
    pub fn client(&self, client: &kube::Client) -> kube::Client {
        layer::over(self, client)
    }

    /// Completes when the process has died, and all that it had sent by then is done and counted: a server finishes what it
    /// was asked, whoever lives to hear of it.
    pub async fn died(&self) {
        self.0.dead.cancelled().await;
        self.0.under_way.close();
        self.0.under_way.wait().await;
    }

    pub fn is_dead(&self) -> bool {
        self.0.dead.is_cancelled()
    }

    /// What was asked for and made so far, by this process and those before it.
    pub fn book<T>(&self, read: impl FnOnce(&Book) -> T) -> T {
        read(&self.0.book.lock().unwrap())
    }

    fn write<T>(&self, write: impl FnOnce(&mut Book) -> T) -> T {
        write(&mut self.0.book.lock().unwrap())
    }

    /// Kept as long as a call is under way.
    fn sent(&self) -> TaskTrackerToken {
        self.0.under_way.token()
    }

    fn die(&self) {
        self.0.dead.cancel();
    }

    /// Notes the request, and says what becomes of it.
    fn fate(&self, kind: &str, what: String, read: bool) -> Fate {
        self.stand_still(&what);
        let unknown = self.0.hidden.lock().unwrap().iter().any(|part| what.contains(part));
        if !kind.starts_with("watch ") {
            self.0.asked.notify_one();
        }
        let nth = self.write(|book| {
            book.asked(what);
            book.next(kind)
        });
        if unknown {
            return Fate::Unknown;
        }
        let here = |point: &Point| !read && point.kind == kind && point.nth == nth;
        let mut fault = self.0.fault.lock().unwrap();
        match &*fault {
            Fault::At(point, hit) if here(point) => {
                let hit = *hit;
                // It is tried again, and is still the write that comes next.
                if hit.prevents() {
                    *fault = Fault::None;
                }
                Fate::Hit(hit)
            }
            Fault::StaleStart(point) if here(point) => Fate::Hit(Hit::Death),
            Fault::Reads { seed, most } if read && self.write(|book| book.fails(*seed, *most)) => {
                Fate::Hit(Hit::Lost)
            }
            _ if self.0.stale && read => Fate::Stale,
            _ => Fate::Pass,
        }
    }
}
