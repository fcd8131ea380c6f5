//! Reads the guard's table off the writer's path: all of it once, for the bits of its starts, and then the pages
//! that the next listings change. A large table is in no memory, and each page that the writer reads from the
//! disk itself is waited for by all whose commit it is.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::guard::{Guard, Seen};
use super::read::Readers;
use super::starts::TURN;
use super::types::Error;

/// Entries that are read at once, before listings have their turn: each may have a page of its own on the disk.
const CHUNK: usize = 64;

/// Starts the thread. It reads ahead once per signal and ends with the sender.
pub(super) fn start(guard: Arc<Guard>, readers: Arc<Readers>) -> io::Result<SyncSender<()>> {
    // One signal waits at most: a second says nothing new.
    let (signal, signals) = sync_channel(1);
    std::thread::Builder::new()
        .name("guard".to_owned())
        .spawn(move || run(&guard, &readers, &signals))?;
    Ok(signal)
}

fn run(guard: &Guard, readers: &Readers, signals: &Receiver<()>) {
    if let Err(error) = guard.starts().fill(readers) {
        tracing::debug!(%error, "the guard's table was not read to its end");
    }
    let mut seen = Seen::default();
    while signals.recv().is_ok() {
        if let Err(error) = read(guard, readers, &mut seen) {
            tracing::debug!(%error, "the guard's table was not read ahead");
        }
    }
}

/// Reads where the entries of the next batches go, from `seen` on.
pub(super) fn read(guard: &Guard, readers: &Readers, seen: &mut Seen) -> Result<(), Error> {
    for next in guard.next(seen).chunks(CHUNK) {
        readers.look(|conn| {
            let mut select = conn.prepare_cached("SELECT 1 FROM body WHERE start >= ?1 LIMIT 1")?;
            next.iter().try_for_each(|start| select.exists([start]).map(drop))
        })?;
        std::thread::sleep(TURN);
    }
    Ok(())
}
