//! Reads the files a configuration is made of: bounded, regular files only, UTF-8.
//!
//! A pipe or a device would block the start or never end, so it is refused before it is opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::document::{Problem, Problems};
use crate::limits::{Limits, Unit};
use crate::model::{DEFAULT_CONFIG, shell_word};

/// What is wrong where there is no main file.
pub const NO_CONFIGURATION: &str = "there is no configuration here";

/// How `init` calls the main file, in whatever folder.
const USUAL_NAME: &str = "hooklatch.toml";

/// One file as it was read.
pub(super) struct Text {
    /// Its path, as messages name it.
    pub(super) name: String,
    pub(super) text: String,
}

/// The folder of the configuration file.
pub(super) struct Folder {
    /// As the operator wrote it, for messages.
    pub(super) written: PathBuf,
    /// What relative paths in the configuration are relative to.
    pub(super) absolute: PathBuf,
}

/// The files of `conf.d` or `providers`.
#[derive(Default)]
pub(super) struct Texts {
    /// Those that could be read, by name.
    pub(super) texts: Vec<Text>,
    /// Whether that is all of them; otherwise a name that seems missing may not be.
    pub(super) complete: bool,
}

/// Where the configuration file lies.
pub(super) fn folder_of(path: &Path, problems: &Problems) -> Option<Folder> {
    let written = path.parent().unwrap_or(Path::new("")).to_owned();
    // An empty path means the current folder, which `absolute` alone would refuse.
    match std::path::absolute(Path::new(".").join(&written)) {
        Ok(absolute) => Some(Folder { written, absolute }),
        Err(error) => {
            let message = format!("failed to find the current folder: {}", reason(&error));
            problems.file(&path.display().to_string(), message, None);
            None
        }
    }
}

/// Reads one file of at most `limit_bytes`; what is wrong with it goes to `problems`.
pub(super) fn read(path: &Path, limit_bytes: u64, problems: &Problems) -> Option<Text> {
    let name = path.display().to_string();
    let bytes = match read_regular(path, limit_bytes) {
        Ok(bytes) => bytes,
        Err(error) => {
            let help = match error {
                ReadError::TooLarge(_) => Some(
                    "split it into files in conf.d, or raise limits.config_bytes for those"
                        .to_owned(),
                ),
                _ => None,
            };
            problems.file(&name, error.to_string(), help);
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(Text { name, text }),
        Err(error) => {
            problems.push(not_utf8(name, error.as_bytes(), error.utf8_error().valid_up_to()));
            None
        }
    }
}

/// Reads the main file. Without one there is no configuration.
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
        problems.file(&name, NO_CONFIGURATION, Some(help));
        return None;
    }
    read(path, Limits::default().config_bytes, problems)
}

/// Reads every `*.toml` of a folder in the order of their names, hidden ones left out (editors keep
/// their copies so). No folder is no problem.
pub(super) fn read_folder(folder: &Path, limits: &Limits, problems: &Problems) -> Texts {
    let mut paths = match list(folder) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Texts { texts: Vec::new(), complete: true };
        }
        Err(error) => {
            let message = format!("failed to list the folder: {}", reason(&error));
            problems.file(&folder.display().to_string(), message, None);
            return Texts::default();
        }
    };
    paths.sort();
    let most = usize::try_from(limits.config_files_count).unwrap_or(usize::MAX);
    if paths.len() > most {
        let message = format!("has {} files; {most} is the limit", paths.len());
        let help = Some("raise limits.config_files_count".to_owned());
        problems.file(&folder.display().to_string(), message, help);
        return Texts::default();
    }
    let texts: Vec<_> =
        paths.iter().filter_map(|path| read(path, limits.config_bytes, problems)).collect();
    Texts { complete: texts.len() == paths.len(), texts }
}

fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The system says no.
    #[error("failed to read the file: {}", reason(.0))]
    Io(#[from] io::Error),
    /// A folder, pipe, socket or device.
    #[error("failed to read the file: it is {0}")]
    Kind(&'static str),
    /// More bytes than its limit.
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
        return Err(ReadError::Kind("no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(ReadError::TooLarge(limit_bytes));
    }
    Ok(bytes)
}

/// What the system says, without the number that Rust adds.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

fn not_utf8(file: String, bytes: &[u8], good: usize) -> Problem {
    let before = String::from_utf8_lossy(bytes.get(..good).unwrap_or_default());
    let byte = bytes.get(good).copied().unwrap_or_default();
    Problem {
        file,
        line: before.matches('\n').count() + 1,
        column: before.chars().rev().take_while(|&c| c != '\n').count() + 1,
        key: String::new(),
        message: format!("the file is not UTF-8: byte 0x{byte:02x}"),
        help: Some("save it as UTF-8, which TOML demands".to_owned()),
    }
}
