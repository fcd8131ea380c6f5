//! Which starts of digests the table `body` may have, a bit for each: a body that never came is not looked for on
//! the disk, where of a large table nearly each start has a page of its own.
//!
//! What must stay true: the bit of an entry is set before the entry is in the table. Until all of the table has
//! been read once, which takes seconds where it has ten million, any start may be there.

use std::sync::Mutex;
use std::time::Duration;

use super::lock;
use super::read::Readers;
use super::types::Error;

/// Bits for each event at least: of those that never came one in twelve is looked for all the same.
const BITS: u64 = 12;

/// Bits at least and at most, as their logarithms: 1 and 32 MiB, of which as much is touched as has events. What
/// outgrows it looks for more and more bodies.
const LEAST: u32 = 23;
const MOST: u32 = 28;

/// Entries that are read at once, and how long listings have their turn after them.
const CHUNK: usize = 2000;
pub(super) const TURN: Duration = Duration::from_millis(1);

pub(super) struct Starts {
    /// How far a start is shifted to be the number of its bit.
    shift: u32,
    state: Mutex<State>,
}

struct State {
    words: Vec<u64>,
    /// All of the table has been read.
    whole: bool,
}

impl Starts {
    /// For a table of a store that has so many events.
    pub(super) fn of(events: u64) -> Self {
        let bits = events.saturating_mul(BITS).max(1).ilog2().saturating_add(1).clamp(LEAST, MOST);
        let state = State { words: vec![0; 1 << (bits - 6)], whole: false };
        Starts { shift: 32 - bits, state: Mutex::new(state) }
    }

    /// These are about to be put into the table, or are in it.
    pub(super) fn add<'a>(&self, starts: impl IntoIterator<Item = &'a [u8; 4]>) {
        let words = &mut lock(&self.state).words;
        for start in starts {
            let (word, bit) = self.place(*start);
            words[word] |= bit;
        }
    }

    /// Whether the table may have such an entry.
    pub(super) fn may_have(&self, start: [u8; 4]) -> bool {
        let (word, bit) = self.place(start);
        let state = lock(&self.state);
        !state.whole || state.words[word] & bit != 0
    }

    fn place(&self, start: [u8; 4]) -> (usize, u64) {
        let number = u32::from_be_bytes(start) >> self.shift;
        ((number / 64) as usize, 1 << (number % 64))
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
            self.add(&chunk);
            match chunk.last() {
                // Those of one start that are left have the same bit.
                Some(last) if chunk.len() == CHUNK => after = last.to_vec(),
                _ => break,
            }
            std::thread::sleep(TURN);
        }
        lock(&self.state).whole = true;
        Ok(())
    }
}
