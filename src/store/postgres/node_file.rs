//! The file that makes a state folder a node's: a random id, made once, and the count of its last session.
//!
//! A file that cannot be read is never replaced. With a new id, the attempts of the old one would be left to a node
//! that does not come back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::random;
use crate::store::node::durable::sync_folder;

/// More than any file that was written here has.
const MOST_BYTES: u64 = 128;

/// The node of a state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFile {
    path: PathBuf,
    pub id: Uuid,
    /// Of the last session that the folder knows.
    pub count: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeFileError {
    #[error("failed to {action} {}: {error}", .path.display())]
    Io { action: &'static str, path: PathBuf, error: io::Error },
    #[error(
        "{} does not have the node's id as it was written; put back a copy, or declare the node lost (`hooklatch node lost NAME`) and delete the file: the folder is then another node's",
        .0.display()
    )]
    Damaged(PathBuf),
}

impl NodeFile {
    /// Reads the file beside the store, `STORE.node`, and makes it where there is none. The caller holds the store's
    /// lock, so no other process does.
    pub fn open(store: &Path) -> Result<Self, NodeFileError> {
        let path = store.with_added_extension("node");
        let mut text = String::new();
        let read = File::open(&path);
        match read.and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text)) {
            Ok(_) => parse(&text, &path).ok_or(NodeFileError::Damaged(path)),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(NodeFileError::Damaged(path))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let made = NodeFile { path, id: Uuid::from_bytes(random::id()), count: 0 };
                made.keep(0)?;
                Ok(made)
            }
            Err(error) => Err(NodeFileError::Io { action: "read", path, error }),
        }
    }

    /// Writes the count of a session. After a power cut the file has this count or the one before.
    pub(super) fn keep(&self, count: i64) -> Result<(), NodeFileError> {
        let new = self.path.with_added_extension("new");
        let written = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(format!("{} {count}\n", self.id).as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            sync_folder(&self.path)
        };
        written().map_err(|error| {
            let path = self.path.clone();
            NodeFileError::Io { action: "write", path, error }
        })
    }
}

fn parse(text: &str, path: &Path) -> Option<NodeFile> {
    let (id, count) = text.strip_suffix('\n')?.split_once(' ')?;
    Some(NodeFile { path: path.to_owned(), id: id.parse().ok()?, count: count.parse().ok()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_id_is_made_once_and_outlives_a_write_that_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("hooklatch.db");
        let made = NodeFile::open(&store).unwrap();
        assert_eq!(NodeFile::open(&store).unwrap(), made);
        made.keep(7).unwrap();
        // A process that was killed before it renamed the file.
        fs::write(folder.path().join("hooklatch.db.node.new"), "half").unwrap();
        let read = NodeFile::open(&store).unwrap();
        assert_eq!((read.id, read.count), (made.id, 7));
        read.keep(8).unwrap();
        assert_eq!(NodeFile::open(&store).unwrap().count, 8);
        let other = NodeFile::open(&folder.path().join("other.db")).unwrap();
        assert_ne!(other.id, made.id);
    }

    #[test]
    fn a_damaged_file_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("hooklatch.db");
        let path = folder.path().join("hooklatch.db.node");
        let id = Uuid::from_bytes(random::id());
        let damaged = [String::new(), format!("{id} 3"), format!("{id}\n"), format!("{id} x\n")];
        let damaged = damaged.into_iter().map(String::into_bytes);
        for bytes in damaged.chain([vec![0; 40], vec![0xff; 40], vec![b'a'; 4096]]) {
            fs::write(&path, &bytes).unwrap();
            let error = NodeFile::open(&store).unwrap_err();
            assert!(matches!(error, NodeFileError::Damaged(_)), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
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
