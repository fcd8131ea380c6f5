//! The file that keeps the last accepted events over a stop, `STORE.accepted` beside the store: a database that has gone
//! back meanwhile is found by what it lacks, and that is named (N28).
//!
//! Its first line is the store's id, which a change of the history changes. Each other line is an event, `MILLIS SOURCE
//! ID`, oldest first, with the time by this machine's clock. Each line has a sum. Lines are added at each look at the
//! server behind a commit, when a session is lost, and at a clean stop. After a power cut the last ones may be missing
//! or damaged: reading stops at the first damaged one.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use uuid::Uuid;

use crate::model::{EventId, Name, Timestamp, summed};
use crate::store::node::durable;

/// No more is read.
const MOST_BYTES: u64 = 32 << 20;

/// A longer file is replaced. More than the 19.1 MB of 65,536 events with the longest names.
pub(super) const REPLACE_BYTES: u64 = 24 << 20;

/// An accepted event.
pub(super) type Accepted = (Timestamp, Name, EventId);

/// The store and its events. None where the file is not there, or its first line cannot be read.
pub(super) fn read(path: &Path) -> io::Result<Option<(Uuid, Vec<Accepted>)>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MOST_BYTES).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').map(whole);
    let store = lines.next().flatten().and_then(|line| line.parse().ok());
    let events = lines.map_while(|line| event(line?)).collect();
    Ok(store.map(|store| (store, events)))
}

/// The text of a line that was written to its end, and has not changed.
fn whole(line: &[u8]) -> Option<&str> {
    summed::text(std::str::from_utf8(line).ok()?.strip_suffix('\n')?)
}

fn event(line: &str) -> Option<Accepted> {
    let mut words = line.splitn(3, ' ');
    let at = Timestamp(words.next()?.parse().ok()?);
    Some((at, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn text(events: &[Accepted]) -> String {
    let line = |(at, source, id): &Accepted| summed::line(&format!("{} {source} {id}", at.0));
    events.iter().map(line).collect()
}

/// Adds lines to a file that ends with a whole one. Returns their bytes.
pub(super) fn add(path: &Path, events: &[Accepted]) -> io::Result<u64> {
    let text = text(events);
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(text.len() as u64)
}

/// Replaces the file. Returns its bytes.
pub(super) fn replace(path: &Path, store: Uuid, events: &[Accepted]) -> io::Result<u64> {
    let text = summed::line(&store.to_string()) + &text(events);
    durable::replace(path, text.as_bytes())?;
    Ok(text.len() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runner::tests::damage::damages;

    #[test]
    fn no_damage_makes_another_event_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.db.accepted");
        let event =
            |at| (Timestamp(at), "s".parse().unwrap(), format!("evt_{at}").parse().unwrap());
        let all: Vec<Accepted> = (1..30).map(event).collect();
        let one = Uuid::from_u128(1);
        replace(&path, one, &all).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for damage in damages(300) {
            std::fs::write(&path, damage.of(&whole)).unwrap();
            if let Some((store, events)) = read(&path).unwrap() {
                assert_eq!(store, one, "{damage:?}");
                assert!(all.starts_with(&events), "{damage:?}: {events:?}");
                assert!(events.len() < all.len(), "{damage:?}");
            }
        }
    }

    #[test]
    fn what_was_written_to_its_end_is_read_again_and_another_store_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.db.accepted");
        let event = |at, id: &str| (Timestamp(at), "s".parse().unwrap(), id.parse().unwrap());
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, one, &[event(1, "a")]).unwrap();
        add(&path, &[event(2, "b"), event(3, "c")]).unwrap();
        let all = vec![event(1, "a"), event(2, "b"), event(3, "c")];
        assert_eq!(read(&path).unwrap(), Some((one, all.clone())));
        // A power cut wrote a part of the next line, or zeros.
        let whole = std::fs::read(&path).unwrap();
        for cut in [&b"4 s"[..], b"\0\0\0\n5 s e\n", b"\xff\n"] {
            std::fs::write(&path, [&whole, cut].concat()).unwrap();
            assert_eq!(read(&path).unwrap(), Some((one, all.clone())));
        }
        replace(&path, other, &[]).unwrap();
        assert_eq!(read(&path).unwrap(), Some((other, Vec::new())));
    }
}
