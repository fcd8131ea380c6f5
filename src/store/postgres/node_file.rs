//! The file that makes a state folder a node's: a random id, made once, the count of its last session, the sum of the
//! marks of all nodes, its own mark, and the runners that may have attempts of the node in this boot. A failover that
//! loses commits takes none of it away.
//!
//! It is one line with a sum, `ID COUNT STORE MARKS OWN_MARK BOOT RUNNER…`: words with a space between them. BOOT is
//! empty if it could not be read.
//!
//! A file that cannot be read is never replaced. With a new id, the attempts of the old one would be left to a node
//! that does not come back.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::model::{RunnerName, summed};
use crate::random;
use crate::store::node::durable;

/// More than any file that was written here has: the names of 30,000 runners.
const MOST_BYTES: u64 = 1 << 20;

/// The node of a state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFile {
    path: PathBuf,
    pub id: Uuid,
    /// The count of the last session that the folder knows.
    pub count: i64,
    /// The store that the node was registered in last.
    pub store: Uuid,
    /// The sum of the marks of all its nodes, committed before it was written here.
    pub mark: i64,
    /// Its own mark, of the same row.
    pub own_mark: i64,
    boot: String,
    /// The runners that handlers or running attempts of the node have named since the machine's boot. The end of that
    /// boot proves that they are dead (R6).
    pub runners: BTreeSet<RunnerName>,
    /// This process has made it.
    pub is_new: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeFileError {
    #[error("failed to {action} {}: {error}", .path.display())]
    Io { action: &'static str, path: PathBuf, error: io::Error },
    #[error(
        "{} is damaged, and with it the node's id; put back a copy, or declare the node lost (`hooklatch node lost NAME`) and delete the file: the folder is then another node's",
        .0.display()
    )]
    Damaged(PathBuf),
}

impl NodeFile {
    /// Reads the file beside the store, `STORE.node`, and makes it where there is none. The caller holds the store's
    /// lock, so no other process does.
    pub fn open(store: &Path) -> Result<Self, NodeFileError> {
        Self::open_in(store, &this_boot())
    }

    fn open_in(store: &Path, boot: &str) -> Result<Self, NodeFileError> {
        let path = store.with_added_extension("node");
        let mut text = String::new();
        let read = File::open(&path);
        match read.and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text)) {
            Ok(_) => parse(&text, &path, boot).ok_or(NodeFileError::Damaged(path)),
            Err(error) => match error.kind() {
                ErrorKind::InvalidData => Err(NodeFileError::Damaged(path)),
                ErrorKind::NotFound => create(path, boot),
                _ => Err(NodeFileError::Io { action: "read", path, error }),
            },
        }
    }

    /// Where the node keeps the events that it has accepted last.
    pub(super) fn accepted(&self) -> PathBuf {
        self.path.with_extension("accepted")
    }

    /// Replaces the file. After a power cut it is this one or the one before.
    pub(super) fn save(&self) -> Result<(), NodeFileError> {
        let (id, count) = (self.id.to_string(), self.count.to_string());
        let (mark, own_mark) = (self.mark.to_string(), self.own_mark.to_string());
        let words = [id, count, self.store.to_string(), mark, own_mark, self.boot.clone()];
        let words = words.into_iter().chain(self.runners.iter().map(RunnerName::to_string));
        let line = summed::line(&words.collect::<Vec<_>>().join(" "));
        durable::replace(&self.path, line.as_bytes()).map_err(|error| {
            let path = self.path.clone();
            NodeFileError::Io { action: "write", path, error }
        })
    }
}

fn create(path: PathBuf, boot: &str) -> Result<NodeFile, NodeFileError> {
    let id = Uuid::from_bytes(random::id());
    let (boot, runners) = (boot.to_owned(), BTreeSet::new());
    let (store, is_new) = (Uuid::nil(), true);
    let made = NodeFile { path, id, count: 0, store, mark: 0, own_mark: 0, boot, runners, is_new };
    made.save()?;
    Ok(made)
}

fn parse(text: &str, path: &Path, boot: &str) -> Option<NodeFile> {
    let mut words = summed::text(text.strip_suffix('\n')?)?.split(' ');
    let (id, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let store = words.next()?.parse().ok()?;
    let (mark, own_mark) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let written = words.next()?;
    let may_be_same_boot = written == boot || written.is_empty() || boot.is_empty();
    let mut runners = words.map(|name| name.parse().ok()).collect::<Option<BTreeSet<_>>>()?;
    runners.retain(|_| may_be_same_boot);
    let (path, boot) = (path.to_owned(), boot.to_owned());
    Some(NodeFile { path, id, count, store, mark, own_mark, boot, runners, is_new: false })
}

/// The id of the machine's boot (proc(5)). Where it cannot be read, runners of all boots count.
fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runner::tests::damage::damages;

    #[test]
    fn an_id_is_made_once_and_outlives_a_write_that_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("hooklatch.db");
        let mut made = NodeFile::open(&store).unwrap();
        assert!(made.is_new);
        made.is_new = false;
        assert_eq!(NodeFile::open(&store).unwrap(), made);
        (made.count, made.mark, made.own_mark) = (7, 8, 5);
        made.runners = BTreeSet::from(["default".parse().unwrap(), "other".parse().unwrap()]);
        made.save().unwrap();
        // A process that was killed before it renamed the file.
        fs::write(folder.path().join("hooklatch.db.node.new"), "half").unwrap();
        assert_eq!(NodeFile::open(&store).unwrap(), made);
        let booted = NodeFile::open_in(&store, "another").unwrap();
        let found = (booted.id, booted.count, booted.mark, booted.own_mark, booted.runners);
        assert_eq!(found, (made.id, 7, 8, 5, BTreeSet::new()));
        let unknown = NodeFile::open_in(&store, "").unwrap();
        assert_eq!(unknown.runners, made.runners);
        unknown.save().unwrap();
        assert_eq!(NodeFile::open(&store).unwrap().runners, made.runners);
        let other = NodeFile::open(&folder.path().join("other.db")).unwrap();
        assert_ne!(other.id, made.id);
    }

    #[test]
    fn a_damaged_file_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("hooklatch.db");
        let path = folder.path().join("hooklatch.db.node");
        let id = Uuid::from_bytes(random::id());
        let damaged = [
            "",
            "ID 3 S 4 2 b",
            "ID 3 S 4 2 b\n",
            "ID\n",
            "ID x S 4 2 b\n",
            "ID 3 S 4 b\n",
            "ID 3 S 4 2\n",
            "ID 3 S 4 2 b default  x\n",
        ];
        let damaged =
            damaged.map(|text| text.replace("ID", &id.to_string()).replace('S', &id.to_string()));
        // As they are, and with a sum.
        let summed = damaged.iter().skip(3).map(|text| summed::line(text.trim_end_matches('\n')));
        let damaged: Vec<String> = summed.chain(damaged.clone()).collect();
        let damaged = damaged.into_iter().map(String::into_bytes);
        for bytes in damaged.chain([vec![0; 40], vec![0xff; 40], vec![b'a'; 4096]]) {
            fs::write(&path, &bytes).unwrap();
            let error = NodeFile::open(&store).unwrap_err();
            assert!(matches!(error, NodeFileError::Damaged(_)), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn no_damage_makes_another_node_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("hooklatch.db");
        let mut made = NodeFile::open(&store).unwrap();
        (made.count, made.mark, made.own_mark) = (17, 48, 5);
        made.runners = BTreeSet::from(["default".parse().unwrap(), "other".parse().unwrap()]);
        made.save().unwrap();
        let whole = fs::read(&made.path).unwrap();
        for damage in damages(300) {
            let damaged = damage.of(&whole);
            fs::write(&made.path, &damaged).unwrap();
            let opened = NodeFile::open(&store);
            assert!(matches!(opened, Err(NodeFileError::Damaged(_))), "{damage:?}: {opened:?}");
            assert_eq!(fs::read(&made.path).unwrap(), damaged, "{damage:?}");
        }
    }

    /// A folder in which no file can be made: a file in its place, as root writes into any folder.
    #[test]
    fn a_folder_that_takes_no_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("missing/hooklatch.db");
        let error = NodeFile::open(&store).unwrap_err().to_string();
        assert!(error.starts_with("failed to write") && error.contains(".node:"), "{error}");
        fs::write(folder.path().join("missing"), "").unwrap();
        let error = NodeFile::open(&store).unwrap_err().to_string();
        assert!(error.starts_with("failed to read"), "{error}");
    }
}
