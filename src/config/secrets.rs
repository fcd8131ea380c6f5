//! Secrets by reference: `env:NAME`, `file:PATH`, `credential:NAME`.
//!
//! A secret's text exists only between [`Reference::read`] and the key or variable made of it, and
//! no message ever has it, nor anything that might be one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use zeroize::Zeroizing;

use crate::document::{Section, Value};
use crate::limits::Unit;

use super::environment::Environment;
use super::files::{ReadError, read_regular, reason};
use super::read::{is_variable, normal};

/// systemd's folder of a unit's credentials (`LoadCredential=`), as its environment names it.
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// What systemd puts before the name of each file of a whole folder that is loaded: the units' line
/// `LoadCredential=secrets:/etc/hooklatch/secrets` makes `secrets_stripe` of its file `stripe`.
const OF_FOLDER: &str = "secrets_";

/// What is shown in place of a secret.
pub(super) const STARS: &str = "***";

/// Where a secret is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    written: String,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Variable(String),
    File(PathBuf),
    Credential(String),
}

/// Where it is, as written, and stars in its place.
impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut secret = serializer.serialize_struct("Reference", 2)?;
        secret.serialize_field("reference", &self.written)?;
        secret.serialize_field("value", STARS)?;
        secret.end()
    }
}

/// A text that is no reference. The text is not told: it may be the secret itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// None of the three forms.
    #[error("expected a reference to a secret, not the secret itself (it is not shown here)")]
    NotOne,
    /// `env:` and no variable's name.
    #[error("what follows 'env:' is not a variable name")]
    BadVariable,
    /// `file:` and nothing.
    #[error("what follows 'file:' is not a path")]
    BadPath,
    /// `credential:` and no file's name.
    #[error("what follows 'credential:' is not a credential name")]
    BadCredential,
}

/// Why a secret cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// No such variable.
    #[error("'{0}': the environment has no such variable")]
    NoVariable(String),
    /// Not in a unit with credentials.
    #[error("'{0}': {CREDENTIALS} is not set")]
    NoCredentials(String),
    /// Its file cannot be read.
    #[error("'{reference}': failed to read {path}: {reason}")]
    Unreadable {
        /// As it is written.
        reference: String,
        /// The file that was meant.
        path: PathBuf,
        /// What the system says.
        reason: String,
        help: &'static str,
    },
    /// Nothing there but perhaps a newline.
    #[error("'{0}': the secret is empty")]
    Empty(String),
    /// Over `limits.secret_bytes`.
    #[error("'{0}': the secret is larger than {limit}", limit = Unit::Bytes.show(*.1))]
    TooLarge(String, u64),
    /// Binary.
    #[error("'{0}': the secret is not UTF-8")]
    NotText(String),
}

impl Reference {
    /// Reads the three forms; a relative path is meant from `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Reference, ReferenceError> {
        let (kind, rest) = text.split_once(':').ok_or(ReferenceError::NotOne)?;
        let place = match kind {
            "env" if is_variable(rest) => Place::Variable(rest.to_owned()),
            "env" => return Err(ReferenceError::BadVariable),
            "file" if !rest.is_empty() && !rest.contains('\0') => {
                Place::File(normal(&folder.join(rest)))
            }
            "file" => return Err(ReferenceError::BadPath),
            "credential" if is_file_name(rest) => Place::Credential(rest.to_owned()),
            "credential" => return Err(ReferenceError::BadCredential),
            _ => return Err(ReferenceError::NotOne),
        };
        Ok(Reference { written: text.to_owned(), place })
    }

    /// The file it names, for a look at its permissions.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => Some(path),
            Place::Variable(_) | Place::Credential(_) => None,
        }
    }

    /// The secret without one trailing newline: 1 to `limit_bytes` bytes of UTF-8.
    pub fn read(
        &self,
        environment: &Environment,
        limit_bytes: u64,
    ) -> Result<Zeroizing<String>, SecretError> {
        let written = || self.written.clone();
        let bytes = Zeroizing::new(match &self.place {
            Place::Variable(name) => match environment.get(name) {
                Some(value) => value.as_encoded_bytes().to_vec(),
                None => return Err(SecretError::NoVariable(written())),
            },
            Place::File(path) => self.read_file(path, limit_bytes)?,
            Place::Credential(name) => match environment.get(CREDENTIALS) {
                Some(folder) => self.read_credential(Path::new(folder), name, limit_bytes)?,
                None => return Err(SecretError::NoCredentials(written())),
            },
        });
        let text = std::str::from_utf8(&bytes).map_err(|_| SecretError::NotText(written()))?;
        let text = text.strip_suffix('\n').map_or(text, |t| t.strip_suffix('\r').unwrap_or(t));
        match text.len() as u64 {
            0 => Err(SecretError::Empty(written())),
            length if length > limit_bytes => Err(SecretError::TooLarge(written(), limit_bytes)),
            _ => Ok(Zeroizing::new(text.to_owned())),
        }
    }

    /// The credential of that name, or the file of that name in the folder that is loaded as a whole.
    fn read_credential(
        &self,
        folder: &Path,
        name: &str,
        limit_bytes: u64,
    ) -> Result<Vec<u8>, SecretError> {
        let own = folder.join(name);
        let path = match own.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder.join(format!("{OF_FOLDER}{name}"))
            }
            _ => own,
        };
        self.read_file(&path, limit_bytes).map_err(|error| match error {
            SecretError::Unreadable { reference, path, reason, .. } if !path.exists() => {
                let help = "put it into the folder that LoadCredential= of the unit names, /etc/hooklatch/secrets (a command's: /etc/hooklatch/runner-secrets), and restart the unit";
                SecretError::Unreadable { reference, path, reason, help }
            }
            error => error,
        })
    }

    /// The file's bytes: up to two more than the limit, for the newline.
    fn read_file(&self, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, SecretError> {
        let unreadable = |reason: String, help| SecretError::Unreadable {
            reference: self.written.clone(),
            path: path.to_owned(),
            reason,
            help,
        };
        read_regular(path, limit_bytes + 2).map_err(|error| match error {
            ReadError::TooLarge(_) => SecretError::TooLarge(self.written.clone(), limit_bytes),
            ReadError::Kind(kind) => unreadable(format!("it is {kind}"), "name a file"),
            ReadError::Io(error) => unreadable(reason(&error), mend(&error)),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.written)
    }
}

impl ReferenceError {
    /// What to write instead.
    pub fn help(&self) -> String {
        "put the secret into a file that only hooklatch can read and write \"file:/path\", or write \"credential:NAME\" or \"env:NAME\"".to_owned()
    }
}

impl SecretError {
    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            SecretError::NoVariable(_) => "set it for the process that runs hooklatch",
            SecretError::NoCredentials(_) => {
                "systemd sets it for a unit with LoadCredential=NAME:/path; elsewhere use \"file:/path\""
            }
            SecretError::Unreadable { help, .. } => help,
            SecretError::Empty(_) => "put the provider's signing secret into it",
            SecretError::TooLarge(..) => {
                "is this the right file? limits.secret_bytes can be raised"
            }
            SecretError::NotText(_) => "write the secret as the provider shows it",
        };
        Some(help.to_owned())
    }
}

/// Parses references. A text that is not one, or that occurs twice, is a problem.
pub(super) fn read_references(
    section: &Section<'_>,
    texts: Vec<Value<String>>,
    folder: &Path,
) -> Vec<Value<Reference>> {
    let mut references: Vec<Value<Reference>> = Vec::new();
    for text in texts {
        match Reference::parse(&text.value, folder) {
            Ok(reference) if references.iter().any(|other| other.value == reference) => {
                let message = format!("'{reference}' is there twice");
                section.problems().push(text.at.problem(message, None));
            }
            Ok(reference) => references.push(Value { value: reference, at: text.at }),
            Err(error) => {
                section.problems().push(text.at.problem(error.to_string(), Some(error.help())));
            }
        }
    }
    references
}

fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "create it, or correct the path",
        io::ErrorKind::PermissionDenied => {
            "make it readable by the user that hooklatch runs as, and by nobody else"
        }
        _ => "see what is wrong with the file or its disk",
    }
}

fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}
