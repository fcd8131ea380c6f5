//! `[sources.NAME]` with `reply = "handler"`: how its requests get their handler's answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::document::{At, Section, Value};
use crate::limits::Limits;
use crate::model::{Name, is_header_name};
use crate::provider::Scheme;
use crate::provider::place::Pointer;

use super::read::{Context, ranged};
use super::secrets::{Reference, read_references};
use super::shown;

/// What a source says about its answers.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Replies {
    /// The place of `reply`.
    #[serde(skip)]
    pub(super) at: At,
    /// How long a repeated request waits.
    #[serde(serialize_with = "shown::placed_duration")]
    pub(crate) wait: Value<Duration>,
    /// How long a key is kept.
    #[serde(serialize_with = "shown::placed_duration")]
    pub(crate) keep: Value<Duration>,
    /// How long an answer is kept that says "not now".
    #[serde(serialize_with = "shown::duration")]
    pub(crate) keep_errors: Duration,
    /// The fields of the body that identify a request; where empty, the whole body does.
    #[serde(rename = "request_fields", serialize_with = "shown::texts")]
    pub(crate) fields: Vec<Pointer>,
    /// The caller of each secret; empty where the source has one caller.
    pub(crate) callers: Vec<(Name, Value<Reference>)>,
    pub(crate) caller_header: Option<Value<String>>,
    pub(crate) certificate_header: Option<Value<String>>,
    /// None where they are not bounded.
    pub(crate) requests_per_minute: Option<u32>,
}

/// The keys that mean nothing without `reply = "handler"`.
const KEYS: [&str; 8] = [
    "reply_wait",
    "keep_answers",
    "keep_error_answers",
    "request_fields",
    "callers",
    "caller_header",
    "certificate_header",
    "requests_per_minute",
];

/// Whether the source answers with what its handler answers, and how. Problems go to the section's.
pub(super) fn read(
    section: &Section<'_>,
    scheme: Option<&Value<Arc<Scheme>>>,
    context: &Context<'_>,
) -> Option<Replies> {
    let at = section.place_of("reply");
    let replies = section.get::<String>("reply").is_some_and(|reply| {
        if !["accepted", "handler"].contains(&reply.value.as_str()) {
            let message = format!("must be 'accepted' or 'handler', not '{}'", reply.value);
            section.problems().push(reply.at.problem(message, None));
        }
        reply.value == "handler"
    });
    let Some(at) = at.filter(|_| replies) else {
        for at in KEYS.into_iter().filter_map(|key| section.place_of(key)) {
            let help = "add reply = \"handler\" where requests get their handler's answer";
            section.problems().push(at.problem(
                "a delivery to this source is told that it is stored, and nothing more",
                Some(help.to_owned()),
            ));
        }
        return None;
    };
    if let Some(at) = section.place_of("on_redelivery") {
        let help = "remove it: a repeat runs what is known to have failed, and nothing else";
        let message = "whoever asks this source again gets the answer";
        section.problems().push(at.problem(message, Some(help.to_owned())));
    }
    let millis = |key, limit: &str, default| {
        let read = ranged(section, key, limit);
        let read = read.unwrap_or_else(|| Value { value: default, at: section.here() });
        Value { value: Limits::duration(read.value), at: read.at }
    };
    let limits = context.limits;
    let wait = millis("reply_wait", "reply_wait_millis", limits.reply_wait_millis);
    let keep = millis("keep_answers", "keep_answers_millis", limits.keep_answers_millis);
    let keep_errors =
        millis("keep_error_answers", "keep_error_answers_millis", limits.keep_error_answers_millis);
    let requests = ranged(section, "requests_per_minute", "requests_per_minute_count");
    let requests = requests.map_or(limits.requests_per_minute_count, |read| read.value);
    let replies = Replies {
        at,
        wait,
        keep,
        keep_errors: keep_errors.value,
        fields: read_fields(section),
        callers: read_callers(section, context.folder),
        caller_header: header(section, "caller_header"),
        certificate_header: header(section, "certificate_header"),
        requests_per_minute: u32::try_from(requests).ok().filter(|&requests| requests > 0),
    };
    if let Some(scheme) = scheme {
        fits(section, &replies, scheme);
    }
    Some(replies)
}

/// Whether the provider's requests can have keys, and callers, that nobody else can use.
fn fits(section: &Section<'_>, replies: &Replies, scheme: &Value<Arc<Scheme>>) {
    let (provider, at) = (scheme.value.name(), &scheme.at);
    let push = |at: &At, message: String, help: &str| {
        section.problems().push(at.problem(message, Some(help.to_owned())));
    };
    if scheme.value.makes_ids() {
        push(
            at,
            format!("provider '{provider}' takes the body's digest for a key where there is none"),
            "choose provider = \"bearer\", whose callers send a key with each request",
        );
    } else if scheme.value.signs() && !scheme.value.signs_id() {
        push(
            at,
            format!("the signature of provider '{provider}' leaves the key out"),
            "whoever has captured a request could have it run again under another key; choose provider = \"bearer\"",
        );
    }
    match (&replies.certificate_header, scheme.value.signs()) {
        (Some(header), true) => push(
            &header.at,
            format!("provider '{provider}' signs its requests, and has no certificates"),
            "remove certificate_header, or choose provider = \"certificate\"",
        ),
        (None, _) if scheme.value.is_unsigned() && !scheme.value.makes_ids() => push(
            at,
            format!("provider '{provider}' proves nothing about who asks"),
            "add certificate_header, the header in which a trusted proxy names the client's certificate, or choose provider = \"bearer\"",
        ),
        _ => {}
    }
    if let Some(header) =
        replies.caller_header.as_ref().filter(|own| scheme.value.leaves_out(&own.value))
    {
        push(
            &header.at,
            format!("the signature of provider '{provider}' leaves {} out", header.value),
            "whoever has captured a request could have it run again for another caller; remove caller_header",
        );
    }
}

fn header(section: &Section<'_>, key: &'static str) -> Option<Value<String>> {
    let header = section.get::<String>(key)?;
    if is_header_name(&header.value) {
        return Some(header);
    }
    let message = format!("'{}' is not a header name", header.value);
    section.problems().push(header.at.problem(message, None));
    None
}

fn read_fields(section: &Section<'_>) -> Vec<Pointer> {
    let read = |text: Value<String>| match Pointer::parse(&text.value) {
        Ok(pointer) => Some(pointer),
        Err(wrong) => {
            section.problems().push(text.at.problem(wrong, None));
            None
        }
    };
    section.texts("request_fields").unwrap_or_default().into_iter().filter_map(read).collect()
}

/// `[sources.NAME.callers]`: each caller's name, and its secrets.
fn read_callers(section: &Section<'_>, folder: &Path) -> Vec<(Name, Value<Reference>)> {
    let Some(callers) = section.section("callers") else { return Vec::new() };
    let mut all: Vec<(Name, Value<Reference>)> = Vec::new();
    let named = callers.named_texts();
    if named.is_empty() {
        let help = "name at least one, such as shop = [\"file:/path\"]";
        callers.problem("no caller is named", Some(help.to_owned()));
    }
    for (caller, secrets) in named {
        let name = match caller.parse::<Name>() {
            Ok(name) => name,
            Err(wrong) => {
                callers.problem(wrong.to_string(), None);
                continue;
            }
        };
        for Value { value: text, at } in read_references(section, secrets, folder) {
            match all.iter().find(|(_, other)| other.value == text) {
                Some((other, _)) => {
                    let message = format!("'{text}' is also a secret of caller '{other}'");
                    section.problems().push(at.problem(message, None));
                }
                None => all.push((name.clone(), Value { value: text, at })),
            }
        }
    }
    all
}
