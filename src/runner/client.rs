//! The receiver's end of a connection to its runner.
//!
//! What must stay true for whoever uses it: nothing is sent before [`connect`] has returned the list,
//! and recovery by that list is committed first (R4); a lost connection is read to its end before its
//! attempts are judged (R10), so [`Events::next`] goes on after a write has failed; an Ack goes out
//! after the commit only (R9).

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{BufReader, BufWriter};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::message::{
    BODY_BYTES, Denial, Hello, HelloOk, Key, Start, Stream, TO_RECEIVER_BYTES, TO_RUNNER_BYTES,
    ToReceiver, ToRunner,
};
use super::wire::{self, Bounds, WireError};
use crate::crash;
use crate::limits::RUNNER_WAIT;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens, or not for this user.
    #[error("failed to reach the runner at {socket}: {source}")]
    Unreachable {
        /// Where it should listen.
        socket: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The runner will not have this receiver.
    #[error("the runner refuses this receiver: {detail}")]
    Denied {
        reason: Denial,
        /// In its words.
        detail: String,
    },
    /// The connection broke, or what came was no answer.
    #[error("the runner gave no answer: {0}")]
    Wire(#[from] WireError),
}

/// Says things to the runner. Clones say them on the same connection.
#[derive(Debug, Clone)]
pub struct Sender {
    /// Nothing once a write has failed: half a frame may be out, and the next would be read into it.
    to: Arc<Mutex<Option<BufWriter<OwnedWriteHalf>>>>,
    bounds: Bounds,
}

/// Hears what the runner says. One task's: [`Events::next`] must be polled to its end.
#[derive(Debug)]
pub struct Events {
    from: BufReader<OwnedReadHalf>,
    bounds: Bounds,
}

/// Connects to the runner that listens at `socket` and is admitted. From here on every other
/// connection to it is cut.
///
/// # Errors
/// No runner, or one that does not admit this receiver; nothing was changed.
pub async fn connect(
    socket: &Path,
    hello: &Hello,
) -> Result<(HelloOk, Sender, Events), ConnectError> {
    let wait = RUNNER_WAIT;
    let bounds = |header_bytes| Bounds { header_bytes, body_bytes: BODY_BYTES, wait };
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| ConnectError::Unreachable { socket: socket.to_owned(), source })?;
    let (from, to) = stream.into_split();
    let to = Arc::new(Mutex::new(Some(BufWriter::new(to))));
    let sender = Sender { to, bounds: bounds(TO_RUNNER_BYTES) };
    let from = BufReader::with_capacity(wire::TOGETHER_BYTES, from);
    let mut events = Events { from, bounds: bounds(TO_RECEIVER_BYTES) };
    sender.send(&[ToRunner::Hello(hello.clone())], b"").await?;
    let answer = timeout(wait, events.next()).await.unwrap_or(Err(WireError::Slow(wait)))?;
    match answer {
        Some((ToReceiver::HelloOk(list), _)) => Ok((*list, sender, events)),
        Some((ToReceiver::Denied { reason, detail }, _)) => {
            Err(ConnectError::Denied { reason, detail })
        }
        _ => Err(WireError::Io(io::ErrorKind::UnexpectedEof.into()).into()),
    }
}

impl Sender {
    /// Asks for a start. Its answer is a `Started` or a `Refused`, or, where the connection is lost,
    /// the next list.
    ///
    /// # Errors
    /// The connection: whether the runner has it all is not known.
    pub async fn start(&self, start: Start, body: &[u8]) -> Result<(), WireError> {
        self.send(&[ToRunner::Start(Box::new(start))], body).await
    }

    /// Asks for one output of an attempt as it is now, running or settled.
    ///
    /// # Errors
    /// The connection.
    pub async fn peek(&self, key: Key, stream: Stream) -> Result<(), WireError> {
        self.send(&[ToRunner::Peek { key, stream }], b"").await
    }

    /// Asks a running attempt to end.
    ///
    /// # Errors
    /// The connection.
    pub async fn kill(&self, key: Key) -> Result<(), WireError> {
        self.send(&[ToRunner::Kill { key }], b"").await
    }

    /// Asks to end whatever still runs of an attempt that the runner does not list. Its answer is a
    /// `Gone` once nothing does, however long that takes.
    ///
    /// # Errors
    /// The connection; it is asked again at the next one.
    pub async fn search(&self, key: Key) -> Result<(), WireError> {
        self.send(&[ToRunner::Search { key }], b"").await
    }

    /// Says that these outcomes are committed: the runner forgets the attempts.
    ///
    /// # Errors
    /// The connection; it is said again at the next one that lists an attempt.
    pub async fn ack(&self, keys: &[Key]) -> Result<(), WireError> {
        let acks: Vec<ToRunner> = keys.iter().map(|&key| ToRunner::Ack { key }).collect();
        self.send(&acks, b"").await
    }

    /// Asks to read the commands again, and to keep those of load `in_use`. Its answer is a `Loaded` or a
    /// `NotLoaded` of this number.
    ///
    /// # Errors
    /// The connection.
    pub async fn load(&self, number: u64, in_use: u64) -> Result<(), WireError> {
        self.send(&[ToRunner::Load { number, in_use }], b"").await
    }

    /// Whether the two say things on one connection.
    pub fn is(&self, other: &Sender) -> bool {
        Arc::ptr_eq(&self.to, &other.to)
    }

    /// Says these one after the other, each with this body, and sends them together.
    async fn send(&self, messages: &[ToRunner], body: &[u8]) -> Result<(), WireError> {
        let mut to = self.to.lock().await;
        let mut open = to.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let sent = async {
            for message in messages {
                crash::frame("receiver.before", message);
                wire::write(&mut open, message, body, self.bounds).await?;
            }
            wire::flush(&mut open, self.bounds).await
        };
        let sent = sent.await;
        messages.iter().for_each(|message| crash::frame("receiver.sent", message));
        // What is over a limit was not begun.
        if matches!(sent, Ok(()) | Err(WireError::TooLarge { .. })) {
            *to = Some(open);
        }
        sent
    }
}

impl Events {
    /// The next thing the runner says, and its body; nothing once it has said all.
    ///
    /// # Errors
    /// The connection, after everything that came over it.
    pub async fn next(&mut self) -> Result<Option<(ToReceiver, Vec<u8>)>, WireError> {
        let read = wire::read(&mut self.from, self.bounds).await?;
        if let Some((message, _)) = &read {
            crash::frame("receiver.read", message);
        }
        Ok(read)
    }
}
