//! Makes the file that a command reads as its standard input: the event's body.
//!
//! Must stay true: every attempt has a separate file, positioned at its beginning. A shared file has one
//! offset, and the second command would read nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// The folders for bodies that are too large for memory. Files in the first survive a reboot (Filesystem
/// Hierarchy Standard 3.0, section 5.15), so it is on a disk; `/tmp` is often in memory.
const LARGE: [&str; 2] = ["/var/tmp", "/tmp"];

/// A file that holds `body`, positioned at its beginning: up to `memory_bytes` in memory, which no process can
/// change, above that an unlinked file of this user.
pub(super) fn holding(body: &[u8], memory_bytes: usize) -> io::Result<File> {
    if body.len() > memory_bytes {
        return filled(unlinked()?, body);
    }
    let file = filled(memory()?, body)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

fn filled(file: File, body: &[u8]) -> io::Result<File> {
    // Does not move the file's position.
    file.write_all_at(body, 0)?;
    Ok(file)
}

/// A new file in memory.
pub(super) fn memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("hooklatch-body", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not have the flag.
        Err(Errno::INVAL) => Ok(memfd_create("hooklatch-body", flags)?.into()),
        made => Ok(made?.into()),
    }
}

fn unlinked() -> io::Result<File> {
    let [first, second] = LARGE.map(Path::new);
    tempfile::tempfile_in(first).or_else(|_| tempfile::tempfile_in(second))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_small_body_cannot_be_changed_and_a_large_one_has_no_name() {
        let mut small = holding(b"body", 4).unwrap();
        assert_eq!(small.write(b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(small.set_len(0).is_err() && small.set_len(9).is_err());
        let mut large = holding(b"body!", 4).unwrap();
        assert_eq!(rustix::fs::fstat(&large).unwrap().st_nlink, 0);
        for (file, body) in [(&mut small, "body"), (&mut large, "body!")] {
            let mut read = String::new();
            file.read_to_string(&mut read).unwrap();
            assert_eq!(read, body);
        }
    }
}
