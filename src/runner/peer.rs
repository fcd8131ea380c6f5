//! A connected receiver, as the table sees it: the queue of its messages, and the cut of its connection.

use tokio::sync::{mpsc, watch};

use super::message::{Key, Stream, ToReceiver};

/// The most messages that wait for a receiver to read. More than the Started and the Ended of 10,000 attempts
/// (the maximum of `runner_attempts_count`) mean that it does not read. The queue's memory grows with it.
const QUEUE_COUNT: usize = 32 * 1024;

/// A message that waits to be written. The queue has no outputs: the connection copies them from the table.
#[derive(Debug)]
pub(super) enum Outgoing {
    Message(ToReceiver),
    End(Key),
    Peek(Key, Stream),
}

/// A connected receiver. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    cut: watch::Sender<bool>,
    out: mpsc::Sender<Outgoing>,
}

impl Peer {
    pub(super) fn new() -> (Self, mpsc::Receiver<Outgoing>) {
        let (out, queue) = mpsc::channel(QUEUE_COUNT);
        (Peer { cut: watch::Sender::new(false), out }, queue)
    }

    /// Whether both are one connection.
    pub(super) fn is(&self, other: &Peer) -> bool {
        self.out.same_channel(&other.out)
    }

    /// Ends the connection: nothing more is read from it.
    pub(super) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Becomes true when the connection is cut.
    pub(super) fn cuts(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }

    /// Queues this. Returns false if the queue is full: the receiver does not read.
    pub(super) fn queue(&self, next: Outgoing) -> bool {
        self.out.try_send(next).is_ok()
    }

    /// Queues an answer, and waits while the queue is full.
    pub(super) async fn answer(&self, answer: Outgoing) {
        let _cut = self.out.send(answer).await;
    }
}
