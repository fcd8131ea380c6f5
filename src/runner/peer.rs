//! A connected receiver, as the table sees it: a queue of what to tell it, and the way to be rid of it.

use tokio::sync::{mpsc, watch};

use super::message::{Key, Stream, ToReceiver};

/// Most messages that wait for a receiver to read. More than the Started and the Ended of 10,000
/// attempts (the maximum of `runner_attempts_count`) mean that it does not read. The memory of the queue
/// is allocated as it grows.
const QUEUE_COUNT: usize = 32 * 1024;

/// A message that waits to be written. No output is in the queue: the table is asked for it at the write.
#[derive(Debug)]
pub(super) enum Outgoing {
    Message(ToReceiver),
    End(Key),
    Peek(Key, Stream),
}

/// A connected receiver. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    number: u64,
    cut: watch::Sender<bool>,
    out: mpsc::Sender<Outgoing>,
}

impl Peer {
    pub(super) fn new(number: u64) -> (Self, mpsc::Receiver<Outgoing>) {
        let (out, queue) = mpsc::channel(QUEUE_COUNT);
        (Peer { number, cut: watch::Sender::new(false), out }, queue)
    }

    /// Whether the two are one connection.
    pub(super) fn is(&self, other: &Peer) -> bool {
        self.number == other.number
    }

    /// Reads nothing more from it.
    pub(super) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Changes to true when the connection is cut.
    pub(super) fn cuts(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }

    /// Puts this into its queue. False if the queue is full: the receiver does not read.
    pub(super) fn queue(&self, next: Outgoing) -> bool {
        self.out.try_send(next).is_ok()
    }

    /// Puts an answer into its queue, and waits for a place there.
    pub(super) async fn answer(&self, answer: Outgoing) {
        let _cut = self.out.send(answer).await;
    }
}
