//! Secrets by reference: `env:NAME`, `file:PATH`, `credential:NAME`.
//!
//! Must stay true: a secret's text exists only between [`Reference::read`] and the key or variable made of
//! it, and no message has it, or a text that may be a secret.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use zeroize::Zeroizing;

use crate::document::{Fault, Section, Value};
use crate::limits::{SECRET_BYTES, Unit};

use super::environment::Environment;
use super::files::{ReadError, read_regular, reason};
use super::read::{bad_text, is_variable, normal};

/// systemd's folder of a unit's credentials (`LoadCredential=`), as its environment names it.
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The prefix that systemd gives to the files of a folder that is loaded as a whole: the units' line
/// `LoadCredential=secrets:/etc/hooklatch/secrets` turns its file `stripe` into `secrets_stripe`.
const OF_FOLDER: &str = "secrets_";

/// Shown instead of a secret.
pub(super) const STARS: &str = "***";

/// The place of a secret. Serializes as the reference, and stars instead of the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reference {
    #[serde(rename = "reference")]
    written: String,
    #[serde(rename = "value", serialize_with = "stars")]
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Variable(String),
    File(PathBuf),
    Credential(String),
}

fn stars<S: Serializer>(_: &Place, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(STARS)
}

/// Why a secret cannot be used. No message quotes it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Empty but for a newline: the operator has yet to fill it in.
    #[error("{0}")]
    Empty(Fault),
    #[error("{0}")]
    Unusable(Fault),
}

impl From<SecretError> for Fault {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Empty(fault) | SecretError::Unusable(fault) => fault,
        }
    }
}

impl Reference {
    /// Reads the three forms; a relative path begins in `folder`. An error does not quote the text, which
    /// may be the secret itself.
    pub fn parse(text: &str, folder: &Path) -> Result<Reference, Fault> {
        let place = match text.split_once(':') {
            Some(("env", name)) if is_variable(name) => Ok(Place::Variable(name.to_owned())),
            Some(("env", _)) => Err("what follows 'env:' is not a variable name"),
            Some(("file", path)) if bad_text(path).is_none() => {
                Ok(Place::File(normal(&folder.join(path))))
            }
            Some(("file", _)) => Err("what follows 'file:' is not a path"),
            Some(("credential", name)) if is_file_name(name) => {
                Ok(Place::Credential(name.to_owned()))
            }
            Some(("credential", _)) => Err("what follows 'credential:' is not a credential name"),
            _ => Err(
                "expected a reference to a secret, not the secret itself (it is not shown here)",
            ),
        };
        let help = "put the secret into a file that only hooklatch can read and write \"file:/path\", or write \"credential:NAME\" or \"env:NAME\"";
        let place = place.map_err(|wrong| Fault::new(wrong, help))?;
        Ok(Reference { written: text.to_owned(), place })
    }

    /// The file it names, for a look at its permissions.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => Some(path),
            Place::Variable(_) | Place::Credential(_) => None,
        }
    }

    /// The secret without one trailing newline: 1 to [`SECRET_BYTES`] bytes of UTF-8.
    pub fn read(&self, environment: &Environment) -> Result<Zeroizing<String>, SecretError> {
        let bytes = Zeroizing::new(match &self.place {
            Place::Variable(name) => match environment.get(name) {
                Some(value) => value.as_encoded_bytes().to_vec(),
                None => {
                    let help = "set it for the process that runs hooklatch";
                    return Err(self.unusable("the environment has no such variable", help));
                }
            },
            Place::File(path) => self.read_file(path, None)?,
            Place::Credential(name) => match environment.get(CREDENTIALS) {
                Some(folder) => self.read_credential(Path::new(folder), name)?,
                None => {
                    let help = "systemd sets it for a unit with LoadCredential=NAME:/path; elsewhere use \"file:/path\"";
                    return Err(self.unusable(&format!("{CREDENTIALS} is not set"), help));
                }
            },
        });
        let text = std::str::from_utf8(&bytes).map_err(|_| {
            self.unusable("the secret is not UTF-8", "write the secret as the provider shows it")
        })?;
        let text = text.strip_suffix('\n').map_or(text, |t| t.strip_suffix('\r').unwrap_or(t));
        if text.is_empty() {
            let help = "put the provider's secret or public key into it";
            return Err(SecretError::Empty(self.fault("the secret is empty", help)));
        }
        if text.len() as u64 > SECRET_BYTES {
            return Err(self.too_large());
        }
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// The credential of that name, or the file of that name in the folder that is loaded as a whole.
    fn read_credential(&self, folder: &Path, name: &str) -> Result<Vec<u8>, SecretError> {
        let own = folder.join(name);
        let path = match own.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder.join(format!("{OF_FOLDER}{name}"))
            }
            _ => own,
        };
        let help = "put it into the folder that LoadCredential= of the unit names, /etc/hooklatch/secrets (a command's: /etc/hooklatch/runner-secrets, the dashboard's: /etc/hooklatch/ui-secrets), and restart the unit";
        self.read_file(&path, (!path.exists()).then_some(help))
    }

    /// The file's bytes: up to two more than the limit, for the newline.
    fn read_file(&self, path: &Path, help: Option<&str>) -> Result<Vec<u8>, SecretError> {
        let unreadable = |reason: &str, fix| {
            let what = format!("failed to read {}: {reason}", path.display());
            self.unusable(&what, help.unwrap_or(fix))
        };
        read_regular(path, SECRET_BYTES + 2).map_err(|error| match error {
            ReadError::TooLarge(_) => self.too_large(),
            ReadError::Kind(kind) => unreadable(&format!("it is {kind}"), "name a file"),
            ReadError::Io(error) => unreadable(&reason(&error), fix(&error)),
        })
    }

    fn fault(&self, what: &str, help: &str) -> Fault {
        Fault::new(format!("'{}': {what}", self.written), help)
    }

    fn unusable(&self, what: &str, help: &str) -> SecretError {
        SecretError::Unusable(self.fault(what, help))
    }

    fn too_large(&self) -> SecretError {
        let what = format!("the secret is larger than {}", Unit::Bytes.show(SECRET_BYTES));
        self.unusable(&what, "is this the right file?")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.written)
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
        let read = text.convert(section.problems(), |text| Reference::parse(&text, folder));
        let Some(reference) = read else { continue };
        if references.contains(&reference) {
            section.report(&reference.at, format!("'{}' is there twice", reference.value));
        } else {
            references.push(reference);
        }
    }
    references
}

fn fix(error: &io::Error) -> &'static str {
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
