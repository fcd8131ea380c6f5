//! Reads `[sources.NAME]`, and checks what one source alone can show.

use std::sync::Arc;

use serde::Serialize;

use crate::document::{At, Fault, Section, Value};
use crate::http::RESERVED_PATHS;
use crate::model::{INTERNAL_SOURCE, Name, OnRedelivery};
use crate::provider::Scheme;

use super::read::{Context, parsed, ranged};
use super::replies::{self, Replies};
use super::secrets::{Reference, read_references};
use super::shown;

/// One source, as `config show` prints it. Secrets are references.
#[derive(PartialEq, Serialize)]
pub(crate) struct Source {
    pub(crate) name: Name,
    /// The position of its table.
    #[serde(skip)]
    pub(super) at: At,
    pub(crate) path: Value<String>,
    #[serde(flatten, serialize_with = "shown::scheme")]
    pub(crate) scheme: Arc<Scheme>,
    pub(crate) secrets: Vec<Value<Reference>>,
    pub(crate) public_url: Option<String>,
    /// From the source, else from its provider, else the default.
    #[serde(rename = "max_body_bytes")]
    pub(crate) body_limit_bytes: u64,
    pub(crate) on_redelivery: OnRedelivery,
    /// How its requests get their handler's answer; `None` if a delivery is answered once it is stored.
    #[serde(rename = "reply")]
    pub(crate) replies: Option<Replies>,
}

impl Source {
    /// Whether neither the request nor a proxy proves who sent a delivery.
    pub(super) fn takes_anybody(&self) -> bool {
        let named = self.replies.as_ref().is_some_and(|own| own.certificate_header.is_some());
        self.scheme.is_unsigned() && !named
    }

    /// Every secret; those of callers with the caller's name.
    pub(super) fn all_secrets(&self) -> impl Iterator<Item = (Option<&Name>, &Value<Reference>)> {
        let callers = self.replies.iter().flat_map(|replies| &replies.callers);
        let of_callers = callers.map(|(caller, secret)| (Some(caller), secret));
        self.secrets.iter().map(|secret| (None, secret)).chain(of_callers)
    }
}

/// Reads one source; `None` if its table has too little of one. Problems go to the section's.
pub(super) fn read(name: &Name, section: Section<'_>, context: &Context<'_>) -> Option<Source> {
    if name.as_str() == INTERNAL_SOURCE {
        section.problem(Fault::new(
            format!("'{name}' is the source of the receiver's own events"),
            "give this one another name; a handler takes the receiver's own by its source alone",
        ));
    }
    let scheme = read_provider(&section, context);
    let path = read_path(&section, name);
    let secrets = read_secrets(&section, context);
    let allow_unsigned = section.get::<bool>("allow_unsigned");
    let public_url = read_public_url(&section);
    let max_body = ranged(&section, "max_body", "body_default_bytes");
    let on_redelivery = parsed::<OnRedelivery>(&section, "on_redelivery");
    let replies = replies::read(&section, scheme.as_ref(), context);
    if let Some(scheme) = &scheme {
        check_signing(&section, scheme, allow_unsigned, secrets.is_some(), replies.as_ref());
        if scheme.value.signs_url() && !section.has("public_url") {
            section.problem(Fault::new(
                format!("provider '{}' signs the URL", scheme.value.name()),
                "add public_url, the URL that the provider was given",
            ));
        }
    }
    let at = section.here();
    section.finish();
    let scheme = scheme?.value;
    let body_limit_bytes = max_body
        .map(|read| read.value)
        .or(scheme.body_limit_bytes())
        .unwrap_or(context.limits.body_default_bytes);
    Some(Source {
        name: name.clone(),
        at,
        path: path?,
        scheme,
        secrets: secrets.unwrap_or_default(),
        public_url: public_url.map(|read| read.value),
        body_limit_bytes,
        on_redelivery: on_redelivery.map_or(OnRedelivery::Ignore, |read| read.value),
        replies,
    })
}

fn read_provider(section: &Section<'_>, context: &Context<'_>) -> Option<Value<Arc<Scheme>>> {
    let help = format!("add provider = \"NAME\"; {}", context.catalogue.names());
    if section.lacks("provider", help) {
        return None;
    }
    let Value { value: name, at } = section.get::<String>("provider")?;
    match context.catalogue.get(&name) {
        Ok(scheme) => Some(Value { value: scheme, at }),
        Err(None) => None,
        Err(Some(help)) => {
            section.reject(&at, format!("there is no provider '{name}'"), help);
            None
        }
    }
}

/// Checks that an unsigned source says so twice, and that a signed one does not say the opposite.
fn check_signing(
    section: &Section<'_>,
    scheme: &Value<Arc<Scheme>>,
    allow_unsigned: Option<Value<bool>>,
    has_secrets: bool,
    replies: Option<&Replies>,
) {
    let provider = scheme.value.name();
    let allowed = allow_unsigned.as_ref().filter(|allow| allow.value);
    match (scheme.value.is_unsigned(), allowed) {
        (true, Some(allow)) if replies.is_some() => section.reject(
            &allow.at,
            "a source that answers must know its callers",
            "remove allow_unsigned",
        ),
        // `replies::read` checks what proves the caller instead.
        (true, None) if replies.is_some() => {}
        (true, None) => section.reject(
            &scheme.at,
            format!("provider '{provider}' proves nothing about who sent a request"),
            "choose the sender's provider, or add allow_unsigned = true to take events from anybody",
        ),
        (false, Some(allow)) => section.reject(
            &allow.at,
            format!("provider '{provider}' verifies every request, so nothing unsigned is allowed"),
            "remove allow_unsigned, or write provider = \"none\" as well",
        ),
        _ => {}
    }
    let secrets = section.place_of("secrets");
    let callers = section.place_of("callers").filter(|_| replies.is_some());
    let used = if secrets.is_some() { "secrets" } else { "callers" };
    match (scheme.value.is_unsigned(), secrets.as_ref().or(callers.as_ref())) {
        (false, Some(at)) if secrets.is_some() && callers.is_some() => section.reject(
            at,
            "both 'secrets' and 'callers' are given",
            "a source has one caller, or each has a name: move these to callers",
        ),
        (false, None) => section.problem(Fault::new(
            format!("provider '{provider}' needs a secret, and 'secrets' is missing"),
            format!("add secrets = [\"file:/path/to/{provider}.secret\"]"),
        )),
        (true, Some(at)) if has_secrets || callers.is_some() => section.reject(
            at,
            format!("provider '{provider}' uses no secret"),
            format!("remove {used}, or choose the sender's provider"),
        ),
        _ => {}
    }
}

/// The references; `None` if the key is absent or one of them is wrong.
fn read_secrets(section: &Section<'_>, context: &Context<'_>) -> Option<Vec<Value<Reference>>> {
    let texts = section.texts("secrets")?;
    let count = texts.len();
    if count == 0
        && let Some(at) = section.place_of("secrets")
    {
        section.reject(&at, "the list is empty", "name at least one, such as \"file:/path\"");
    }
    let references = read_references(section, texts, context.folder);
    (count > 0 && references.len() == count).then_some(references)
}

fn read_path(section: &Section<'_>, name: &Name) -> Option<Value<String>> {
    if !section.has("path") {
        return Some(Value { value: format!("/hooks/{name}"), at: section.here() });
    }
    section.convert(section.get::<String>("path"), |path| match bad_path(&path) {
        None => Ok(path),
        Some(wrong) => Err(format!("'{path}' {wrong}")),
    })
}

/// Why `path` cannot be a source's. It must be what every proxy and library leaves unchanged, because two
/// spellings of one path could reach two sources.
fn bad_path(path: &str) -> Option<&'static str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&b);
    if !path.starts_with('/') {
        Some("does not start with '/'")
    } else if path.contains(['?', '#']) {
        Some("has a query or a fragment; the path alone chooses the source")
    } else if !path.bytes().all(plain) {
        Some("has a character that a URL's path does not show as it is")
    } else if path.contains("//") || path.split('/').any(|step| matches!(step, "." | "..")) {
        Some("is not normal: it has an empty, '.' or '..' step")
    } else if RESERVED_PATHS.contains(&path) {
        Some("is answered by the receiver itself")
    } else {
        None
    }
}

fn read_public_url(section: &Section<'_>) -> Option<Value<String>> {
    section.convert(section.get::<String>("public_url"), |url| match bad_url(&url) {
        None => Ok(url),
        Some(wrong) => Err(Fault::new(
            format!("'{url}' {wrong}"),
            "write the URL that the provider was given, such as \"https://hooks.example.org/square\"",
        )),
    })
}

fn bad_url(url: &str) -> Option<&'static str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match rest {
        None => Some("does not start with https:// or http://"),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Some("has no host"),
        Some(rest) if rest.split('/').next().is_some_and(|host| host.contains('@')) => {
            Some("has a user name, which no provider signs")
        }
        Some(rest) if rest.contains(['?', '#']) => Some("has a query or a fragment"),
        Some(rest) if !rest.bytes().all(|b| b.is_ascii_graphic()) => {
            Some("has a space or another character that a URL cannot have")
        }
        Some(_) => None,
    }
}
