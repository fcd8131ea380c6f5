//! References to secrets. A text that is not a reference may be the secret itself, so errors must not quote it.

use std::path::Path;

use hooklatch::config::Reference;
use hooklatch::document::Fault;

/// One invalid reference of each kind.
const WRONG: [&str; 4] = ["x", "env:1", "file:", "credential:.."];

pub(super) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parse = |text| Reference::parse(text, Path::new("/nowhere"));
    match parse(text) {
        Ok(reference) => {
            assert_eq!(reference.to_string(), text);
            assert_eq!(parse(&reference.to_string()), Ok(reference));
        }
        Err(error) => {
            let texts = |error: &Fault| format!("{error} {error:?}");
            let fixed = WRONG.iter().filter_map(|wrong| parse(wrong).err());
            assert!(
                fixed.map(|wrong| texts(&wrong)).any(|fixed| fixed == texts(&error)),
                "an error quotes the text"
            );
        }
    }
}
