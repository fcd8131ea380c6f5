//! References to secrets. What is none may be the secret itself, and is told to nobody.

use std::path::Path;

use hooklatch::config::Reference;

pub(super) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let folder = Path::new("/nowhere");
    match Reference::parse(text, folder) {
        Ok(reference) => {
            assert_eq!(reference.to_string(), text);
            assert_eq!(Reference::parse(&reference.to_string(), folder), Ok(reference));
        }
        Err(error) => {
            let told = format!("{error} {error:?} {}", error.help());
            assert!(text.len() < 12 || !told.contains(text), "a secret is told");
        }
    }
}
