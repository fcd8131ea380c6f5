//! A scratch folder with the configuration of `examples/quickstart/`, which the binary carries.

use std::fs;
use std::path::{Path, PathBuf};

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
        let adjusted = adjusted(&folder.path("ledger.txt"));
        for (path, text) in FILES {
            let text = if *path == "hooklatch.toml" { &adjusted } else { *text };
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

/// The quickstart's configuration with a ledger that its handlers write, and a runner that leaves soon
/// after the demonstration.
fn adjusted(ledger: &Path) -> String {
    let text = include_str!("../../../examples/quickstart/hooklatch.toml");
    let env = format!("env = {{ HOOKLATCH_DEMO_LEDGER = {ledger:?} }}");
    text.replace(r#"pass_env = ["HOOKLATCH_DEMO_LEDGER"]"#, &env)
        .replace("[limits]\n", "[limits]\nrunner_idle_millis = \"1s\"\n")
}
