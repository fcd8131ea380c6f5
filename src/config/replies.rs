//! Reads the keys of a source with `reply = "handler"`: how its requests get their handler's answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::document::{At, Fault, Section, Value};
use crate::limits::Limits;
use crate::model::Name;
use crate::payload::Pointer;
use crate::provider::Scheme;

use super::read::{Context, header};
use super::secrets::{Reference, read_references};
use super::shown;

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
    /// How long an error is kept that may pass.
    #[serde(serialize_with = "shown::duration")]
    pub(crate) keep_errors: Duration,
    /// The fields of the body that identify a request; if empty, the whole body does.
    #[serde(rename = "request_fields", serialize_with = "shown::texts")]
    pub(crate) fields: Vec<Pointer>,
    /// The caller of each secret; empty if the source has one caller.
    pub(crate) callers: Vec<(Name, Value<Reference>)>,
    pub(crate) caller_header: Option<Value<String>>,
    pub(crate) certificate_header: Option<Value<String>>,
    /// `None` without a bound.
    pub(crate) requests_per_minute: Option<u32>,
}

/// The keys that have no effect without `reply = "handler"`.
const KEYS: &str = "reply_wait keep_answers keep_error_answers request_fields callers caller_header certificate_header \
    requests_per_minute";

/// How the source answers; `None` if it does not answer with its handler's answer. Problems go to the
/// section's.
pub(super) fn read(
    section: &Section<'_>,
    scheme: Option<&Value<Arc<Scheme>>>,
    context: &Context<'_>,
) -> Option<Replies> {
    let reply = section.parse("reply", |text: String| match &*text {
        "accepted" => Ok(false),
        "handler" => Ok(true),
        _ => Err(format!("must be 'accepted' or 'handler', not '{text}'")),
    });
    let Some(Value { at, .. }) = reply.filter(|reply| reply.value) else {
        for key in KEYS.split(' ') {
            let message =
                "a delivery to this source gets the answer that it is stored, and nothing more";
            let help = "add reply = \"handler\" where requests get their handler's answer";
            section.refuse(key, message, help);
        }
        return None;
    };
    section.refuse(
        "on_redelivery",
        "a repeated request to this source gets the stored answer",
        "remove it: a repeat runs again only what is known to have failed",
    );
    let fields = section.list("request_fields", |text| Pointer::parse(&text)).into_iter();
    let duration = |key, limit| {
        let at = section.place_of(key).unwrap_or_else(|| section.here());
        Value::new(context.duration(section, key, limit), at)
    };
    let mut wait = duration("reply_wait", "reply_wait_millis");
    let sends = |provider: &Value<Arc<Scheme>>| provider.value.setup().delivery.deadline;
    if let (false, Some(deadline)) = (section.has("reply_wait"), scheme.and_then(sends)) {
        wait.value = wait.value.min(answered_within(deadline));
    }
    let mut keep = duration("keep_answers", "keep_answers_millis");
    // A captured request runs again once its key is free, if it does not grow stale.
    let signs_no_time = |provider: &Value<Arc<Scheme>>| {
        let proof = provider.value.proof();
        proof.signs_content() && proof.tolerance().is_none()
    };
    if !section.has("keep_answers") && scheme.is_some_and(signs_no_time) {
        keep.value = Limits::duration(context.limits.keep_payloads_millis);
    }
    let requests = context.number(section, "requests_per_minute", "requests_per_minute_count");
    let replies = Replies {
        at,
        wait,
        keep,
        keep_errors: duration("keep_error_answers", "keep_error_answers_millis").value,
        fields: fields.map(|field| field.value).collect(),
        callers: read_callers(section, context.folder),
        caller_header: header(section, "caller_header"),
        certificate_header: header(section, "certificate_header"),
        requests_per_minute: u32::try_from(requests).ok().filter(|&requests| requests > 0),
    };
    if let Some(scheme) = scheme {
        check_provider(section, &replies, scheme);
    }
    Some(replies)
}

/// How long a request may wait for its answer if its sender waits for `deadline`: the rest is for the way there and back.
pub(super) fn answered_within(deadline: Duration) -> Duration {
    deadline * 4 / 5
}

/// Checks that no third party can send a request of the provider with another key, or as another caller.
fn check_provider(section: &Section<'_>, replies: &Replies, provider: &Value<Arc<Scheme>>) {
    let Value { value: scheme, at } = provider;
    let keyed = Scheme::clone(scheme).with_keys();
    let (name, proof, identity) = (keyed.name(), keyed.proof(), keyed.identity());
    if identity.has_lists() || identity.id_is_generated() {
        let why = match identity.has_lists() {
            true => "several events in one request, so there is no one answer",
            false => "no key, so a repeated request would run again",
        };
        section.reject(
            at,
            format!("a request of provider '{name}' has {why}"),
            "choose provider = \"bearer\", whose callers send a key with each request",
        );
    } else if !identity.has_id() {
        section.reject(
            at,
            format!(
                "provider '{name}' sends no key: only the body's digest tells its requests apart"
            ),
            "choose provider = \"bearer\", whose callers send a key with each request",
        );
    } else if proof.signs_content() && !proof.covers_id() {
        section.reject(
            at,
            format!("the signature of provider '{name}' leaves the key out"),
            "an attacker who has captured a request could have it run again under another key; choose provider = \"bearer\"",
        );
    }
    match &replies.certificate_header {
        Some(header) if proof.signs_content() => section.reject(
            &header.at,
            format!("provider '{name}' signs its requests, and has no certificates"),
            "remove certificate_header, or choose provider = \"certificate\"",
        ),
        None if proof.is_absent() && identity.has_id() => section.reject(
            at,
            format!("provider '{name}' proves nothing about who asks"),
            "add certificate_header, the header in which a trusted proxy names the client's certificate, or choose provider = \"bearer\"",
        ),
        _ => {}
    }
    if let Some(header) = &replies.caller_header
        && proof.leaves_out(&header.value)
    {
        section.reject(
            &header.at,
            format!("the signature of provider '{name}' leaves {} out", header.value),
            "an attacker who has captured a request could have it run again for another caller; remove caller_header",
        );
    }
}

/// `[sources.NAME.callers]`: each caller's name, and its secrets.
fn read_callers(section: &Section<'_>, folder: &Path) -> Vec<(Name, Value<Reference>)> {
    let Some(callers) = section.section("callers") else { return Vec::new() };
    let mut all: Vec<(Name, Value<Reference>)> = Vec::new();
    if callers.members().next().is_none() {
        let help = "name at least one, such as shop = [\"file:/path\"]";
        callers.problem(Fault::new("no caller is named", help));
    }
    for (caller, secrets) in callers.members() {
        let name = match caller.parse::<Name>() {
            Ok(name) => name,
            Err(wrong) => {
                callers.problem(wrong.to_string());
                continue;
            }
        };
        for secret in read_references(section, secrets.texts().unwrap_or_default(), folder) {
            match all.iter().find(|(_, other)| other.value == secret.value) {
                Some((other, _)) => {
                    let message =
                        format!("'{}' is also a secret of caller '{other}'", secret.value);
                    section.report(&secret.at, message);
                }
                None => all.push((name.clone(), secret)),
            }
        }
    }
    all
}
