//! The drill's folder: its configuration, its handlers, and what they wrote.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::played::Provider;
use crate::cmd::scratch::Folder;
use crate::cmd::store;
use crate::config::Config;
use crate::exit::{Exit, Failure};

use super::ledger::Ledger;
use super::random;

/// The one source. `list_count` is what an account may have of events; no drill sends as many.
const CONFIG: &str = r#"# The configuration of a drill (`hooklatch drill`).

[server]
listen = "127.0.0.1:0"

[storage]
path = "store.db"

[limits]
list_count = 100000
backoff_base_millis = "100ms"

[sources.stripe]
provider = "stripe"
path = "/stripe"
secrets = ["file:secret"]

[handlers.work]
source = "stripe"
events = ["*"]
command = ["./work"]
cwd = "."
concurrency = 8

# Fails at its first attempt.
[handlers.retry]
source = "stripe"
events = ["drill.retry"]
command = ["./retry"]
cwd = "."
concurrency = 4
"#;

/// A handler's first and last act is a line in the ledger, each one write to a file opened for
/// appending, so that lines never mix. The event's id ends in the milliseconds that its work takes.
macro_rules! handler {
    ($before_the_end:literal) => {
        concat!(
            "#!/bin/sh\n",
            "line=\"$HOOKLATCH_HANDLER $HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT\"\n",
            "echo \"start $line\" >> ledger.txt || exit 75\n",
            "millis=${HOOKLATCH_EVENT_ID##*_}\n",
            "[ \"$millis\" = 0 ] || sleep \"$(printf '0.%03d' \"$millis\")\"\n",
            $before_the_end,
            "echo \"end $line\" >> ledger.txt\n",
        )
    };
}

const WORK: &str = handler!("");
const RETRY: &str = handler!(
    "[ \"$HOOKLATCH_ATTEMPT\" != 1 ] || { echo \"fail $line\" >> ledger.txt; exit 75; }\n"
);

/// The folder with everything in it.
pub(super) struct Site {
    folder: Folder,
    secret: String,
}

impl Site {
    /// Writes it: among the temporary files, or at `place`.
    pub(super) fn new(place: Option<&Path>) -> Result<Self, Failure> {
        let folder = place.map_or_else(Folder::temporary, Folder::empty_at)?;
        let secret = random::secret()?;
        folder.write("hooklatch.toml", CONFIG, false)?;
        folder.write("secret", &secret, false)?;
        folder.write("work", WORK, true)?;
        folder.write("retry", RETRY, true)?;
        Ok(Site { folder, secret })
    }

    /// The provider that delivers here.
    pub(super) fn provider(&self) -> Result<Provider, Failure> {
        Provider::new("stripe", "/stripe", &self.secret)
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.folder.path("hooklatch.toml")
    }

    pub(super) fn config(&self) -> Result<Config, Failure> {
        store::load_whole(&self.config_path())
    }

    /// Where the receivers' log lines go.
    pub(super) fn log_path(&self) -> PathBuf {
        self.folder.path("receiver.log")
    }

    pub(super) fn root(&self) -> &Path {
        self.folder.root()
    }

    /// What the handlers wrote down.
    pub(super) fn ledger(&self) -> Result<Ledger, Failure> {
        let path = self.ledger_path();
        let text = if path.exists() { fs::read_to_string(&path) } else { Ok(String::new()) };
        let text = text.map_err(|error| {
            Failure::new(Exit::Io, format!("failed to read {}: {error}", path.display()))
        })?;
        Ok(Ledger::read(&text))
    }

    /// How much the handlers have written so far, in bytes: it grows while any of them gets on.
    pub(super) fn ledger_bytes(&self) -> u64 {
        fs::metadata(self.ledger_path()).map_or(0, |found| found.len())
    }

    fn ledger_path(&self) -> PathBuf {
        self.folder.path("ledger.txt")
    }

    /// The folder stays when this value goes.
    pub(super) fn keep(&mut self) {
        self.folder.keep();
    }

    /// Whether it stays.
    pub(super) fn stays(&self) -> bool {
        self.folder.stays()
    }
}
