//! Reads a file that the command line names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::exit::{Exit, Failure};
use crate::limits::Unit;

/// The whole file, which may have at most `most` bytes; `-` is standard input.
pub(super) fn read(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => io::stdin().lock().take(most + 1).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| unread(file, &error))?;
    if bytes.len() as u64 > most {
        let message = format!("{} is longer than {}", file.display(), Unit::Bytes.show(most));
        return Err(Exit::Usage.failure(message));
    }
    Ok(bytes)
}

/// Like [`read`], for a text.
pub(super) fn text(file: &Path, most: u64) -> Result<String, Failure> {
    let text = String::from_utf8(read(file, most)?);
    text.map_err(|error| Exit::Usage.failure(format!("{}: {error}", file.display())))
}

/// The failure to read `path`.
pub(super) fn unread(path: &Path, error: &io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Io };
    exit.failure(format!("failed to read {}: {error}", path.display()))
}
