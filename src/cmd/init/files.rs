//! The files that `init` makes. Must stay true: it makes new files only, and either all of them remain or
//! none.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::process::geteuid;

use crate::cmd::owner;
use crate::exit::{Exit, Failure};

/// The files made so far. Dropping it removes them, unless [`Made::keep`] was called.
#[derive(Default)]
pub(crate) struct Made {
    files: Vec<PathBuf>,
    secrets: Vec<Secret>,
}

/// A secret's file and folder by their descriptors: once the folder belongs to another user, that user
/// can exchange the files behind the names.
struct Secret {
    path: PathBuf,
    file: File,
    folder: File,
    /// Whether `init` made the folder.
    is_new: bool,
}

impl Made {
    /// Makes a new file with this text and mode, and flushes it to disk. Fails if the file exists.
    pub(crate) fn file(&mut self, path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
        self.folder(path.parent(), 0o755)?;
        let options = OpenOptions::new().write(true).create_new(true).mode(mode).to_owned();
        let mut file = options.open(path).map_err(|error| failed(path, &error))?;
        self.files.push(path.to_owned());
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| failed(path, &error))
    }

    /// Makes a new file for a secret, readable by its owner only. The parent of its folder must exist.
    pub(crate) fn secret(&mut self, path: &Path, text: &str) -> Result<(), Failure> {
        let made = (|| {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(ErrorKind::InvalidInput.into());
            };
            let is_new = match DirBuilder::new().mode(0o700).create(parent) {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error),
            };
            let follow_none = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
            let folder = OpenOptions::new().read(true).custom_flags(follow_none).open(parent)?;
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let mut file = File::from(openat(&folder, name, new, Mode::RUSR | Mode::WUSR)?);
            self.files.push(path.to_owned());
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            self.secrets.push(Secret { path: path.to_owned(), file, folder, is_new });
            written
        })();
        made.map_err(|error| failed(path, &error))
    }

    /// If run as root, gives the secrets, and a folder that `init` made, to the owner of the store: only the
    /// receiver must be able to read them. In another user's folder a file stays root's.
    pub(crate) fn give(&self, store: &Path) -> Result<(), Failure> {
        if self.secrets.is_empty() || !geteuid().is_root() {
            return Ok(());
        }
        let Some((uid, gid)) = owner::of(store)? else { return Ok(()) };
        let (uid, gid) = (uid.as_raw(), gid.as_raw());
        for Secret { path, file, folder, is_new } in &self.secrets {
            let given = (|| {
                if *is_new {
                    fchown(folder, Some(uid), Some(gid))?;
                }
                match folder.metadata()?.uid() == uid {
                    true => fchown(file, Some(uid), Some(gid)),
                    false => Ok(()),
                }
            })();
            given.map_err(|error| failed(path, &error))?;
        }
        Ok(())
    }

    /// Makes a folder if it does not exist. An empty folder that a failure leaves behind does no harm.
    pub(crate) fn folder(&mut self, path: Option<&Path>, mode: u32) -> Result<(), Failure> {
        let Some(path) = path.filter(|path| !path.as_os_str().is_empty() && !path.exists()) else {
            return Ok(());
        };
        let made = DirBuilder::new().recursive(true).mode(mode).create(path);
        made.map_err(|error| failed(path, &error))
    }

    /// Keeps all files and returns them in the order in which they were made.
    pub(crate) fn keep(mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.files)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.files.drain(..).rev() {
            // An error here is ignored: the failure that led here is reported.
            let secret = self.secrets.iter().find(|secret| secret.path == path);
            let _ = match (secret, path.file_name()) {
                (Some(secret), Some(name)) => {
                    unlinkat(&secret.folder, name, AtFlags::empty()).map_err(Into::into)
                }
                _ => fs::remove_file(path),
            };
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Exit::Io.failure(format!("failed to make {}: {error}", path.display()));
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            failure.help("run it as root, or choose another folder: --dir DIR")
        }
        _ => failure,
    }
}
