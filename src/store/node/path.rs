//! The places of the store's files.

use std::path::{Path, PathBuf};

/// Ends the name of the file that keeps the store's mark.
pub(crate) const MARK: &str = ".mark";

/// The file next to the database whose name ends with `suffix`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The database's own path, with symbolic links resolved: log, lock and the files of a restore are next to the
/// database and not next to a link to it (R1, S2). Resolves the path of an absent file too: a restore that was
/// killed may have moved the database.
pub(crate) fn real(path: &Path) -> PathBuf {
    // The kernel follows 40 links at most (path_resolution(7)).
    const LINKS: usize = 40;
    let mut real = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&real) else { break };
        real = directory(&real).join(target);
    }
    std::fs::canonicalize(&real).unwrap_or(real)
}

/// The directory of the database.
pub(crate) fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Warns of a network file system: locks and flushes often do not hold there.
pub(crate) fn warn_of_network(path: &Path) {
    // Magic numbers of linux/magic.h: NFS, SMB, CIFS, SMB2, 9p, AFS.
    const REMOTE: [u32; 6] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997, 0x5346_414F];
    let Ok(stat) = rustix::fs::statfs(directory(path)) else { return };
    if REMOTE.contains(&(stat.f_type as u32)) {
        tracing::warn!(
            path = %path.display(),
            "the store lies on a network file system, where locks and flushes often do not hold; put it on a local disk"
        );
    }
}
