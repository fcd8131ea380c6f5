//! Finds combinations of keys that no request can ever satisfy, or that are silently without effect.
//!
//! A file with one of them would refuse every genuine delivery, and the sender would have to be suspected first.
//! Must stay true: `verify::possible_tests` finds a genuine request for every file that passes.

use super::super::template::{Part, Template};
use super::super::{Format, Mechanism, Scheme, Signature, StampPlace};
use crate::document::{Fault, Section};
use crate::payload::Pointer;

/// Reports each such combination.
pub(super) fn check(root: &Section<'_>, scheme: &Scheme) {
    let Some(signature) = &scheme.proof.signature else { return };
    let report = |message: String, help: &str| root.problem(Fault::new(message, help));
    if signature.field.is_some() {
        if !signature.headers.is_empty() {
            report(
                "signature.query and signature.field are two places of one token".to_owned(),
                "remove one of them",
            );
        }
        if signature.format != Format::Plain {
            report(
                "signature.format is for headers: a field of the body holds one signature"
                    .to_owned(),
                "remove format; prefix is what stands before the signature",
            );
        }
        if let Some(part) = signs_itself(scheme, signature) {
            report(
                format!("signature.field is in what {part} signs: no signature can hold itself"),
                "sign the other members with {json:/POINTER}",
            );
        }
    } else if let Some(fault) = signed_header(scheme, signature) {
        report(fault, "a signature cannot hold itself: leave its header out");
    }
    let by_line = signature.headers.iter().any(|name| name.starts_with(char::is_alphanumeric));
    if signature.repeatable && (signature.field.is_some() || !by_line) {
        report(
            "signature.repeatable is for a header".to_owned(),
            "remove it: a field or parameter with a signature comes once",
        );
    }
    for (key, text) in texts(scheme, signature) {
        if let Some(why) = unusable(&signature.format, key, text, signature.field.is_some()) {
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
            "give label, unless, timestamp.from and the item in signed each its own",
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

/// The part of the body that is signed and has the signature in it.
fn signs_itself(scheme: &Scheme, signature: &Signature) -> Option<String> {
    let field = signature.field.as_ref()?;
    let has_it = |part: &Part| match part {
        Part::Body
        | Part::JsonString
        | Part::Form
        | Part::UrlForm
        | Part::Field(_)
        | Part::Crc32 => true,
        Part::Json(pointer) | Part::Free(pointer) => holds(pointer, field),
        Part::Lines(members) => members.iter().any(|(_, pointer)| holds(pointer, field)),
        _ => false,
    };
    match &signature.mechanism {
        Mechanism::Signed { signed, .. } => {
            signed.parts().find(|part| has_it(part)).map(Part::to_string)
        }
        Mechanism::Jwt(jwt) => jwt.body.as_ref().map(|claim| format!("the claim '{}'", claim.name)),
        Mechanism::Token => scheme.proof.signed_content().map(Template::to_string),
    }
}

/// Whether the value at `outer` has `inner` in it.
fn holds(outer: &Pointer, inner: &Pointer) -> bool {
    inner.steps().starts_with(outer.steps())
}

/// The signature's own header, where it is signed or carries the time.
fn signed_header(scheme: &Scheme, signature: &Signature) -> Option<String> {
    let own = |name: &str| signature.headers.iter().any(|own| own.eq_ignore_ascii_case(name));
    let proof = &scheme.proof;
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
        Format::Pairs { separator, label, unless } => {
            let stamp = scheme.proof.timestamp.as_ref().map(|stamp| &stamp.place);
            let time = stamp.and_then(|place| match place {
                StampPlace::Item(item) => Some(item.as_str()),
                StampPlace::Header(_) | StampPlace::Json(_) => None,
            });
            let signed = scheme.proof.signed_content().and_then(Template::item);
            all.extend([("separator", separator.as_str()), ("label, an item", label)]);
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
    // All that hex, base64, times and tokens are made of.
    let is_value = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=._-".contains(&byte);
    match (format, key) {
        (_, "separator") if text.bytes().all(is_value) => {
            Some("also occurs in signatures and times: it cannot tell them apart".to_owned())
        }
        (_, "separator") => None,
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
        (Format::Pairs { separator, .. }, _) => (text.contains('=')
            || text.contains(separator.as_str()))
        .then(|| format!("has '=' or the separator '{separator}' in it")),
        (Format::Plain, _) => None,
    }
}
