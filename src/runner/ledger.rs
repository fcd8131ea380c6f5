//! The file that a runner leaves for the next one: a line for each start, exit and acknowledgement.
//!
//! Only the table writes it, and only the next runner, under the folder's lock, reads it (R7). A line is one plain
//! write: it survives the death of the process, but not of the machine. The file's name has the boot id, so that the
//! ledger of another boot is never used. Each line has a sum, so that a changed one is never taken for another
//! attempt's or another end. Must stay true: `start` is written before the command is started, and `exit` before the
//! end is reported.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Ended;
use super::incarnation::this_boot;
use super::message::Key;
use crate::limits::{DEAD_RUNNERS, LEDGER_BYTES};
use crate::model::{Incarnation, summed};

/// A process as `/proc` identifies it: its number and its start in clock ticks since the boot, which together
/// are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(super) pid: i32,
    pub(super) start: u64,
}

/// The store and the receiver's epoch that a runner last admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(super) store: Uuid,
    pub(super) epoch: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// A runner begins.
    Runner(Incarnation),
    /// A receiver was admitted.
    Bound(Bound),
    /// An attempt is about to be started.
    Start(Key, Incarnation),
    /// The attempt runs as this process.
    Process(Key, Process),
    /// The attempt could not be started.
    Void(Key),
    /// The attempt has ended.
    Exit(Key, Ended),
    /// The attempt's outcome is committed.
    Ack(Key),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Runner(incarnation) => write!(f, "the begin of runner {incarnation}"),
            Line::Bound(bound) => write!(f, "receiver {} of store {}", bound.epoch, bound.store),
            Line::Start(key, _) => write!(f, "the start of {key}"),
            Line::Process(key, process) => write!(f, "process {} of {key}", process.pid),
            Line::Void(key) => write!(f, "the failed start of {key}"),
            Line::Exit(key, _) => write!(f, "the end of {key}"),
            Line::Ack(key) => write!(f, "the Ack of {key}"),
        }
    }
}

/// An attempt as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LedgerEntry {
    pub(super) incarnation: Incarnation,
    pub(super) process: Option<Process>,
    /// `None` while it runs. The ledger has no outputs.
    pub(super) end: Option<Ended>,
}

impl LedgerEntry {
    pub(super) fn new(incarnation: Incarnation, process: Option<Process>) -> Self {
        LedgerEntry { incarnation, process, end: None }
    }
}

/// The ledger of the runners before this one.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// The runners to answer for. Empty if a line could not be read: then this runner answers for none.
    pub(super) incarnations: Vec<Incarnation>,
    pub(super) bound: Option<Bound>,
    /// The attempts that are not acknowledged.
    pub(super) attempts: BTreeMap<Key, LedgerEntry>,
}

/// The open ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    /// Its length when it was last rewritten.
    fresh: u64,
}

impl Ledger {
    /// Reads the ledger in `folder` and opens it for writing. The caller holds the folder's lock. Removes the
    /// ledgers of other boots: every process in them is dead.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, Inherited)> {
        let name = format!("ledger-{}", this_boot()?);
        for entry in fs::read_dir(folder)?.flatten() {
            let other = entry.file_name();
            let other = other.to_string_lossy();
            if other.starts_with("ledger-") && other != name {
                fs::remove_file(entry.path())?;
            }
        }
        let path = folder.join(name);
        let inherited = match fs::read(&path) {
            Ok(bytes) => read(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Inherited::default(),
            Err(error) => return Err(error),
        };
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let length = file.metadata()?.len();
        Ok((Ledger { path, file, length, fresh: 0 }, inherited))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line, completely or not at all.
    pub(super) fn note(&mut self, line: &Line) -> io::Result<()> {
        let text = text(line)?;
        if let Err(error) = self.file.write_all(&text) {
            // The next line would be appended to half a line.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += text.len() as u64;
        Ok(())
    }

    /// Whether it should be rewritten: it is long, and most lines have no effect any more.
    pub(super) fn is_long(&self) -> bool {
        self.length > LEDGER_BYTES.max(2 * self.fresh)
    }

    /// Replaces it with these lines.
    pub(super) fn rewrite(&mut self, lines: impl IntoIterator<Item = Line>) -> io::Result<()> {
        let mut all = Vec::new();
        for line in lines {
            all.extend(text(&line)?);
        }
        let fresh = self.path.with_file_name("new-ledger");
        // A death may have left a part of one: truncate it.
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&all)?;
        let file = OpenOptions::new().append(true).open(&fresh)?;
        fs::rename(&fresh, &self.path)?;
        (self.file, self.length, self.fresh) = (file, all.len() as u64, all.len() as u64);
        Ok(())
    }
}

pub(crate) fn text(line: &Line) -> io::Result<Vec<u8>> {
    Ok(summed::line(&serde_json::to_string(line)?).into_bytes())
}

fn parse(line: &[u8]) -> io::Result<Line> {
    let text = std::str::from_utf8(line).ok().and_then(summed::text);
    let changed = || io::Error::new(io::ErrorKind::InvalidData, "its sum is another one");
    Ok(serde_json::from_str(text.ok_or_else(changed)?)?)
}

/// Reads a ledger. A last line without its end has no effect, and whether others were behind it is not known. Of what
/// was cut off at the end of a line nothing is seen.
pub(crate) fn read(bytes: &[u8]) -> Inherited {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let mut inherited = Inherited::default();
    let mut readable = whole == bytes.len();
    if !readable {
        tracing::error!("the last runner's ledger ends within a line");
    }
    for line in bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        match parse(line) {
            Ok(line) => take(&mut inherited, line),
            Err(error) => {
                readable = false;
                tracing::error!(%error, "a line of the last runner's ledger cannot be read");
            }
        }
    }
    if !readable {
        inherited.incarnations.clear();
    }
    let old = inherited.incarnations.len().saturating_sub(DEAD_RUNNERS);
    inherited.incarnations.drain(..old);
    inherited
}

fn take(inherited: &mut Inherited, line: Line) {
    let attempts = &mut inherited.attempts;
    match line {
        Line::Runner(incarnation) => inherited.incarnations.push(incarnation),
        Line::Bound(bound) => inherited.bound = Some(bound),
        Line::Start(key, incarnation) => {
            attempts.insert(key, LedgerEntry::new(incarnation, None));
        }
        Line::Process(key, process) => {
            if let Some(entry) = attempts.get_mut(&key) {
                entry.process = Some(process);
            }
        }
        Line::Exit(key, end) => {
            if let Some(entry) = attempts.get_mut(&key) {
                entry.end = Some(end);
            }
        }
        Line::Void(key) | Line::Ack(key) => {
            attempts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::JobId;
    use crate::runner::tests::damage::damages;
    use crate::runner::{Exited, Status, Usage};

    fn key(number: u8) -> Key {
        Key { job: JobId::from_bytes([number; 16]), attempt: 1 }
    }

    fn exited() -> Ended {
        Ended::Exited(Exited::without_outputs(Status::Code(0), None, Usage::default()))
    }

    #[test]
    fn the_next_runner_reads_what_is_not_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let incarnation = crate::runner::incarnation::new().unwrap();
        let process = Process { pid: 7, start: 8 };
        let bound = Bound { store: Uuid::from_bytes([1; 16]), epoch: 3 };
        let (mut ledger, nothing) = Ledger::open(folder.path()).unwrap();
        assert!(nothing.attempts.is_empty());
        let mut lines = vec![Line::Runner(incarnation), Line::Bound(bound)];
        lines.extend([1, 2, 3, 4].map(|number| Line::Start(key(number), incarnation)));
        lines.extend([1, 2].map(|number| Line::Process(key(number), process)));
        lines.extend([Line::Exit(key(2), exited()), Line::Void(key(3))]);
        lines.extend([Line::Exit(key(4), exited()), Line::Ack(key(4))]);
        lines.iter().for_each(|line| ledger.note(line).unwrap());
        let entry = |process, end| LedgerEntry { incarnation, process, end };
        let expected = BTreeMap::from([
            (key(1), entry(Some(process), None)),
            (key(2), entry(Some(process), Some(exited()))),
        ]);
        // Once as it was written, once written anew.
        for _ in 0..2 {
            let (mut ledger, inherited) = Ledger::open(folder.path()).unwrap();
            assert_eq!(inherited.attempts, expected);
            assert_eq!((inherited.bound, inherited.incarnations), (Some(bound), vec![incarnation]));
            ledger.rewrite(lines.clone()).unwrap();
        }
    }

    #[test]
    fn other_boots_are_ignored_and_half_a_line_or_an_unreadable_one_ends_all_answers() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(format!("ledger-{}", Uuid::from_bytes([9; 16])));
        fs::write(&other, "{}\n").unwrap();
        let incarnation = crate::runner::incarnation::new().unwrap();
        let (mut ledger, _) = Ledger::open(folder.path()).unwrap();
        assert!(!other.exists());
        ledger.note(&Line::Runner(incarnation)).unwrap();
        ledger.note(&Line::Start(key(1), incarnation)).unwrap();
        let (_, inherited) = Ledger::open(folder.path()).unwrap();
        assert_eq!((inherited.incarnations.len(), inherited.attempts.len()), (1, 1));
        ledger.file.write_all(b"~00000000 {\"exit\":[").unwrap();
        let (_, inherited) = Ledger::open(folder.path()).unwrap();
        assert_eq!((inherited.incarnations.len(), inherited.attempts.len()), (0, 1));
        ledger.file.write_all(b"\n").unwrap();
        let (_, inherited) = Ledger::open(folder.path()).unwrap();
        assert_eq!((inherited.incarnations.len(), inherited.attempts.len()), (0, 1));
    }

    /// It says of an attempt what was, or that the runner died while it ran; and it proves of none that was started
    /// that it was not.
    #[test]
    fn a_damaged_ledger_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let incarnation = crate::runner::incarnation::new().unwrap();
        let bound = Bound { store: Uuid::from_bytes([1; 16]), epoch: 3 };
        let (mut ledger, _) = Ledger::open(folder.path()).unwrap();
        let mut lines = vec![Line::Runner(incarnation), Line::Bound(bound)];
        let mut all = BTreeMap::new();
        for number in 1..=9 {
            let process = Process { pid: number.into(), start: 8 };
            let mut entry = LedgerEntry::new(incarnation, Some(process));
            lines.push(Line::Start(key(number), incarnation));
            lines.push(Line::Process(key(number), process));
            if number % 3 > 0 {
                entry.end = Some(exited());
                lines.push(Line::Exit(key(number), exited()));
            }
            if number % 3 > 1 {
                lines.push(Line::Ack(key(number)));
            }
            all.insert(key(number), entry);
        }
        lines.iter().for_each(|line| ledger.note(line).unwrap());
        let whole = fs::read(ledger.path()).unwrap();
        let unacknowledged = read(&whole).attempts;
        for damage in damages(300) {
            let damaged = damage.of(&whole);
            fs::write(ledger.path(), &damaged).unwrap();
            let (_, inherited) = Ledger::open(folder.path()).unwrap();
            for (key, entry) in &inherited.attempts {
                let LedgerEntry { incarnation, process, end } = &all[key];
                assert_eq!(entry.incarnation, *incarnation, "{damage:?}");
                assert!(entry.process.is_none() || entry.process == *process, "{damage:?}");
                assert!(entry.end.is_none() || entry.end == *end, "{damage:?}");
            }
            assert!(inherited.bound.is_none_or(|found| found == bound), "{damage:?}");
            // As it once was.
            let is_earlier = damaged.ends_with(b"\n") && whole.starts_with(&damaged);
            let is_lost = |key: &Key| !inherited.attempts.contains_key(key);
            let proves = unacknowledged.keys().any(is_lost) && !inherited.incarnations.is_empty();
            assert!(is_earlier || !proves, "{damage:?}");
        }
    }
}
