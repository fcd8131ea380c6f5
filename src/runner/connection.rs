//! One receiver's connection to a runner.
//!
//! What must stay true: once it is cut, nothing more of it is read (R3); a receiver that does not
//! read costs no more than its queue and one frame (R18); the first message is a Hello, and nothing
//! else is done before it was admitted.
//!
//! Outputs go out one frame at a time: the queue has only the keys of ended attempts, and the next end
//! is read from the table when the frame before it is in the socket. The socket, and not the Ack, holds
//! the next end back. If each end waited for the Ack of the one before it, every commit would carry a
//! single end of this runner and not all those that have come, and an end whose commit fails would keep
//! the ends of all other handlers from the receiver. Waiting for the Ack would save no memory here: the
//! table keeps an output until its Ack, whether it was sent or not.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::io::{BufReader, BufWriter};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::attempt;
use super::commands::{CommandList, Configured, Reload};
use super::message::{CommandDigest, Denial, Hello, Key, Refusal, Start, ToReceiver, ToRunner};
use super::orphaned;
use super::peer::{Outgoing, Peer};
use super::table::Table;
use super::wire::{self, Bounds, WireError};
use crate::crash;
use crate::memory;
use crate::model::Digest;

/// Bodies up to this size are hashed on the serving thread: some 50 µs, no more than another thread's
/// beginning and end would cost.
const SMALL_BYTES: usize = 64 * 1024;

/// Most that is told of why commands cannot be had: hundreds of problems, far less than a message may have.
const DETAIL_BYTES: usize = 64 * 1024;

/// Serves a connection to its end. `number` is its own.
pub(super) async fn serve(
    stream: UnixStream,
    number: u64,
    table: Arc<Table>,
    reload: Arc<Mutex<Reload>>,
    bounds: [Bounds; 2],
) {
    let [incoming, outgoing] = bounds;
    let (reader, writer) = stream.into_split();
    let (peer, queue) = Peer::new(number);
    let mut cuts = peer.cuts();
    let cut = async { drop(cuts.wait_for(|cut| *cut).await) };
    let mut writing = std::pin::pin!(write(writer, queue, &table, outgoing));
    let ended = tokio::select! {
        biased;
        () = cut => Some(Ok(())),
        ended = &mut writing => Some(ended),
        ended = converse(reader, &peer, &table, reload, incoming) => {
            log(number, ended);
            None
        }
    };
    table.gone(&peer);
    drop(peer);
    // Nothing more is read; what was said last, such as why nobody was admitted, still goes out.
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
    bounds: Bounds,
) -> Result<(), WireError> {
    let mut to = BufWriter::new(to);
    while let Some(next) = queue.recv().await {
        let (message, body) = match next {
            Outgoing::Message(message) => (message, Vec::new()),
            Outgoing::Peek(key, stream) => table.peek(key, stream),
            Outgoing::End(key) => match table.end(key) {
                Some(end) => end,
                None => {
                    // Acknowledged meanwhile. The frames before it may wait for their flush.
                    wire::flush(&mut to, bounds).await?;
                    continue;
                }
            },
        };
        crash::frame("runner.before", &message);
        wire::write(&mut to, &message, &body, bounds).await?;
        // What waits goes out together.
        if queue.is_empty() {
            wire::flush(&mut to, bounds).await?;
        }
        crash::frame("runner.sent", &message);
    }
    // The last words, where the queue was closed behind them.
    wire::flush(&mut to, bounds).await
}

async fn converse(
    from: OwnedReadHalf,
    peer: &Peer,
    table: &Arc<Table>,
    reload: Arc<Mutex<Reload>>,
    bounds: Bounds,
) -> Result<(), WireError> {
    let mut from = BufReader::with_capacity(wire::TOGETHER_BYTES, from);
    let first = timeout(bounds.wait, wire::read::<ToRunner>(&mut from, bounds)).await;
    let hello = match first.unwrap_or(Err(WireError::Slow(bounds.wait)))? {
        Some((ToRunner::Hello(hello), _)) => hello,
        Some(_) => return Err(WireError::Io(std::io::Error::other("no Hello came first"))),
        None => return Ok(()),
    };
    crash::point("runner.hello.read");
    if let Err((reason, detail)) = admit(&hello, peer, table, &reload).await {
        tracing::warn!(detail, "a receiver is not admitted");
        peer.queue(Outgoing::Message(ToReceiver::Denied { reason, detail }));
        return Ok(());
    }
    // They end with the connection: who is not there cannot be told, and asks again.
    let mut searches = JoinSet::new();
    while let Some((message, body)) = wire::read(&mut from, bounds).await? {
        crash::frame("runner.read", &message);
        match message {
            ToRunner::Hello(_) => tracing::warn!("a second Hello was not heard"),
            ToRunner::Start(start) => begin(*start, body, peer, table).await,
            ToRunner::Peek { key, stream } => peer.answer(Outgoing::Peek(key, stream)).await,
            ToRunner::Kill { key } => table.kill(peer, key),
            ToRunner::Search { key } => {
                while searches.try_join_next().is_some() {}
                searches.spawn(search(key, peer.clone(), Arc::clone(table)));
            }
            ToRunner::Ack { key } => table.ack(peer, key),
            ToRunner::Load { number, in_use } => {
                let answer = load(number, in_use, peer, table, &reload).await;
                peer.answer(Outgoing::Message(answer)).await;
            }
        }
    }
    Ok(())
}

/// Admits a receiver to what is configured now. One at a time, so that the last one admitted has the
/// last configuration.
async fn admit(
    hello: &Hello,
    peer: &Peer,
    table: &Table,
    reload: &Arc<Mutex<Reload>>,
) -> Result<(), (Denial, String)> {
    table.may_admit(hello)?;
    let (read, _turn) = read_again(reload).await;
    let commands = match read {
        Ok(list) => Some(list.commands),
        Err(error) => {
            tracing::error!(error, "the configuration cannot be read again: the last one stays");
            None
        }
    };
    table.admit(hello, peer, commands)
}

/// Reads the configuration for a receiver that reloads. The rest of the conversation waits meanwhile:
/// the files are small.
async fn load(
    number: u64,
    in_use: u64,
    peer: &Peer,
    table: &Table,
    reload: &Arc<Mutex<Reload>>,
) -> ToReceiver {
    let (read, _turn) = read_again(reload).await;
    let refused = match read {
        Ok(CommandList { commands, needs_restart: None }) => {
            tracing::info!(commands = commands.len(), "read the configuration again");
            let digest = |one: &Configured| CommandDigest {
                handler: one.name.clone(),
                configuration: one.digest,
            };
            let digests = commands.iter().map(digest).collect();
            table.load(peer, number, in_use, commands);
            return ToReceiver::Loaded { number, commands: digests };
        }
        Ok(CommandList { needs_restart: Some(why), .. }) | Err(why) => why,
    };
    tracing::error!(error = refused, "the configuration cannot be loaded: nothing changes");
    let end = refused.floor_char_boundary(DETAIL_BYTES);
    ToReceiver::NotLoaded { number, detail: refused[..end].to_owned() }
}

/// Reads the configuration on another thread. Nobody else does while the turn is held.
async fn read_again(
    reload: &Arc<Mutex<Reload>>,
) -> (Result<CommandList, String>, Option<OwnedMutexGuard<Reload>>) {
    let turn = Arc::clone(reload).lock_owned().await;
    let read = move || {
        let read = turn();
        memory::give_back_code();
        (read, turn)
    };
    match spawn_blocking(read).await {
        Ok((read, turn)) => (read, Some(turn)),
        Err(panicked) => (Err(panicked.to_string()), None),
    }
}

async fn begin(start: Start, body: Vec<u8>, peer: &Peer, table: &Arc<Table>) {
    let (key, size) = (start.key, body.len());
    let hash = move || (Digest(Sha256::digest(&body).into()), body);
    let hashed = if size > SMALL_BYTES { spawn_blocking(hash).await.ok() } else { Some(hash()) };
    let leave = match hashed {
        Some((digest, body)) if digest == start.body => {
            table.start(peer, &start).map(|leave| (leave, body))
        }
        _ => Err((Refusal::BadBody, "the body has another digest".to_owned())),
    };
    match leave {
        Ok((leave, body)) => {
            tokio::spawn(attempt::run(Arc::clone(table), key, leave, start.facts(body)));
        }
        Err((reason, detail)) => {
            peer.answer(Outgoing::Message(ToReceiver::Refused { key, reason, detail })).await;
        }
    }
}

/// Ends what no runner here answers for, and says when nothing of it lives. Asked before each look
/// whether it may: an attempt of the table's has an end of its own.
async fn search(key: Key, peer: Peer, table: Arc<Table>) {
    while table.may_search(&peer, key) {
        let looked = spawn_blocking(move || orphaned::end(&[(key, None)], orphaned::PATIENCE));
        // A search that failed has proven nothing.
        if looked.await.is_ok_and(|alive| alive.is_empty()) {
            peer.answer(Outgoing::Message(ToReceiver::Gone { key })).await;
            return;
        }
        tracing::error!(%key, "a process that no runner answers for cannot be ended");
        sleep(orphaned::PATIENCE).await;
    }
}
