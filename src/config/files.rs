//! Reads the files a configuration is made of: bounded, regular files only, UTF-8.
//!
//! A pipe or a device would block the start or never end, so it is refused before it is opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::document::{At, Fault, Problem, Problems};
use crate::limits::{CONFIG_BYTES, CONFIG_FILES, Unit};
use crate::model::{DEFAULT_CONFIG, shell_word};

/// The problem if the main file is missing.
pub const NO_CONFIGURATION: &str = "there is no configuration here";

/// The name that `init` gives the main file.
const USUAL_NAME: &str = "hooklatch.toml";

pub(super) struct Text {
    /// Its path, as messages name it.
    pub(super) name: String,
    pub(super) text: String,
}

/// The files of `conf.d` or `providers`.
#[derive(Default)]
pub(super) struct Texts {
    /// The readable ones, sorted by name.
    pub(super) texts: Vec<Text>,
    /// False if a file could not be read: it may have a name that seems to be missing.
    pub(super) complete: bool,
}

/// The folder with the configuration file, where relative paths in it begin.
pub(super) fn absolute(folder: &Path, problems: &Problems) -> Option<PathBuf> {
    // An empty path means the current folder, which `absolute` alone would refuse.
    let found = std::path::absolute(Path::new(".").join(folder));
    let fault = |error| format!("failed to find the current folder: {}", reason(&error));
    let name = folder.display().to_string();
    found.map_err(|error| problems.push(Problem::of_file(name, fault(error)))).ok()
}

/// Reads one file. An error is added to `problems`.
pub(super) fn read(path: &Path, problems: &Problems) -> Option<Text> {
    let name = path.display().to_string();
    let fault = |error: ReadError| match error {
        ReadError::TooLarge(_) => Fault::new(error.to_string(), "split it into files in conf.d"),
        ReadError::Io(_) | ReadError::Kind(_) => error.to_string().into(),
    };
    let bytes = read_regular(path, CONFIG_BYTES);
    let bytes = bytes.map_err(|error| problems.push(Problem::of_file(&name, fault(error)))).ok()?;
    match String::from_utf8(bytes) {
        Ok(text) => Some(Text { name, text }),
        Err(error) => {
            let (good, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let byte = rest.first().copied().unwrap_or_default();
            let at = At::byte(&name, &String::from_utf8_lossy(good), good.len(), "");
            let message = format!("the file is not UTF-8: byte 0x{byte:02x}");
            problems.reject(&at, message, "save it as UTF-8, which TOML demands");
            None
        }
    }
}

/// Reads the main file. A missing one is a problem whose help says how to make it.
pub(super) fn read_main(path: &Path, problems: &Problems) -> Option<Text> {
    let missing = path.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    if missing {
        let name = path.display().to_string();
        let help = match (Path::new(USUAL_NAME).exists(), name == DEFAULT_CONFIG) {
            (true, _) => {
                "./hooklatch.toml is here: export HOOKLATCH_CONFIG=$PWD/hooklatch.toml".to_owned()
            }
            (false, true) => "hooklatch init --source github makes one".to_owned(),
            (false, false) => {
                format!("hooklatch init --source github --config {} makes one", shell_word(&name))
            }
        };
        problems.push(Problem::of_file(name, Fault::new(NO_CONFIGURATION, help)));
        return None;
    }
    read(path, problems)
}

/// Reads every `*.toml` of a folder, sorted by name, except hidden files, which are copies that editors
/// keep. The folder may be missing.
pub(super) fn read_folder(folder: &Path, problems: &Problems) -> Texts {
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths: Vec<PathBuf> = match fs::read_dir(folder).and_then(paths) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Texts { texts: Vec::new(), complete: true };
        }
        Err(error) => {
            let message = format!("failed to list the folder: {}", reason(&error));
            problems.push(Problem::of_file(folder.display().to_string(), message));
            return Texts::default();
        }
    };
    paths.retain(|path| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.extension().is_some_and(|extension| extension == "toml")
    });
    paths.sort();
    if paths.len() > CONFIG_FILES {
        let message = format!("has {} files; {CONFIG_FILES} is the limit", paths.len());
        let fault = Fault::new(message, "join some of them into one");
        problems.push(Problem::of_file(folder.display().to_string(), fault));
        return Texts::default();
    }
    let texts: Vec<_> = paths.iter().filter_map(|path| read(path, problems)).collect();
    Texts { complete: texts.len() == paths.len(), texts }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("failed to read the file: {}", reason(.0))]
    Io(#[from] io::Error),
    /// The file is not a regular file: a folder, pipe, socket or device.
    #[error("failed to read the file: it is {0}")]
    Kind(&'static str),
    #[error("the file is larger than {}", Unit::Bytes.show(*.0))]
    TooLarge(u64),
}

/// All bytes of a regular file of at most `limit_bytes`.
pub(super) fn read_regular(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, ReadError> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(ReadError::Kind("a folder"));
    }
    if !kind.is_file() {
        return Err(ReadError::Kind("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(ReadError::TooLarge(limit_bytes));
    }
    Ok(bytes)
}

/// The system's message for an error, without the number that Rust appends.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
