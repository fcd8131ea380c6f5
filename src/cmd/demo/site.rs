//! A scratch folder with the configuration of `examples/quickstart/`, which the binary carries.

use std::fs;
use std::path::PathBuf;

use crate::cmd::scratch::Folder;
use crate::exit::Failure;

macro_rules! quickstart {
    ($($path:literal),+) => {
        [$(($path, include_str!(concat!("../../../examples/quickstart/", $path)))),+]
    };
}

/// Every file of the quickstart by its path.
const FILES: &[(&str, &str)] = &quickstart![
    "hooklatch.toml",
    "handlers/audit",
    "handlers/deploy",
    "handlers/flaky",
    "handlers/fulfil",
    "handlers/ledger",
    "secrets/github.demo",
    "secrets/stripe.demo"
];

/// The quickstart's secrets, as the providers know them.
pub(super) const STRIPE_SECRET: &str =
    include_str!("../../../examples/quickstart/secrets/stripe.demo");
pub(super) const GITHUB_SECRET: &str =
    include_str!("../../../examples/quickstart/secrets/github.demo");

/// The folder; it is deleted with this value.
pub(super) struct Site {
    folder: Folder,
}

impl Site {
    /// Writes the files.
    pub(super) fn new() -> Result<Self, Failure> {
        let folder = Folder::temporary()?;
        for (path, text) in FILES {
            folder.write(path, text, path.starts_with("handlers/"))?;
        }
        Ok(Site { folder })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// How often a handler was started for an event, by what the handlers themselves wrote down.
    pub(super) fn starts_of(&self, event_id: &str) -> usize {
        let text = fs::read_to_string(self.path("ledger.txt")).unwrap_or_default();
        text.lines().filter(|line| line.split(' ').nth(2) == Some(event_id)).count()
    }
}
