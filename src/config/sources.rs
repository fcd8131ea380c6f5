//! Reads `[sources.NAME]`, and checks what one source alone can show.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::document::{At, Fault, Section, Value};
use crate::http::RESERVED_PATHS;
use crate::limits::{HMACS_COUNT, TOLERANCE_AHEAD, TOLERANCE_RUNS};
use crate::model::{INTERNAL_SOURCE, Name, OnRedelivery, Repeats};
use crate::provider::template::Part;
use crate::provider::{NAMES, Scheme};

use super::read::{Context, parsed, ranged};
use super::replies::{self, Replies};
use super::secrets::{Reference, read_references};
use super::shown::{self, duration_text};

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
    /// The token with which the provider proves its challenges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verify_token: Option<Value<Reference>>,
    /// The methods of its deliveries.
    pub(crate) methods: Vec<&'static str>,
    pub(crate) public_url: Option<String>,
    /// `public_url` with the name and password that it may have, without a query.
    #[serde(skip)]
    pub(crate) signed_url: Option<String>,
    /// The senders, one of which a request must name where the provider signs for all its customers.
    #[serde(rename = "sender", skip_serializing_if = "Vec::is_empty")]
    pub(crate) senders: Vec<String>,
    /// The limit from the source, else from its provider, else the default.
    #[serde(rename = "max_body_bytes")]
    pub(crate) body_limit_bytes: u64,
    pub(crate) on_redelivery: OnRedelivery,
    /// Whether the source sets `repeats`.
    #[serde(skip)]
    pub(super) sets_repeats: bool,
    /// How its requests get their handler's answer; `None` if a delivery is answered once it is stored.
    #[serde(rename = "reply")]
    pub(crate) replies: Option<Replies>,
}

impl Source {
    /// Whether neither the request nor a proxy proves who sent a delivery.
    pub(super) fn takes_anybody(&self) -> bool {
        let named = self.replies.as_ref().is_some_and(|own| own.certificate_header.is_some());
        self.scheme.proof().is_absent() && !named
    }

    /// The file for the secret that the provider sends itself. An `Err` says why there is none.
    pub(crate) fn registers(&self) -> Result<&Path, String> {
        let provider = self.scheme.name();
        if !self.scheme.challenge().registers() {
            return Err(format!("provider '{provider}' does not send its secret"));
        }
        let [secret] = &self.secrets[..] else {
            return Err(format!(
                "source {} has several secrets, so the provider has sent one",
                self.name
            ));
        };
        let message =
            || format!("'{}' is not a file: write the secret as \"file:/path\"", secret.value);
        secret.value.file().ok_or_else(message)
    }

    /// Every secret; those of callers with the caller's name.
    pub(super) fn all_secrets(&self) -> impl Iterator<Item = (Option<&Name>, &Value<Reference>)> {
        let callers = self.replies.iter().flat_map(|replies| &replies.callers);
        let of_callers = callers.map(|(caller, secret)| (Some(caller), secret));
        self.secrets.iter().map(|secret| (None, secret)).chain(of_callers)
    }
}

/// Reads one source; `None` if required keys are missing or wrong. Problems go to the section's.
pub(super) fn read(name: &Name, section: Section<'_>, context: &Context<'_>) -> Option<Source> {
    if name.as_str() == INTERNAL_SOURCE {
        section.problem(Fault::new(
            format!("'{name}' is the source of the receiver's own events"),
            "give this one another name; a handler takes the receiver's own by its source alone",
        ));
    }
    let mut scheme = read_provider(&section, context);
    let (repeats, replays) = read_repeats(&section);
    let file = scheme.as_ref().map(|scheme| Arc::clone(&scheme.value));
    if let (Some(scheme), Some(repeats)) = (&mut scheme, &repeats) {
        scheme.value = Arc::new(Scheme::clone(&scheme.value).with_repeats(repeats.value));
    }
    let path = read_path(&section, name);
    let secrets = read_secrets(&section, context);
    let verify_token =
        section.parse("verify_token", |text: String| Reference::parse(&text, context.folder));
    let methods = read_methods(&section, scheme.as_ref());
    let allow_unsigned = section.get::<bool>("allow_unsigned");
    let public_url = read_public_url(&section, scheme.as_ref().map(|scheme| &*scheme.value));
    let senders = section.texts("sender");
    let replies = replies::read(&section, scheme.as_ref(), context);
    let tolerance = read_tolerance(&section, file.as_deref());
    if let Some(file) = file.as_ref().filter(|_| replies.is_none()) {
        check_repeats(&section, file, tolerance, repeats.as_ref(), replays.as_ref());
    }
    let max_body = ranged(&section, "max_body", "body_default_bytes");
    let on_redelivery = parsed::<OnRedelivery>(&section, "on_redelivery");
    if let Some(scheme) = &scheme {
        check_signing(&section, scheme, allow_unsigned, secrets.is_some(), replies.as_ref());
        check_verify_token(&section, &scheme.value);
        if scheme.value.proof().covers_url() && !section.has("public_url") {
            let message = format!("provider '{}' signs the URL", scheme.value.name());
            let help = "add public_url, the URL that the provider was given";
            section.problem(Fault::new(message, help));
        }
        check_senders(&section, &scheme.value, senders.as_deref());
        check_hmacs(
            &section,
            &scheme.value,
            secrets.as_ref().map_or(0, Vec::len),
            replies.as_ref(),
        );
        if replies.is_some() {
            let message =
                "repeats has no effect with reply = \"handler\": the id of a request is its key";
            section.refuse("repeats", message, "remove repeats");
        }
        let tolerance = tolerance.or(scheme.value.proof().tolerance());
        if replies.is_some() && tolerance.is_some_and(|tolerance| tolerance > TOLERANCE_RUNS) {
            let message = "a source that answers cannot hold a request, which a tolerance over 1 h needs after a restore";
            section.problem(Fault::new(message, "lower the tolerance to 1h at most"));
        }
    }
    let at = section.here();
    section.finish();
    let senders: Vec<String> = senders.into_iter().flatten().map(|read| read.value).collect();
    let mut scheme = scheme?.value;
    if replies.is_some() {
        scheme = Arc::new(Scheme::clone(&scheme).with_keys());
    }
    for sender in &senders {
        scheme = Arc::new(Scheme::clone(&scheme).with_sender(sender));
    }
    if let Some(tolerance) = tolerance {
        scheme = Arc::new(Scheme::clone(&scheme).with_tolerance(tolerance));
    }
    let body_limit_bytes = max_body
        .map(|read| read.value)
        .or(scheme.setup().delivery.body_limit_bytes)
        .unwrap_or(context.limits.body_default_bytes);
    let mut own = Scheme::clone(&scheme).with_max_body(body_limit_bytes);
    if let Some(url) = &public_url {
        own = own.with_queries(&url.queries);
    }
    let scheme = Arc::new(own);
    Some(Source {
        name: name.clone(),
        at,
        path: path?,
        scheme,
        secrets: secrets.unwrap_or_default(),
        verify_token,
        methods,
        public_url: public_url.as_ref().map(|url| without_password(&url.base)),
        signed_url: public_url.map(|url| url.base),
        senders,
        body_limit_bytes,
        on_redelivery: on_redelivery.map_or(OnRedelivery::Ignore, |read| read.value),
        sets_repeats: repeats.is_some(),
        replies,
    })
}

fn read_provider(section: &Section<'_>, context: &Context<'_>) -> Option<Value<Arc<Scheme>>> {
    section.demand("provider", format!("add provider = \"NAME\"; {NAMES}"));
    let Value { value: name, at } = section.get::<String>("provider")?;
    match context.catalogue.get(&name) {
        Ok(scheme) => Some(Value::new(scheme, at)),
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
    match (scheme.value.proof().is_absent(), allowed) {
        (true, Some(allow)) if replies.is_some() => {
            let message = "a source that answers must know its callers";
            section.reject(&allow.at, message, "remove allow_unsigned");
        }
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
    match (scheme.value.proof().is_absent(), secrets.as_ref().or(callers.as_ref())) {
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

/// Reads `repeats`, and the position of `replays`.
fn read_repeats(section: &Section<'_>) -> (Option<Value<Repeats>>, Option<At>) {
    let repeats = section.parse("repeats", |text: String| text.parse::<Repeats>());
    let replays = section.parse("replays", |text: String| match text.as_str() {
        "run" => Ok(()),
        _ => Err(format!("must be 'run', not '{text}'")),
    });
    (repeats, replays.map(|read| read.at))
}

/// Checks `repeats` and `replays` against the provider's `file`, with the source's tolerance if it has one.
fn check_repeats(
    section: &Section<'_>,
    file: &Scheme,
    tolerance: Option<Duration>,
    repeats: Option<&Value<Repeats>>,
    replays: Option<&At>,
) {
    let scheme = match tolerance {
        Some(tolerance) => file.clone().with_tolerance(tolerance),
        None => file.clone(),
    };
    let own = repeats.map_or(file.identity().repeats, |read| read.value);
    // Without either key the file itself was checked.
    let at = repeats.map(|read| read.at.clone()).or_else(|| section.place_of("tolerance"));
    if let (Some(at), Err(fault)) = (at, scheme.check_repeats(own, replays.is_some())) {
        section.report(&at, fault);
    }
    let needs_replays = |one: &Value<Repeats>| scheme.check_repeats(one.value, false).is_err();
    if let Some(at) = replays
        && !repeats.is_some_and(needs_replays)
        && (repeats.is_some() || !section.has("repeats"))
    {
        let message =
            "replays has no effect: repeats needs no permission for captured requests here";
        section.reject(at, message, "remove replays");
    }
}

/// How old a signed time may be at this source. It may not be shorter than in the provider's file where that is over what
/// clocks need: then the provider sends a request again with the time of the first attempt.
fn read_tolerance(section: &Section<'_>, scheme: Option<&Scheme>) -> Option<Duration> {
    let scheme = scheme?;
    let provider = scheme.name();
    let Some(own) = scheme.proof().tolerance() else {
        let message = format!("provider '{provider}' signs no time");
        section.refuse("tolerance", &message, "remove tolerance");
        return None;
    };
    let read = section.parse("tolerance", |tolerance: Duration| {
        if own > TOLERANCE_AHEAD && tolerance < own {
            let own = duration_text(own);
            let message = format!(
                "is shorter than that of provider '{provider}' ({own}), which its re-sends need"
            );
            return Err(Fault::new(message, format!("write at least {own}, or leave it out")));
        }
        scheme.check_tolerance(tolerance).map(|()| tolerance)
    });
    read.map(|read| read.value)
}

/// Checks that a source whose provider signs for all its customers names its senders, and that no other source does.
fn check_senders(section: &Section<'_>, scheme: &Scheme, senders: Option<&[Value<String>]>) {
    let (provider, proof) = (scheme.name(), scheme.proof());
    let Some(word) = proof.sender_word() else {
        let message = format!("requests of provider '{provider}' name no sender");
        section.refuse("sender", &message, "remove sender");
        return;
    };
    let help = format!("add sender = \"…\", {word}");
    match senders {
        // A value of another kind is reported when it is read.
        None if section.has("sender") => {}
        None => section.problem(Fault::new(
            format!("provider '{provider}' sends for others too, and 'sender' is missing"),
            help,
        )),
        Some([]) => section.refuse("sender", "the list is empty", &help),
        Some([_, second, ..]) if proof.signs_sender() => {
            let message =
                format!("provider '{provider}' signs the sender, so there can be only one");
            section.reject(&second.at, message, "make a source for each");
        }
        Some(all) => {
            for Value { value: text, at } in all {
                if let Err(wrong) = proof.check_sender(text) {
                    let help = format!("write {word}");
                    section.reject(at, format!("'{text}' {wrong}"), help);
                }
            }
        }
    }
}

/// Checks what one forged request can cost.
fn check_hmacs(section: &Section<'_>, scheme: &Scheme, secrets: usize, replies: Option<&Replies>) {
    let secrets = secrets + replies.map_or(0, |replies| replies.callers.len());
    let forms = 1 + scheme.alternatives().len();
    if scheme.proof().signs_content() && secrets * forms > HMACS_COUNT {
        let (count, provider) = (secrets * forms, scheme.name());
        let form = if forms == 1 { "form" } else { "forms" };
        section.problem(Fault::new(
            format!("a forged request would cost {count} HMACs of its body: {secrets} secrets, each in {forms} {form} of provider '{provider}'"),
            format!("give it {} secrets at most, or divide it into several sources", HMACS_COUNT / forms),
        ));
    }
}

/// The references; `None` if the key is absent or one of them is wrong.
fn read_secrets(section: &Section<'_>, context: &Context<'_>) -> Option<Vec<Value<Reference>>> {
    let texts = section.texts("secrets")?;
    let count = texts.len();
    if count == 0 {
        let help = "name at least one, such as \"file:/path\"";
        section.refuse("secrets", "the list is empty", help);
    }
    let references = read_references(section, texts, context.folder);
    (count > 0 && references.len() == count).then_some(references)
}

fn check_verify_token(section: &Section<'_>, scheme: &Scheme) {
    let provider = scheme.name();
    if !scheme.challenge().needs_verify_token() {
        let message = format!("provider '{provider}' uses no verify token");
        section.refuse("verify_token", &message, "remove it");
    } else if !section.has("verify_token") {
        section.problem(Fault::new(
            format!("provider '{provider}' sends a challenge that needs 'verify_token', which is missing"),
            format!("add verify_token = \"file:/path/to/{provider}.verify\"; docs/providers.md says what it holds"),
        ));
    }
}

/// The methods that the operator can name.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// The methods of deliveries: POST, unless the operator names others. GET only if nothing is signed.
fn read_methods(section: &Section<'_>, scheme: Option<&Value<Arc<Scheme>>>) -> Vec<&'static str> {
    let proof = scheme.map(|scheme| scheme.value.proof());
    let signs = proof.is_some_and(|proof| proof.signs_content());
    let signs_method = proof
        .and_then(|proof| proof.signed_content())
        .is_some_and(|content| content.has(&Part::Method));
    let read = section.parse("methods", |methods: Vec<String>| {
        let has = |method: &str| methods.iter().any(|one| one == method);
        match methods.iter().find(|one| !METHODS.contains(&one.as_str())) {
            Some(other) => {
                Err(Fault::from(format!("'{other}' is not one of {}", METHODS.join(", "))))
            }
            None if methods.is_empty() => {
                Err("the list is empty: the source would take nothing".into())
            }
            None if has("GET") && signs => Err(Fault::new(
                "a GET has no body, so its signature would prove nothing about the request",
                "remove \"GET\", or choose a provider with a token or without a proof",
            )),
            None if methods != ["POST"] && signs_method => {
                Err("the provider signs the method, and sends POST".into())
            }
            None => Ok(METHODS.into_iter().filter(|method| has(method)).collect()),
        }
    });
    read.map_or_else(|| vec!["POST"], |read| read.value)
}

fn read_path(section: &Section<'_>, name: &Name) -> Option<Value<String>> {
    if !section.has("path") {
        return Some(Value::new(format!("/hooks/{name}"), section.here()));
    }
    section.parse("path", |path: String| match bad_path(&path) {
        None => Ok(path),
        Some(wrong) => Err(format!("'{path}' {wrong}")),
    })
}

/// Why `path` cannot be a source's. It must be what every proxy and library leaves unchanged, because two
/// spellings of one path could reach two sources.
fn bad_path(path: &str) -> Option<&'static str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&b);
    let has_step = path.split('/').any(|step| matches!(step, "." | ".."));
    first_wrong([
        (!path.starts_with('/'), "does not start with '/'"),
        (path.contains(['?', '#']), "has a query or a fragment; the path alone chooses the source"),
        (!path.bytes().all(plain), "has a character that a URL's path does not show as it is"),
        (path.contains("//") || has_step, "is not normal: it has an empty, '.' or '..' step"),
        (RESERVED_PATHS.contains(&path), "is answered by the receiver itself"),
    ])
}

/// The first of these texts that is true.
fn first_wrong<const N: usize>(checks: [(bool, &'static str); N]) -> Option<&'static str> {
    checks.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, wrong)| wrong)
}

/// The URL that the provider was given.
struct PublicUrl {
    /// The URL without a query.
    base: String,
    /// `None` is none; empty if any query is accepted.
    queries: Vec<Option<String>>,
}

/// The URL without the name and password that it may have.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let start = authority.rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[start..])
}

/// Reads one URL, or several that differ in their queries. An error quotes none: they may have passwords.
fn read_public_url(section: &Section<'_>, scheme: Option<&Scheme>) -> Option<PublicUrl> {
    let texts = section.texts("public_url")?;
    let signs_url = scheme.is_some_and(|scheme| scheme.proof().signs_url());
    let example =
        "write the URL that the provider was given, such as \"https://hooks.example.org/square\"";
    let mut read: Option<PublicUrl> = None;
    for Value { value: url, at } in &texts {
        if let Some(wrong) = bad_url(url, signs_url) {
            section.reject(at, format!("the URL {wrong}"), example);
            return None;
        }
        let (base, query) = match url.split_once('?') {
            Some((base, query)) => (base, Some(query.to_owned())),
            None => (url.as_str(), None),
        };
        let known =
            read.get_or_insert_with(|| PublicUrl { base: base.to_owned(), queries: vec![] });
        if known.base != base {
            let message = "the URLs of a source may differ only in their query";
            section.reject(at, message, "make one source for each URL");
        }
        known.queries.push(query);
    }
    if read.is_none() {
        section.refuse("public_url", "the list is empty", example);
    }
    let mut url = read?;
    if url.queries.iter().all(Option::is_none) {
        url.queries.clear();
    }
    Some(url)
}

fn bad_url(url: &str, is_signed: bool) -> Option<&'static str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else { return Some("does not start with https:// or http://") };
    let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|_| !host.ends_with(']'));
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    first_wrong([
        (host.is_empty(), "has no host"),
        (
            authority.contains('@') && !is_signed,
            "has a user name, and the provider does not sign it",
        ),
        (behind.contains('?') && !is_signed, "has a query, and the provider does not sign it"),
        (behind.contains('#'), "has a fragment"),
        (
            port.is_some_and(|port| !is_port(port)),
            "has a port that is not a number; in a password write '/' as %2F, '?' as %3F, '#' as %23",
        ),
        (
            !rest.bytes().all(|byte| byte.is_ascii_graphic()),
            "has a space or another character that a URL cannot have",
        ),
    ])
}
