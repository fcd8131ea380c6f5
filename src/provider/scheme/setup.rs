//! What people read about a provider: its title, how to set it up, and how it sends.
//!
//! `init`, `providers`, the dashboard and the pages show it; `config` takes defaults and warnings from it, and test
//! deliveries their samples. Must stay true: no verdict of `verify` depends on it.

use std::time::Duration;

use super::facts::Facts;

/// How a provider is set up, in the words of its pages, and how it sends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Whose events these are; the provider's name if the file has no title.
    pub title: String,
    /// The URL of the provider's documentation.
    pub docs: Option<String>,
    /// Where the facts of the file are from.
    pub facts: Facts,
    /// The file of the provider's vectors, relative to the provider file.
    pub vectors: Option<String>,
    pub delivery: Delivery,
    /// Sample bodies as JSON text, see `verify::sample`; empty for a file of the operator.
    pub(crate) samples: &'static str,
    /// The path to the provider's page, such as `Settings > Webhooks > Add webhook`.
    pub page: Option<String>,
    /// The fields of that page, each `Name: value`; `{url}`, `{secret}` and `{verify_token}` are placeholders.
    pub fields: Vec<String>,
    /// Where the provider shows the secret that it generates; `None` if the operator chooses the
    /// secret.
    pub secret_from: Option<String>,
    /// Where the provider shows what belongs into `verify_token`; `None` if the operator chooses it.
    pub verify_token_from: Option<String>,
    /// An event type for a test of the endpoint.
    pub sample_type: Option<String>,
    /// How to make the provider send past events again, and how many days back. An operator needs it
    /// after restoring the store from a backup.
    pub redeliver: Option<String>,
}

/// How long the provider sends an event again that was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resends {
    Never,
    For(Duration),
}

/// How the provider sends its events; `None` for what is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivery {
    pub resends: Option<Resends>,
    /// How long it waits for an answer.
    pub deadline: Option<Duration>,
    /// The largest body that it sends.
    pub body_limit_bytes: Option<u64>,
}

impl Resends {
    /// No time if it never does.
    pub fn time(self) -> Duration {
        match self {
            Resends::Never => Duration::ZERO,
            Resends::For(time) => time,
        }
    }
}

impl Delivery {
    /// How long an event that was not accepted comes again, if that is known; no time if it never does.
    pub fn resends_for(&self) -> Option<Duration> {
        self.resends.map(Resends::time)
    }

    pub fn never_resends(&self) -> bool {
        self.resends == Some(Resends::Never)
    }
}
