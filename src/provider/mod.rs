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
    ("github", "name = \"github\"\ntwo_levels = true\nbody_limit = \"25 MiB\"\ndeadline = \"10s\"\nresends_for = \"3d\"\n"),
    ("none", "name = \"none\"\nunsigned = true\n"),
    ("standard-webhooks", "name = \"standard-webhooks\"\nresends_for = \"3d\"\n"),
    ("stripe", "name = \"stripe\"\nresends_for = \"3d\"\n"),
];

impl Scheme {
    /// A built-in scheme.
    pub fn embedded(name: &str) -> Option<Scheme> {
        let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
        Self::parse(name, text, &Problems::new())
    }

    /// The built-in schemes' names.
    pub fn embedded_names() -> Vec<&'static str> {
        EMBEDDED.iter().map(|(name, _)| *name).collect()
    }

    /// Reads a provider file.
    pub fn parse(file: &str, text: &str, problems: &Problems) -> Option<Scheme> {
        let document = Document::parse(file, text, problems)?;
        let root = document.root(problems);
        let scheme = Some(Scheme {
            two_levels: root.get("two_levels").is_some_and(|v| v.value),
            unsigned: root.get("unsigned").is_some_and(|v| v.value),
            signs_url: root.get("signs_url").is_some_and(|v| v.value),
            resends_for: root.get("resends_for").map(|v| v.value),
            deadline: root.get("deadline").map(|v| v.value),
            body_limit_bytes: root.get::<Size>("body_limit").map(|v| v.value.0),
            name: root.required::<String>("name")?.value,
        });
        root.finish();
        scheme
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
