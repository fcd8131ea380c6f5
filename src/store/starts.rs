//! Which starts of digests the table `body` may have, a bit for each: a body that never came is not looked for on
//! the disk, where of a large table nearly each start has a page of its own.
//!
//! What must stay true: the bit of an entry is set before the entry is in the table. Until all of the table has
//! been read once, which takes seconds where it has ten million, any start may be there.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::read::Readers;
use super::types::Error;

/// Bits for each event at least: of those that never came one in twelve is looked for all the same.
const BITS: u64 = 12;

/// Bits at least, as their logarithm: 1 MiB, of which as much is touched as has events. A store that outgrows it
/// looks for more and more bodies, until its next start.
const LEAST: u32 = 23;

/// Entries that are read at once: a listing waits no longer than that.
const CHUNK: usize = 2000;

pub(super) struct Starts {
    words: Box<[AtomicU64]>,
    /// How far a start is shifted to be the number of its bit.
    shift: u32,
    whole: AtomicBool,
}

impl Starts {
    /// For a table of a store that has so many events.
    pub(super) fn of(events: u64) -> Self {
        let bits = events.saturating_mul(BITS).max(1).ilog2().saturating_add(1).clamp(LEAST, 32);
        let words = std::iter::repeat_with(AtomicU64::default).take(1 << (bits - 6)).collect();
        Starts { words, shift: 32 - bits, whole: AtomicBool::new(false) }
    }

    /// An entry is about to be put into the table.
    pub(super) fn add(&self, start: [u8; 4]) {
        let (word, bit) = self.place(start);
        word.fetch_or(bit, Relaxed);
    }

    /// Whether the table may have such an entry.
    pub(super) fn may_have(&self, start: [u8; 4]) -> bool {
        let (word, bit) = self.place(start);
        word.load(Relaxed) & bit != 0 || !self.whole.load(Acquire)
    }

    fn place(&self, start: [u8; 4]) -> (&AtomicU64, u64) {
        let number = u32::from_be_bytes(start) >> self.shift;
        (&self.words[(number / 64) as usize], 1 << (number % 64))
    }

    /// Reads the table. Where that fails the table is asked for every body, as until then.
    pub(super) fn fill(&self, readers: &Readers) -> Result<(), Error> {
        let mut after: Vec<u8> = Vec::new();
        loop {
            let chunk: Vec<[u8; 4]> = readers.look(|conn| {
                conn.prepare_cached(
                    "SELECT start FROM body WHERE start > ?1 ORDER BY start LIMIT ?2",
                )?
                .query_map((&after, CHUNK as i64), |row| row.get(0))?
                .collect()
            })?;
            chunk.iter().for_each(|&start| self.add(start));
            match chunk.last() {
                // Those of one start that are left have the same bit.
                Some(last) if chunk.len() == CHUNK => after = last.to_vec(),
                _ => break,
            }
        }
        self.whole.store(true, Release);
        Ok(())
    }
}

/// Starts the thread that reads the table. It ends when that is done.
pub(super) fn start(starts: Arc<Starts>, readers: Arc<Readers>) -> std::io::Result<()> {
    let fill = move || {
        if let Err(error) = starts.fill(&readers) {
            tracing::debug!(%error, "the guard's table was not read to its end");
        }
    };
    std::thread::Builder::new().name("guard".to_owned()).spawn(fill).map(drop)
}
