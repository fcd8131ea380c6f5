//! Reads `[answer]` of a provider file. Only the parent module calls it.

use bytes::Bytes;

use super::values::parsed;
use crate::document::{Fault, Section};
use crate::limits::ANSWER_TEXT_BYTES;
use crate::provider::place::Place;
use crate::provider::template::{Part, Template};
use crate::provider::{AnswerText, Answers, Scheme};

/// The statuses of a refusal that have another meaning, here or for the provider.
const NOT_REFUSED: [u16; 4] = [405, 408, 410, 413];

/// The answers to deliveries. `duplicate` is as `accepted` if it is missing.
pub(super) fn read(root: &Section<'_>) -> Answers {
    let Some(section) = root.section("answer") else { return Answers::default() };
    let details = section.value::<bool>("details").unwrap_or_default();
    let good = |key| section.section(key).map(|own| one(own, good_status));
    let accepted = good("accepted").unwrap_or_default();
    let duplicate = good("duplicate").unwrap_or_else(|| accepted.clone());
    let pending = good("pending");
    let refused = section.section("refused").map(|own| one(own, refused_status));
    let key = section.parse("key", |text: String| match text.as_str() {
        "signed" => Ok(Place::Signed),
        _ => match Place::parse(&text)? {
            Place::Digest | Place::New => Err(format!("'{text}' is not a key: use event.id")),
            place => Ok(place),
        },
    });
    section.finish();
    let (refused, key) = (refused.unwrap_or_default(), key.map(|key| key.value));
    Answers { details, accepted, duplicate, refused, pending, key }
}

/// Reports the problems that involve other tables of the file.
pub(super) fn check_scheme(root: &Section<'_>, scheme: &Scheme) {
    let signed = scheme.proof.signed_content();
    if scheme.answers.key.is_some() && signed.is_some_and(|signed| signed.has(&Part::Id)) {
        root.problem(Fault::new(
            "answer.key takes the place of event.id, whose header {id} signs",
            "write {header:NAME} in place of {id}",
        ));
    }
    if scheme.answers.key != Some(Place::Signed) {
        return;
    }
    let varies =
        |signed: &Template| signed.has(&Part::Timestamp) || signed.headers().next().is_some();
    match signed {
        None => root.problem("answer.key is \"signed\", but nothing is signed"),
        Some(signed) if varies(signed) => root.problem(
            "answer.key is \"signed\", but a time or a header is signed too, which a repeated request has anew",
        ),
        Some(_) => {}
    }
}

fn one(section: Section<'_>, to_status: fn(u64) -> Result<u16, Fault>) -> AnswerText {
    let status = section.parse("status", to_status).map(|status| status.value);
    let kind = section.parse("type", |kind: String| match is_media_type(&kind) {
        true => Ok(kind),
        false => Err(format!("'{kind}' is not a media type such as application/json")),
    });
    let body = parsed(&section, section.get::<String>("body"), |body| {
        let is_plain = |letter: char| !letter.is_control() || letter == '\n';
        match body.len() {
            0 => Err("is empty, as is an answer without it: remove it".to_owned()),
            bytes if bytes > ANSWER_TEXT_BYTES => {
                Err(format!("has {bytes} bytes, and may have {ANSWER_TEXT_BYTES}"))
            }
            _ if !body.chars().all(is_plain) => Err("has a control character".to_owned()),
            _ => Ok(body),
        }
    });
    if section.has("body") && !section.has("type") {
        let help = "add it, such as type = \"text/plain\"";
        section.problem(Fault::new("an answer has a 'body' without a 'type'", help));
    } else if section.has("type") && !section.has("body") {
        section.problem("an answer has a 'type' without a 'body'");
    }
    if status == Some(204) && section.has("body") {
        section.problem("an answer with status 204 has no body");
    }
    if let (Some(kind), Some(body)) = (&kind, &body) {
        let essence = kind.value.split(';').next().unwrap_or_default().trim_end();
        let is_json =
            essence.eq_ignore_ascii_case("application/json") || essence.ends_with("+json");
        if is_json && serde_json::from_str::<serde::de::IgnoredAny>(body).is_err() {
            section.report(&kind.at, "the 'body' is not JSON");
        }
    }
    section.finish();
    let content = kind.zip(body).map(|(kind, body)| (kind.value, Bytes::from(body)));
    AnswerText { status, content }
}

/// Every status of these tells a provider that nothing must be sent again.
fn good_status(status: u64) -> Result<u16, Fault> {
    match u16::try_from(status) {
        Ok(status @ (200..=202 | 204)) => Ok(status),
        _ => Err("must be one of 200, 201, 202, 204".into()),
    }
}

fn refused_status(status: u64) -> Result<u16, Fault> {
    match u16::try_from(status) {
        Ok(410) => Err("must not be 410: several providers then remove the webhook".into()),
        Ok(status @ 400..=499) if !NOT_REFUSED.contains(&status) => Ok(status),
        _ => Err("must be 400 to 499, without 405, 408, 410 and 413".into()),
    }
}

/// A type and a subtype, with parameters if there are some (RFC 9110, section 8.3.1).
fn is_media_type(text: &str) -> bool {
    let is_token = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let names = essence.split_once('/');
    is_plain
        && text.len() <= MEDIA_TYPE_BYTES
        && names.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

const MEDIA_TYPE_BYTES: usize = 100;
