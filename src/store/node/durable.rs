//! Files that are made whole or not at all: copied, flushed, and given their names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, ioctl_ficlone, renameat_with};
use rustix::io::Errno;

use super::path::{beside, directory};

/// The piece in which files are compared.
const PIECE_BYTES: usize = 1 << 20;

/// Makes `to`, for its owner only, a copy of all of `from`: sharing its blocks where the file system can,
/// in the kernel otherwise, up to `most` bytes. Flushed when this returns; a failure leaves no `to`.
///
/// # Errors
/// `StorageFull` if it has more bytes than that; any error of the system.
pub(crate) fn copy(from: &mut File, to: &Path, most: u64) -> io::Result<u64> {
    let copied = (|| {
        let mut made =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(to)?;
        from.rewind()?;
        let bytes = match ioctl_ficlone(&made, &*from) {
            Ok(()) => made.metadata()?.len(),
            Err(_) if from.metadata()?.len() > most => return Err(ErrorKind::StorageFull.into()),
            Err(_) => io::copy(from, &mut made)?,
        };
        made.sync_all()?;
        Ok(bytes)
    })();
    if copied.is_err() {
        // What made it fail says more than that it cannot be removed either.
        let _ = remove(to);
    }
    copied
}

/// Renames `from` to `to`, where nothing has that name, and flushes the folder.
///
/// # Errors
/// `AlreadyExists` if a file has that name; any error of the system.
pub fn give_name(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // A file system without it, as NFS: a second name is refused there too where it is taken.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_name(from, to)?,
        Err(error) => return Err(error.into()),
    }
    sync_folder(to)
}

/// Moves the name in two steps, a link and a removal. A file that has both names already is one whose move was killed
/// between them.
fn link_name(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && is_same(from, to)? => {}
        linked => linked?,
    }
    fs::remove_file(from)
}

/// Whether both names are the same file's.
pub(crate) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (fs::symlink_metadata(one)?, fs::symlink_metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Whether two files hold the same bytes.
pub(crate) fn is_equal(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let mut one = BufReader::with_capacity(PIECE_BYTES, one);
    let mut other = BufReader::with_capacity(PIECE_BYTES, other);
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let bytes = left.len().min(right.len());
        if bytes == 0 || left[..bytes] != right[..bytes] {
            return Ok(left.len() == right.len() && bytes == 0);
        }
        one.consume(bytes);
        other.consume(bytes);
    }
}

/// Replaces the contents of `path`, which only its owner reads. After a power cut the file has them, or those of before.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path)
}

/// Flushes the folder of `path`, so that the names in it survive a power cut.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

/// Removes a file, which may be gone.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes a database that no process uses, with SQLite's files next to it.
pub(crate) fn remove_database(path: &Path) -> io::Result<()> {
    ["-wal", "-shm", "-journal"].iter().try_for_each(|suffix| remove(&beside(path, suffix)))?;
    remove(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_equal_where_every_byte_is() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let mut bytes = vec![7; 2 * PIECE_BYTES + 3];
        fs::write(&one, &bytes).unwrap();
        fs::write(&other, &bytes).unwrap();
        assert!(is_equal(&one, &other).unwrap());
        bytes[2 * PIECE_BYTES + 2] = 8;
        fs::write(&other, &bytes).unwrap();
        assert!(!is_equal(&one, &other).unwrap());
        fs::write(&other, &bytes[..PIECE_BYTES]).unwrap();
        assert!(!is_equal(&one, &other).unwrap());
        assert!(is_equal(&one, &folder.path().join("none")).is_err());
    }

    #[test]
    fn a_name_given_by_two_steps_can_be_given_again_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        assert_eq!(link_name(&from, &to).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&to).unwrap(), b"old");
        // Killed between the two.
        fs::remove_file(&to).unwrap();
        fs::hard_link(&from, &to).unwrap();
        link_name(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
        assert!(!from.exists());
    }
}
