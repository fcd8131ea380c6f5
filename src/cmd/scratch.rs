//! The folder that `demo` and `drill` work in: their own, whatever the operator has configured.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::exit::{Exit, Failure};

/// A folder with a configuration and a store. A temporary one is deleted with this value.
pub(super) struct Folder {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl Folder {
    /// A new folder among the system's temporary files.
    pub(super) fn temporary() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("hooklatch-").tempdir();
        let folder = folder.map_err(|error| failed(&std::env::temp_dir(), &error))?;
        Ok(Folder { path: folder.path().to_owned(), temporary: Some(folder) })
    }

    /// The folder at `path`, which stays: made where there is none, refused where anything is in it.
    pub(super) fn empty_at(path: &Path) -> Result<Self, Failure> {
        let opened = || {
            fs::create_dir_all(path)?;
            let path = path.canonicalize()?;
            let empty = fs::read_dir(&path)?.next().is_none();
            Ok((path, empty))
        };
        match opened().map_err(|error| failed(path, &error))? {
            (path, true) => Ok(Folder { path, temporary: None }),
            (path, false) => {
                let message = format!("{} is not empty", path.display());
                Err(Failure::new(Exit::Usage, message).help("name a folder that is not there yet"))
            }
        }
    }

    /// Where it is.
    pub(super) fn root(&self) -> &Path {
        &self.path
    }

    /// The file called `name` in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that only its owner may read, or run where it is a `program`. Folders on its way
    /// are made.
    pub(super) fn write(&self, name: &str, text: &str, program: bool) -> Result<(), Failure> {
        let path = self.path(name);
        let written = || {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&path, text)?;
            let mode = if program { 0o700 } else { 0o600 };
            fs::set_permissions(&path, Permissions::from_mode(mode))
        };
        written().map_err(|error| failed(&path, &error))
    }

    /// It stays, with all that is in it.
    pub(super) fn keep(&mut self) {
        if let Some(folder) = self.temporary.take() {
            self.path = folder.keep();
        }
    }

    /// Whether it stays.
    pub(super) fn stays(&self) -> bool {
        self.temporary.is_none()
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("failed to write {}: {error}", path.display()))
}
