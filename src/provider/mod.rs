//! Signing schemes as data. (STAND-IN: the provider's author replaces this file, keeping the API.)

use std::time::Duration;

use crate::document::{Document, Problems, Size};

/// A signing scheme.
#[derive(Debug, Clone)]
pub struct Scheme {
    name: String,
    two_levels: bool,
    unsigned: bool,
    signs_url: bool,
    resends_for: Option<Duration>,
    deadline: Option<Duration>,
    body_limit_bytes: Option<u64>,
}

const EMBEDDED: &[(&str, &str)] = &[
    (
        "github",
        "name = \"github\"\n[signature]\nalgorithm = \"hmac-sha256\"\n[event]\nsubtype = \"json:/action\"\n[delivery]\nbody_limit = \"25 MiB\"\ndeadline = \"10s\"\nresends_for = \"3d\"\n",
    ),
    ("none", "name = \"none\"\n[signature]\nalgorithm = \"none\"\n"),
    (
        "standard-webhooks",
        "name = \"standard-webhooks\"\n[signature]\nalgorithm = \"hmac-sha256\"\n",
    ),
    (
        "stripe",
        "name = \"stripe\"\n[signature]\nalgorithm = \"hmac-sha256\"\n[delivery]\nresends_for = \"3d\"\n",
    ),
    ("svix", "name = \"svix\"\n[signature]\nalgorithm = \"hmac-sha256\"\n"),
];

impl Scheme {
    /// A built-in scheme.
    pub fn embedded(name: &str) -> Option<Scheme> {
        let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
        Self::parse(name, text, &Problems::new())
    }

    /// The built-in schemes' names.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// Reads a provider file.
    pub fn parse(file: &str, text: &str, problems: &Problems) -> Option<Scheme> {
        let document = Document::parse(file, text, problems)?;
        let root = document.root(problems);
        let signature = root.section("signature");
        let algorithm = signature.as_ref().and_then(|s| s.get::<String>("algorithm"));
        let signed = signature.as_ref().and_then(|s| s.get::<String>("signed"));
        let delivery = root.section("delivery");
        let delivery = delivery.as_ref();
        Some(Scheme {
            two_levels: root.section("event").is_some_and(|event| event.has("subtype")),
            unsigned: algorithm.is_none_or(|v| v.value == "none"),
            signs_url: signed.is_some_and(|v| v.value.contains("{url}")),
            resends_for: delivery.and_then(|d| d.get("resends_for")).map(|v| v.value),
            deadline: delivery.and_then(|d| d.get("deadline")).map(|v| v.value),
            body_limit_bytes: delivery.and_then(|d| d.get::<Size>("body_limit")).map(|v| v.value.0),
            name: root.required::<String>("name")?.value,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Whether its event types have two levels.
    pub fn two_levels(&self) -> bool {
        self.two_levels
    }
    /// Whether it proves nothing.
    pub fn is_unsigned(&self) -> bool {
        self.unsigned
    }
    /// Whether the signature covers the URL.
    pub fn signs_url(&self) -> bool {
        self.signs_url
    }
    /// How long the provider re-sends.
    pub fn resends_for(&self) -> Option<Duration> {
        self.resends_for
    }
    /// How long the provider waits for an answer.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }
    /// The provider's own body limit.
    pub fn body_limit_bytes(&self) -> Option<u64> {
        self.body_limit_bytes
    }
}
