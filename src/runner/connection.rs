//! One receiver's connection to a runner.
//!
//! Must stay true: once the connection is cut, nothing more is read from it (R3); a receiver that does not read
//! costs no more than its queue and one frame (R18); the first message is a Hello, and nothing else is done
//! before the receiver is admitted.
//!
//! Outputs are sent one frame at a time: the queue has only the keys of ended attempts, and the next end
//! is read from the table when the frame before it is in the socket. The socket, and not the Ack, limits
//! the rate. If each end waited for the Ack of the one before it, every commit would have a single end of
//! this runner, and an end whose commit fails would delay the ends of all other handlers. Waiting for the Ack
//! would save no memory here: the table keeps an output until its Ack, whether it was sent or not.

use std::sync::Arc;

use tokio::io::{BufReader, BufWriter};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::attempt;
use super::commands::{CommandList, Configured, Reload};
use super::message::{CommandDigest, Hello, Key, Refusal, Start, ToReceiver, ToRunner};
use super::orphaned;
use super::peer::{Outgoing, Peer};
use super::table::Table;
use super::wire::{self, WireError};
use crate::crash;
use crate::limits::RUNNER_WAIT;
use crate::memory;
use crate::model::{Digest, Facts};

/// Bodies up to this size are hashed on the serving thread: it takes some 50 µs, no more than a change of thread.
const SMALL_BYTES: usize = 64 * 1024;

/// The longest reason in a NotLoaded: hundreds of problems, far less than the limit of a message.
const DETAIL_BYTES: usize = 64 * 1024;

/// Serves a connection to its end. `number` is for the log.
pub(super) async fn serve(
    stream: UnixStream,
    number: u64,
    table: Arc<Table>,
    reload: Arc<Mutex<Reload>>,
) {
    let (reader, writer) = stream.into_split();
    let (peer, queue) = Peer::new();
    let mut cuts = peer.cuts();
    let cut = async { drop(cuts.wait_for(|cut| *cut).await) };
    let mut writing = std::pin::pin!(write(writer, queue, &table));
    let connection = Connection { peer, table: Arc::clone(&table), reload };
    let ended = tokio::select! {
        biased;
        () = cut => Some(Ok(())),
        ended = &mut writing => Some(ended),
        ended = connection.converse(reader) => {
            log(number, ended);
            None
        }
    };
    table.disconnect(&connection.peer);
    drop(connection);
    // Nothing more is read, but the last messages, such as a Denied, are still sent.
    let ended = match ended {
        Some(ended) => ended,
        None => writing.await,
    };
    log(number, ended);
}

fn log(number: u64, ended: Result<(), WireError>) {
    match ended {
        Ok(()) => tracing::debug!(number, "a connection ended"),
        Err(WireError::Io(error)) => tracing::debug!(number, %error, "a connection was lost"),
        Err(error) => tracing::warn!(number, %error, "a connection was ended"),
    }
}

async fn write(
    to: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Outgoing>,
    table: &Table,
) -> Result<(), WireError> {
    let mut to = BufWriter::with_capacity(wire::BUFFER_BYTES, to);
    while let Some(next) = queue.recv().await {
        let (message, body) = match next {
            Outgoing::Message(message) => (message, Vec::new()),
            Outgoing::Peek(key, stream) => {
                ToReceiver::peeked(key, stream, table.printed(key, stream))
            }
            Outgoing::End(key) => match table.end(key) {
                Some(end) => end,
                None => {
                    // Acknowledged meanwhile. The frames before it may not be flushed yet.
                    wire::flush(&mut to, wire::TO_RECEIVER).await?;
                    continue;
                }
            },
        };
        crash::frame("runner.before", &message);
        wire::write(&mut to, &message, &body, wire::TO_RECEIVER).await?;
        // Frames that wait are flushed together.
        if queue.is_empty() {
            wire::flush(&mut to, wire::TO_RECEIVER).await?;
        }
        crash::frame("runner.sent", &message);
    }
    wire::flush(&mut to, wire::TO_RECEIVER).await
}

/// The connection of one receiver, and what its messages change.
#[derive(Clone)]
struct Connection {
    peer: Peer,
    table: Arc<Table>,
    reload: Arc<Mutex<Reload>>,
}

impl Connection {
    async fn converse(&self, from: OwnedReadHalf) -> Result<(), WireError> {
        let mut from = BufReader::with_capacity(wire::BUFFER_BYTES, from);
        let first = timeout(RUNNER_WAIT, wire::read(&mut from, wire::TO_RUNNER)).await;
        let hello = match first.unwrap_or(Err(WireError::Slow(RUNNER_WAIT)))? {
            Some((ToRunner::Hello(hello), _)) => hello,
            Some(_) => return Err(WireError::Io(std::io::Error::other("no Hello came first"))),
            None => return Ok(()),
        };
        crash::point("runner.hello.read");
        if let Err(detail) = self.admit(&hello).await {
            tracing::warn!(detail, "a receiver is not admitted");
            self.peer.queue(Outgoing::Message(ToReceiver::Denied { detail }));
            return Ok(());
        }
        // They end with the connection: the receiver asks again over the next one.
        let mut searches = JoinSet::new();
        while let Some((message, body)) = wire::read(&mut from, wire::TO_RUNNER).await? {
            crash::frame("runner.read", &message);
            match message {
                ToRunner::Hello(_) => tracing::warn!("a second Hello was ignored"),
                ToRunner::Start(start) => self.begin(*start, body).await,
                ToRunner::Peek { key, stream } => {
                    self.peer.answer(Outgoing::Peek(key, stream)).await;
                }
                ToRunner::Kill { key } => self.table.kill(&self.peer, key),
                ToRunner::Search { key } => {
                    while searches.try_join_next().is_some() {}
                    searches.spawn(self.clone().search(key));
                }
                ToRunner::Ack { key } => self.table.ack(&self.peer, key),
                ToRunner::Load { number, in_use } => self.load(number, in_use).await,
            }
        }
        Ok(())
    }

    async fn answer(&self, answer: ToReceiver) {
        self.peer.answer(Outgoing::Message(answer)).await;
    }

    /// Admits a receiver to the commands that are configured now. One at a time, so that the last admitted
    /// receiver has the latest configuration.
    async fn admit(&self, hello: &Hello) -> Result<(), String> {
        let reload = self.reload.lock().await;
        let commands = match read(&reload).await {
            Ok(list) => Some(list.commands),
            Err(error) => {
                tracing::error!(
                    error,
                    "the configuration cannot be read again: the last one stays"
                );
                None
            }
        };
        self.table.admit(hello, &self.peer, commands)
    }

    /// Reads the configuration for a receiver that reloads. The connection's other messages wait meanwhile: the
    /// files are small.
    async fn load(&self, number: u64, in_use: u64) {
        let reload = self.reload.lock().await;
        let answer = match read(&reload).await {
            Ok(CommandList { commands, needs_restart: None }) => {
                tracing::info!(commands = commands.len(), "read the configuration again");
                let digest = |one: &Configured| CommandDigest {
                    handler: one.name.clone(),
                    configuration: one.digest,
                };
                let digests = commands.iter().map(digest).collect();
                self.table.load(&self.peer, number, in_use, commands);
                ToReceiver::Loaded { number, commands: digests }
            }
            Ok(CommandList { needs_restart: Some(mut why), .. }) | Err(mut why) => {
                tracing::error!(error = why, "the configuration cannot be loaded: nothing changes");
                why.truncate(why.floor_char_boundary(DETAIL_BYTES));
                ToReceiver::NotLoaded { number, detail: why }
            }
        };
        drop(reload);
        self.answer(answer).await;
    }

    async fn begin(&self, start: Start, body: Vec<u8>) {
        let (key, size) = (start.key(), body.len());
        let hash = move || (Digest::of(&body), body);
        let hashed =
            if size > SMALL_BYTES { spawn_blocking(hash).await.ok() } else { Some(hash()) };
        let permission = match hashed {
            Some((digest, body)) if digest == start.body => {
                self.table.start(&self.peer, &start).map(|permission| (permission, body))
            }
            _ => Err((Refusal::BadBody, "the body has another digest".to_owned())),
        };
        match permission {
            Ok((permission, body)) => {
                let facts = Facts { body: body.into(), ..start.facts };
                tokio::spawn(attempt::run(Arc::clone(&self.table), key, permission, facts));
            }
            Err((reason, detail)) => self.answer(ToReceiver::Refused { key, reason, detail }).await,
        }
    }

    /// Ends all that still runs of an attempt that no runner answers for, and reports when nothing of it lives.
    /// Checks before each search that it may: an attempt in the table must not be searched for.
    async fn search(self, key: Key) {
        while self.table.may_search(&self.peer, key) {
            let search = move || orphaned::end(&[(key, None)], orphaned::PATIENCE);
            // A search that failed proves nothing.
            if spawn_blocking(search).await.is_ok_and(|alive| alive.is_empty()) {
                return self.answer(ToReceiver::Gone { key }).await;
            }
            tracing::error!(%key, "a process that no runner answers for cannot be ended");
            sleep(orphaned::PATIENCE).await;
        }
    }
}

/// Reads the configuration on another thread.
async fn read(reload: &Reload) -> Result<CommandList, String> {
    let reload = Arc::clone(reload);
    let read = move || {
        let read = reload();
        memory::give_back_code();
        read
    };
    spawn_blocking(read).await.unwrap_or_else(|panicked| Err(panicked.to_string()))
}
