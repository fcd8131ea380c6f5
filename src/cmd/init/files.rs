//! The files that `init` makes: new ones only, and all or none.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// What was made so far; dropped before [`Made::keep`], it is taken away again.
#[derive(Default)]
pub(super) struct Made(Vec<PathBuf>);

impl Made {
    /// Makes a file that is not there, with this text and mode, and flushes it to disk.
    pub(super) fn file(&mut self, path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
        self.folder(path.parent(), 0o755)?;
        let options = OpenOptions::new().write(true).create_new(true).mode(mode).to_owned();
        let mut file = options.open(path).map_err(|error| failed(path, &error))?;
        self.0.push(path.to_owned());
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| failed(path, &error))
    }

    /// Makes a folder where there is none. One that is left empty by a failure harms nobody.
    pub(super) fn folder(&mut self, path: Option<&Path>, mode: u32) -> Result<(), Failure> {
        let Some(path) = path.filter(|path| !path.as_os_str().is_empty() && !path.exists()) else {
            return Ok(());
        };
        let made = DirBuilder::new().recursive(true).mode(mode).create(path);
        made.map_err(|error| failed(path, &error))
    }

    /// All of it stays; the files in the order of their making.
    pub(super) fn keep(mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.drain(..).rev() {
            // Nothing better can be done: the failure that led here is told.
            let _ = fs::remove_file(path);
        }
    }
}

/// As root, gives the secret and its folder to whom the store belongs, or is going to: the receiver
/// must read it, and nobody else may.
pub(super) fn give(secret: &Path, store: &Path) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let near = fs::metadata(store).or_else(|_| fs::metadata(store.parent().unwrap_or(store)));
    let Ok(owner) = near else { return Ok(()) };
    for path in [Some(secret), secret.parent()].into_iter().flatten() {
        std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid()))
            .map_err(|error| failed(path, &error))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::new(Exit::Io, format!("failed to make {}: {error}", path.display()));
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            failure.help("run it as root, or choose another folder: --dir DIR")
        }
        _ => failure,
    }
}
