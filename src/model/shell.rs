//! Commands that are printed for an operator to paste.

use std::borrow::Cow;
use std::path::Path;

/// The configuration file if `--config` does not name another.
pub const DEFAULT_CONFIG: &str = "/etc/hooklatch/hooklatch.toml";

/// The `--config` option of a printed command; empty for the default file.
pub fn config_option(path: &Path) -> String {
    match path == Path::new(DEFAULT_CONFIG) {
        true => String::new(),
        false => format!(" --config {}", shell_word(&path.display().to_string())),
    }
}

/// Quotes text for a shell if that is necessary. Operators paste printed commands, and text from outside must
/// not become another command.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/@%+=,".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
    }
}
