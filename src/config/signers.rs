//! Signs test deliveries of `send` as a source's provider does.

use std::path::Path;
use std::sync::Arc;

use crate::document::Value;
use crate::http;
use crate::model::Name;
use crate::provider::Scheme;
use crate::verify::{self, Signer};

use super::configuration::Config;
use super::environment::Environment;
use super::secrets::{Reference, SecretError};
use super::sources::Source;

/// A source as a test delivery sees it.
pub struct Endpoint<'a> {
    /// Its provider's scheme.
    pub scheme: &'a Arc<Scheme>,
    /// The path of its deliveries, with the query that `public_url` has.
    pub path: String,
    /// The URL that its provider signs, if it signs one.
    pub signed_url: Option<String>,
    /// Whether its requests get their handler's answer.
    pub replies: bool,
    /// Whether a trusted proxy alone names the caller.
    pub certified: bool,
    source: &'a Source,
}

impl Endpoint<'_> {
    /// The file of its first secret, if that is a file.
    pub fn secret_file(&self) -> Option<&Path> {
        self.source.secrets.first()?.value.file()
    }
}

/// Why this process cannot sign as a source.
#[derive(Debug)]
pub enum CannotSign {
    /// The secret is empty, also for the receiver: how to fill it in.
    Empty(String),
    /// Why this process cannot read the secret; the receiver may be able to.
    Unreadable(String),
}

/// How to fill in an empty secret.
fn fill_in(source: &Source, reference: &Reference) -> String {
    let place = match reference.file() {
        Some(path) => path.display().to_string(),
        None => reference.to_string(),
    };
    let provider = source.scheme.name();
    match &source.scheme.setup().secret_from {
        Some(from) => {
            let word = source.scheme.proof().secret_word();
            format!("put {provider}'s {word} into {place} ({from})")
        }
        None => format!("put the secret that {provider} was given into {place}"),
    }
}

impl Config {
    pub fn source_names(&self) -> impl Iterator<Item = &Name> {
        self.sources.iter().map(|source| &source.name)
    }

    /// The source called `name`.
    pub fn endpoint(&self, name: &Name) -> Option<Endpoint<'_>> {
        let source = self.source(name)?;
        let covers_url = source.scheme.proof().covers_url();
        let configured = source.signed_url.as_deref().filter(|_| covers_url);
        let (path, query) = (source.path.value.as_str(), source.scheme.proof().first_query());
        let replies = source.replies.as_ref();
        Some(Endpoint {
            scheme: &source.scheme,
            path: query.map_or(path.to_owned(), |query| format!("{path}?{query}")),
            signed_url: configured.map(|url| http::public_url(url, path, query)),
            replies: replies.is_some(),
            certified: replies.is_some_and(|replies| replies.certificate_header.is_some()),
            source,
        })
    }

    /// The signer of the source's first secret. An `Err` does not quote it.
    pub fn signer(
        &self,
        endpoint: &Endpoint<'_>,
        environment: &Environment,
    ) -> Result<Signer, CannotSign> {
        let source = endpoint.source;
        let key = |secret: &Value<Reference>| {
            let reference = &secret.value;
            let text = reference.read(environment);
            let text = text.map_err(|error| match error {
                SecretError::Empty(_) => CannotSign::Empty(fill_in(source, reference)),
                SecretError::Unusable(fault) => CannotSign::Unreadable(fault.to_string()),
            })?;
            verify::key(&source.scheme, &reference.to_string(), &text)
                .map_err(CannotSign::Unreadable)
        };
        let key = source.all_secrets().next().map(|(_, secret)| key(secret)).transpose()?;
        Ok(Signer::new(Arc::clone(&source.scheme), key, None))
    }
}
