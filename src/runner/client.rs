//! The receiver's end of a connection to its runner.
//!
//! Must stay true for the caller: nothing is sent before [`connect`] has returned the list, and recovery by
//! that list is committed first (R4); a lost connection is read to its end before its attempts are judged
//! (R10), so [`Events::next`] continues after a write has failed; an Ack is sent after the commit only (R9).

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{BufReader, BufWriter};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::message::{Hello, HelloOk, Key, Start, ToReceiver, ToRunner};
use super::wire::{self, WireError};
use crate::crash;
use crate::limits::RUNNER_WAIT;

/// The reason why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No process listens, or this user may not connect.
    #[error("failed to reach the runner at {socket}: {source}")]
    Unreachable { socket: std::path::PathBuf, source: io::Error },
    /// The runner does not admit this receiver, for this reason.
    #[error("the runner refuses this receiver: {0}")]
    Denied(String),
    /// The connection was lost, or the answer was not one.
    #[error("the runner gave no answer: {0}")]
    Wire(#[from] WireError),
}

/// Sends messages to the runner. Clones send over the same connection.
#[derive(Debug, Clone)]
pub struct Sender {
    /// `None` once a write has failed: the runner may have got half a frame, and would read the next frame as the
    /// rest of it.
    to: Arc<Mutex<Option<BufWriter<OwnedWriteHalf>>>>,
}

/// Receives the runner's messages. For one task: [`Events::next`] must be polled to its end.
#[derive(Debug)]
pub struct Events {
    from: BufReader<OwnedReadHalf>,
}

/// Connects to the runner that listens at `socket`, as the receiver `hello`. The runner cuts every other
/// connection.
///
/// # Errors
/// No runner, or one that does not admit this receiver; nothing was changed.
pub async fn connect(
    socket: &Path,
    hello: &Hello,
) -> Result<(HelloOk, Sender, Events), ConnectError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| ConnectError::Unreachable { socket: socket.to_owned(), source })?;
    let (from, to) = stream.into_split();
    let to = BufWriter::with_capacity(wire::BUFFER_BYTES, to);
    let sender = Sender { to: Arc::new(Mutex::new(Some(to))) };
    let mut events = Events { from: BufReader::with_capacity(wire::BUFFER_BYTES, from) };
    sender.send(ToRunner::Hello(hello.clone())).await?;
    let answer = timeout(RUNNER_WAIT, events.next()).await;
    match answer.unwrap_or(Err(WireError::Slow(RUNNER_WAIT)))? {
        Some((ToReceiver::HelloOk(list), _)) => Ok((*list, sender, events)),
        Some((ToReceiver::Denied { detail }, _)) => Err(ConnectError::Denied(detail)),
        _ => Err(WireError::Io(io::ErrorKind::UnexpectedEof.into()).into()),
    }
}

impl Sender {
    /// Asks for a start. The answer is a `Started` or a `Refused`, or, if the connection is lost, the next list.
    ///
    /// # Errors
    /// The connection is lost: whether the runner has the complete Start is not known.
    pub async fn start(&self, start: Start, body: &[u8]) -> Result<(), WireError> {
        self.send_all(&[ToRunner::Start(Box::new(start))], body).await
    }

    /// Acknowledges these attempts, whose outcomes are committed: the runner forgets them.
    ///
    /// # Errors
    /// The connection is lost; the attempts must be acknowledged over the next one that lists them.
    pub async fn ack(&self, keys: &[Key]) -> Result<(), WireError> {
        let acks: Vec<ToRunner> = keys.iter().map(|&key| ToRunner::Ack { key }).collect();
        self.send_all(&acks, b"").await
    }

    /// Sends a message that has no body.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn send(&self, message: ToRunner) -> Result<(), WireError> {
        self.send_all(&[message], b"").await
    }

    /// Sends a message that has no body, in a separate task. So a caller that gives up leaves no half frame, and
    /// a caller that reads cannot wait for a full socket. If the connection is lost, the message is lost too.
    pub fn send_in_background(&self, message: ToRunner) {
        let sender = self.clone();
        tokio::spawn(async move { drop(sender.send(message).await) });
    }

    /// Whether both send over one connection.
    pub fn is(&self, other: &Sender) -> bool {
        Arc::ptr_eq(&self.to, &other.to)
    }

    /// Writes these messages, each with this body, and flushes once.
    async fn send_all(&self, messages: &[ToRunner], body: &[u8]) -> Result<(), WireError> {
        let mut to = self.to.lock().await;
        let mut open = to.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let sent = async {
            for message in messages {
                crash::frame("receiver.before", message);
                wire::write(&mut open, message, body, wire::TO_RUNNER).await?;
            }
            wire::flush(&mut open, wire::TO_RUNNER).await
        };
        let sent = sent.await;
        messages.iter().for_each(|message| crash::frame("receiver.sent", message));
        // Nothing was written of a message over a limit.
        if matches!(sent, Ok(()) | Err(WireError::TooLarge { .. })) {
            *to = Some(open);
        }
        sent
    }
}

impl Events {
    /// The runner's next message and its body; `None` after the last one.
    ///
    /// # Errors
    /// The connection is lost; every message that arrived has been returned.
    pub async fn next(&mut self) -> Result<Option<(ToReceiver, Vec<u8>)>, WireError> {
        let read = wire::read(&mut self.from, wire::TO_RECEIVER).await?;
        if let Some((message, _)) = &read {
            crash::frame("receiver.read", message);
        }
        Ok(read)
    }
}
