//! Hashing beside everything else.

use prost::bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// Hashing on a thread of its own, so that bytes keep coming meanwhile. Not one of the runtime's: those write files, which
/// this one would wait for.
pub(crate) struct Aside<H> {
    pieces: mpsc::Sender<Bytes>,
    hashed: oneshot::Receiver<H>,
}

impl<H: Send + 'static> Aside<H> {
    /// At most `queued` pieces wait to be hashed.
    pub(crate) fn start(mut hash: H, queued: usize, update: fn(&mut H, &[u8])) -> Self {
        let (pieces, mut arriving) = mpsc::channel::<Bytes>(queued);
        let (done, hashed) = oneshot::channel();
        std::thread::spawn(move || {
            while let Some(piece) = arriving.blocking_recv() {
                update(&mut hash, &piece);
            }
            // Nobody waits for it if the work was stopped.
            drop(done.send(hash));
        });
        Self { pieces, hashed }
    }

    pub(crate) async fn update(&self, piece: Bytes) {
        // It ends only with its sender: if it did not, the hash would be missing at the end.
        drop(self.pieces.send(piece).await);
    }

    /// `None` if it did not get to the end.
    pub(crate) async fn finish(self) -> Option<H> {
        drop(self.pieces);
        self.hashed.await.ok()
    }
}
