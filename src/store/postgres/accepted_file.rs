//! The file that keeps the last accepted events over a stop, `STORE.accepted` beside the store: a database that has gone
//! back meanwhile is found by what it lacks, and that is named (N28).
//!
//! Its first line is the store's id, which a change of the history changes. Each other line is an event, `MILLIS SOURCE
//! ID`, oldest first, with the time by this machine's clock. Lines are added at each look at the server. After a power
//! cut the last ones may be missing or unreadable: what comes behind such a line counts for nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use uuid::Uuid;

use crate::model::{EventId, Name, Timestamp};
use crate::store::node::durable::sync_folder;

/// No more is read.
const MOST_BYTES: u64 = 32 << 20;

/// A longer file is written anew. More than the 18.4 MB of 65,536 events with the longest names.
const REPLACE_BYTES: u64 = 24 << 20;

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

/// A line that was written to its end.
fn whole(line: &[u8]) -> Option<&str> {
    std::str::from_utf8(line).ok()?.strip_suffix('\n')
}

fn event(line: &str) -> Option<Accepted> {
    let mut words = line.splitn(3, ' ');
    let at = Timestamp(words.next()?.parse().ok()?);
    Some((at, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Whether the file is this store's, and short enough for more lines.
pub(super) fn is_of(path: &Path, store: Uuid) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let has_room = file.metadata()?.len() < REPLACE_BYTES;
    let (first, mut found) = (format!("{store}\n"), Vec::new());
    file.take(first.len() as u64).read_to_end(&mut found)?;
    Ok(has_room && found == first.as_bytes())
}

fn text(events: &[Accepted]) -> String {
    events.iter().map(|(at, source, id)| format!("{} {source} {id}\n", at.0)).collect()
}

/// Adds lines.
pub(super) fn add(path: &Path, events: &[Accepted]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(text(events).as_bytes())?;
    file.sync_all()
}

/// Replaces the file. After a power cut it is this one or the one before.
pub(super) fn replace(path: &Path, store: Uuid, events: &[Accepted]) -> io::Result<()> {
    let new = path.with_added_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(format!("{store}\n{}", text(events)).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_written_to_its_end_is_read_again_and_another_store_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.db.accepted");
        let event = |at, id: &str| (Timestamp(at), "s".parse().unwrap(), id.parse().unwrap());
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(read(&path).unwrap(), None);
        assert!(!is_of(&path, one).unwrap());
        replace(&path, one, &[event(1, "a")]).unwrap();
        add(&path, &[event(2, "b"), event(3, "c")]).unwrap();
        assert!(is_of(&path, one).unwrap() && !is_of(&path, other).unwrap());
        let all = vec![event(1, "a"), event(2, "b"), event(3, "c")];
        assert_eq!(read(&path).unwrap(), Some((one, all.clone())));
        // A power cut wrote a part of the next line, or zeros.
        let whole = fs::read(&path).unwrap();
        for cut in [&b"4 s"[..], b"\0\0\0\n5 s e\n", b"\xff\n"] {
            fs::write(&path, [&whole, cut].concat()).unwrap();
            assert_eq!(read(&path).unwrap(), Some((one, all.clone())));
        }
        replace(&path, other, &[]).unwrap();
        assert_eq!(read(&path).unwrap(), Some((other, Vec::new())));
    }
}
