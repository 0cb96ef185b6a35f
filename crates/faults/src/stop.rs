//! A process that stands still for a while, as if a signal had stopped it, and goes on with what it knew.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{Book, Line};

/// Where it stops.
pub(crate) struct Point {
    here: Box<dyn Fn(&Book, &str) -> bool + Send>,
    reached: oneshot::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

/// Who holds this keeps the process still; it goes on when this is dropped.
pub struct Stop {
    line: Line,
    reached: oneshot::Receiver<()>,
    _held: mpsc::Sender<()>,
}

impl Stop {
    /// The process has come to where it stops.
    pub async fn reached(&mut self, limit: Duration) -> Result<(), String> {
        timeout(limit, &mut self.reached)
            .await
            .map_err(|_| format!("it did not stop there: {:#?}", self.line.book(Book::tail)))?
            .map_err(|_| "it is to stop elsewhere".to_owned())
    }
}

impl Line {
    /// The thread that makes the first request for which `here` holds stops before it: all of a process that has one
    /// thread alone. `here` is told what was asked for before, and this request as the book would note it.
    #[must_use]
    pub fn stop_at(&self, here: impl Fn(&Book, &str) -> bool + Send + 'static) -> Stop {
        let ((told, reached), (held, go_on)) = (oneshot::channel(), mpsc::channel());
        *self.0.stop.lock().unwrap() = Some(Point { here: Box::new(here), reached: told, go_on });
        Stop { line: self.clone(), reached, _held: held }
    }

    pub(crate) fn stand_still(&self, what: &str) {
        let here = |point: &mut Point| self.book(|book| (point.here)(book, what));
        let Some(point) = self.0.stop.lock().unwrap().take_if(here) else { return };
        if point.reached.send(()).is_ok() {
            // Nothing is ever sent: it ends when the other side is dropped.
            point.go_on.recv().unwrap_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use etcd::faults::Troubles as _;

    use super::*;
    use crate::Fault;

    #[tokio::test]
    async fn a_process_stands_still_until_it_may_go_on() {
        let line = Line::new(Fault::None);
        let mut stop = line.stop_at(|book, call| call == "etcd Status" && book.requests().len() == 1);
        let process = std::thread::spawn({
            let line = line.clone();
            move || {
                for call in ["Status", "Status", "MemberList"] {
                    line.before(call);
                }
            }
        });
        stop.reached(Duration::from_secs(20)).await.unwrap();
        assert_eq!(line.book(|book| book.requests().to_vec()), ["etcd Status"]);
        drop(stop);
        process.join().unwrap();
        assert_eq!(line.book(|book| book.requests().len()), 3);
    }
}
