//! Finds combinations of keys that no request can ever satisfy, or that are silently without effect.
//!
//! A file of the first kind would refuse every genuine delivery, and the operator would look for the fault at the sender.
//! Must stay true: for each combination that passes, `verify::possible_tests` finds a genuine request.

use super::super::template::{Part, Template};
use super::super::{Format, Mechanism, Scheme, Signature, Stamp, StampPlace, StampUnit};
use crate::document::{Fault, Section};
use crate::payload::Pointer;

/// Reports both kinds.
pub(super) fn check(root: &Section<'_>, scheme: &Scheme) {
    let Some(signature) = &scheme.proof.signature else { return };
    let report = |message: String, help: &str| root.problem(Fault::new(message, help));
    let in_body = scheme.proof.is_in_body();
    if in_body {
        if !signature.headers.is_empty() {
            report(
                "signature.query and a place in the body are two places of one token".to_owned(),
                "remove one of them",
            );
        }
        if signature.format != Format::Plain && signature.field.is_some() {
            report(
                "signature.format is for headers and forms: a field of JSON holds one signature"
                    .to_owned(),
                "remove format; prefix is what stands before the signature",
            );
        }
        if reads_items(scheme) {
            report(
                "items of the signature are read in a header, and the body carries it".to_owned(),
                "take the time and what is signed from elsewhere",
            );
        }
        let has_no_json = signature.field.is_none() && scheme.identity.form_field.is_none();
        let signed = scheme.proof.signed_content();
        if has_no_json && signed.is_some_and(|signed| signed.pointers().count() > 0) {
            report(
                "signature.form is for forms, and what is signed is in JSON".to_owned(),
                "name the field with the JSON: event.form_field",
            );
        }
        if signature.form.is_some() && signature.form == scheme.identity.form_field {
            report(
                "signature.form and event.form_field are one field".to_owned(),
                "form_field is the one with the event",
            );
        }
        if let Some(part) = signs_itself(signature) {
            report(
                format!("the signature is in what {part} signs: no signature can hold itself"),
                "sign the rest alone, with {json:/POINTER} or {form:FIELD}",
            );
        }
    } else if let Some(fault) = own_header_as_more(scheme, signature) {
        report(fault, "a signature cannot hold itself: name another header");
    }
    let in_header = signature.headers.iter().any(|name| !name.starts_with('?'));
    if signature.repeatable && (in_body || !in_header) {
        report(
            "signature.repeatable is for a header".to_owned(),
            "remove it: a field or parameter with a signature comes once",
        );
    }
    for (key, text) in texts(scheme, signature) {
        if let Some(why) = unusable(&signature.format, key, text, in_body) {
            report(format!("[signature]: {key}, \"{text}\", {why}"), "write it as the sender does");
        }
    }
    let mut names: Vec<&str> = texts(scheme, signature)
        .into_iter()
        .filter(|(key, _)| key.ends_with(ITEM))
        .map(|(_, text)| text)
        .collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        report(
            format!("two items of the signature header are both called '{}'", twice[0]),
            "use different names in label, unless, timestamp.from and signed",
        );
    }
    if let (Format::Pairs { separator, .. }, Some(Stamp { place: StampPlace::Item(_), unit, .. })) =
        (&signature.format, &scheme.proof.timestamp)
        && *unit == StampUnit::Iso8601
        && separator.contains(':')
    {
        report(
            "the time is an item of the signature header, and has the separator in it".to_owned(),
            "an ISO 8601 time has colons: the header is split at something else",
        );
    }
    let is_form = scheme.proof.signs_fields();
    let in_json = scheme
        .proof
        .timestamp
        .as_ref()
        .is_some_and(|stamp| matches!(stamp.place, StampPlace::Json(_)));
    if is_form && in_json && scheme.identity.form_field.is_none() {
        report(
            "timestamp.from is in a JSON body, and a form is signed".to_owned(),
            "name the field with the JSON: event.form_field",
        );
    }
}

/// Whether the time or something signed is an item of the signature header.
fn reads_items(scheme: &Scheme) -> bool {
    let stamp = scheme.proof.timestamp.as_ref().map(|stamp| &stamp.place);
    let signed = scheme.proof.signed_content();
    matches!(stamp, Some(StampPlace::Item(_))) || signed.is_some_and(|one| one.item().is_some())
}

/// The part of the body that is signed and has the signature in it, where the body carries one.
fn signs_itself(signature: &Signature) -> Option<String> {
    let has = |pointer: &Pointer| signature.field.iter().any(|field| holds(pointer, field));
    let has_it = |part: &Part| match part {
        Part::Body | Part::JsonString | Part::Form | Part::UrlForm | Part::Crc32 => true,
        Part::Field(name) => signature.field.is_some() || signature.form.as_ref() == Some(name),
        Part::Json(pointer) | Part::Free(pointer) => has(pointer),
        Part::Lines(members) => members.iter().any(|(_, pointer)| has(pointer)),
        _ => false,
    };
    match &signature.mechanism {
        Mechanism::Signed { signed, .. } => {
            signed.parts().find(|part| has_it(part)).map(Part::to_string)
        }
        Mechanism::Jwt(jwt) => jwt.body.as_ref().map(|claim| format!("the claim '{}'", claim.name)),
        Mechanism::Token => None,
    }
}

/// Whether the value at `outer` has `inner` in it.
fn holds(outer: &Pointer, inner: &Pointer) -> bool {
    inner.steps().starts_with(outer.steps())
}

/// What else the signature's own header would have to be.
fn own_header_as_more(scheme: &Scheme, signature: &Signature) -> Option<String> {
    let own = |name: &str| signature.headers.iter().any(|own| own.eq_ignore_ascii_case(name));
    let proof = &scheme.proof;
    if let Some(name) = proof.naming_header().filter(|name| own(name)) {
        return Some(format!("the header {name} carries the signature and names what is signed"));
    }
    let mut signed = proof.signed_content().into_iter().flat_map(Template::headers);
    if let Some(name) =
        signed.find(|name| own(name)).or_else(|| proof.signed_id_header().filter(|name| own(name)))
    {
        return Some(format!(
            "signature.signed has the header {name}, which carries the signature"
        ));
    }
    let name = proof.time_header().filter(|name| own(name))?;
    Some(format!("timestamp.from is the header {name}, which carries the signature"))
}

/// What a key that names an item of the signature header ends with, see [`texts`].
const ITEM: &str = "item";

/// The texts around a signature, each with what it is.
fn texts<'s>(scheme: &'s Scheme, signature: &'s Signature) -> Vec<(&'static str, &'s str)> {
    let mut all = vec![("prefix", signature.prefix.as_str())];
    match &signature.format {
        Format::Plain | Format::Commas => {}
        Format::List { label } => all.push(("label", label)),
        Format::Pairs { separator, equals, label, unless } => {
            let stamp = scheme.proof.timestamp.as_ref().map(|stamp| &stamp.place);
            let time = stamp.and_then(|place| match place {
                StampPlace::Item(item) => Some(item.as_str()),
                StampPlace::Header(_) | StampPlace::Json(_) => None,
            });
            let signed = scheme.proof.signed_content().and_then(Template::item);
            all.extend([("separator", separator.as_str()), ("equals", equals)]);
            all.push(("label, an item", label));
            all.extend(unless.iter().map(|unless| ("unless, an item", unless.as_str())));
            all.extend(time.map(|time| ("the time's item", time)));
            all.extend(signed.map(|signed| ("the signed item", signed)));
        }
    }
    all
}

/// Why a signature cannot be read with this text.
fn unusable(format: &Format, key: &str, text: &str, in_body: bool) -> Option<String> {
    // Visible ASCII and spaces: what a header's value can be made of in every server.
    if !in_body && !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Some("has characters that a header cannot have".to_owned());
    }
    // All that hex, base64 and times in numbers are made of.
    let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=._-".contains(&byte);
    match (format, key) {
        (_, "separator") if text.bytes().all(is_value) => {
            Some("also occurs in signatures and times: it cannot tell them apart".to_owned())
        }
        (_, "separator") => None,
        (Format::Pairs { .. }, _) if !in_body && text.starts_with(' ') => {
            Some("begins with a space, which servers cut off a header's value".to_owned())
        }
        (Format::Pairs { separator, .. }, "equals") => (text.is_empty()
            || text.contains(separator.as_str()))
        .then(|| "is empty or has the separator in it".to_owned()),
        (Format::Plain | Format::Commas, _) if !in_body && text.starts_with(' ') => {
            Some("begins with a space, which servers cut off a header's value".to_owned())
        }
        (Format::Commas, _) => {
            text.contains(',').then(|| "has a comma, at which the header is split".to_owned())
        }
        (Format::List { .. }, "prefix") => {
            text.contains(' ').then(|| "has a space, at which the header is split".to_owned())
        }
        (Format::List { .. }, _) => text
            .contains([' ', ','])
            .then(|| "has a space or a comma, at which the header is split".to_owned()),
        (Format::Pairs { separator, .. }, "prefix") => {
            text.contains(separator.as_str()).then(|| format!("has the separator '{separator}'"))
        }
        (Format::Pairs { separator, equals, .. }, _) => (text.contains(equals.as_str())
            || text.contains(separator.as_str()))
        .then(|| format!("has '{equals}' or the separator '{separator}' in it")),
        (Format::Plain, _) => None,
    }
}
