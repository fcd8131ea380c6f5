//! What `send` needs to sign as a source's provider.

use std::sync::Arc;

use crate::http;
use crate::model::Name;
use crate::provider::Scheme;
use crate::verify::{self, Signer};

use super::Config;
use super::environment::Environment;
use super::secrets::{Reference, SecretError};
use super::sources::Source;

/// A source as a test delivery sees it.
pub struct Endpoint<'a> {
    /// Its provider's scheme.
    pub scheme: &'a Arc<Scheme>,
    pub path: &'a str,
    /// The URL that its provider signs, where it signs one.
    pub signed_url: Option<String>,
    /// Whether its requests get their handler's answer.
    pub replies: bool,
    /// Whether it takes a trusted proxy's word alone on who calls.
    pub certified: bool,
    source: &'a Source,
}

/// Why this process cannot sign as a source.
#[derive(Debug)]
pub enum CannotSign {
    /// The secret is empty, for the receiver too: what to put where.
    Empty(String),
    /// The receiver may be able to read it: why this process is not.
    Unreadable(String),
}

/// Which secret belongs into an empty `reference`.
fn fill_in(source: &Source, reference: &Reference) -> String {
    let place = match reference.file() {
        Some(path) => path.display().to_string(),
        None => reference.to_string(),
    };
    let provider = source.scheme.name();
    match &source.scheme.setup().secret_from {
        Some(from) => format!("put {provider}'s signing secret into {place} ({from})"),
        None => format!("put the secret that {provider} was given into {place}"),
    }
}

impl Config {
    pub fn source_names(&self) -> impl Iterator<Item = &Name> {
        self.sources.iter().map(|source| &source.name)
    }

    /// The source called `name`.
    pub fn endpoint(&self, name: &Name) -> Option<Endpoint<'_>> {
        let source = self.sources.iter().find(|source| source.name == *name)?;
        let configured = source.public_url.as_deref().filter(|_| source.scheme.signs_url());
        let path = source.path.value.as_str();
        let signed_url = configured.map(|url| http::public_url(url, path, None));
        let replies = source.replies.as_ref();
        let certified = replies.is_some_and(|replies| replies.certificate_header.is_some());
        let replies = replies.is_some();
        Some(Endpoint { scheme: &source.scheme, path, signed_url, replies, certified, source })
    }

    /// What signs as this source: with its first secret, of which any is taken. An `Err` never quotes it.
    pub fn signer(
        &self,
        endpoint: &Endpoint<'_>,
        environment: &Environment,
    ) -> Result<Signer, CannotSign> {
        let source = endpoint.source;
        let key = match source.all_secrets().next() {
            None => None,
            Some(secret) => {
                let reference = &secret.value;
                let text = reference.read(environment, self.limits.secret_bytes);
                let text = text.map_err(|error| match error {
                    SecretError::Empty(_) => CannotSign::Empty(fill_in(source, reference)),
                    error => CannotSign::Unreadable(error.to_string()),
                })?;
                let key = verify::key(&source.scheme, &reference.to_string(), &text);
                Some(key.map_err(CannotSign::Unreadable)?)
            }
        };
        Ok(Signer::new(Arc::clone(&source.scheme), key))
    }
}
