//! Reads `[[handshake]]` of a provider file. Only the parent module calls it.

use super::values::{one_of, parsed};
use crate::document::{Fault, Raw, Section, Value};
use crate::model::is_header_name;
use crate::provider::handshake::{ChallengeProof, Handshake, Spot, Text};
use crate::provider::place::Place;
use crate::provider::{Algorithm, Mechanism, Scheme};

/// The challenges; those of `like` if the file has none.
pub(super) fn read(root: &Section<'_>, like: Option<&Scheme>) -> Vec<Handshake> {
    let Some(all) = root.raw("handshake") else {
        return like.map(|like| like.challenge.0.clone()).unwrap_or_default();
    };
    let items = all.items().into_iter().flatten();
    items.filter_map(Raw::section).filter_map(one).collect()
}

fn one(section: Section<'_>) -> Option<Handshake> {
    let method = if section.has("method") {
        one_of(&section, "method", ["POST", "GET", "HEAD", "OPTIONS"])
    } else {
        Some("POST")
    };
    let place = |value: Option<Value<String>>| parsed(&section, value, |text| spot(&text));
    let wanted = section.section("where").map(|wanted| {
        let read = |(text, value): (String, Value<String>)| {
            let place =
                value.convert(section.problems(), |value| Ok::<_, Fault>((spot(&text)?, value)));
            place.map(|read| (read.value.0, Some(read.value.1).filter(|value| value != "*")))
        };
        wanted.strings().into_iter().filter_map(read).collect::<Vec<_>>()
    });
    let proof =
        match one_of(&section, "proof", ["signature", "verify_token", "registration", "none"]) {
            Some("verify_token") => place(section.required("token")).map(ChallengeProof::Token),
            Some("signature") => Some(ChallengeProof::Signature),
            Some("registration") => Some(ChallengeProof::Registration),
            other => other.map(|_| ChallengeProof::Nothing),
        };
    let value = place(section.get("value"));
    let is_hex = section.has("is") && one_of(&section, "is", ["hex", "any"])? == "hex";
    let status = section.parse("status", |status: u64| match u16::try_from(status) {
        Ok(status @ (200..=202 | 204)) => Ok(status),
        _ => Err("must be one of 200, 201, 202, 204"),
    });
    let is_json = section.has("type") && one_of(&section, "type", ["text", "json"])? == "json";
    let body = section.parse("answer", |text: String| {
        let text = Text::parse(&text);
        // A placeholder stands within a string.
        let sample = text.fill(|_| "x".to_owned());
        let is_text = serde_json::from_str::<serde::de::IgnoredAny>(&sample).is_err();
        if is_json && is_text {
            Err("is not JSON with each placeholder in quotes")
        } else {
            Ok(text)
        }
    });
    let headers = section.section("headers").map(|headers| {
        let strings = headers.strings();
        for (name, value) in &strings {
            let plain = |b: u8| matches!(b, b' '..=b'~');
            if !is_header_name(name) || !value.value.bytes().all(plain) {
                headers.reject(&value.at, format!("'{name}' is not a header line"), "");
            }
        }
        strings.into_iter().map(|(name, value)| (name, Text::parse(&value.value))).collect()
    });
    let handshake = Handshake {
        method: method?,
        wanted: wanted.unwrap_or_default(),
        proof: proof?,
        value,
        is_hex,
        status: status.map_or(200, |status| status.value),
        is_json,
        body: body.map_or(Text(Vec::new()), |body| body.value),
        headers: headers.unwrap_or_default(),
    };
    check(&section, &handshake);
    section.finish();
    Some(handshake)
}

fn spot(text: &str) -> Result<Spot, String> {
    match (text.split_once(':'), Place::parse(text)) {
        (Some(("query", name)), _) if !name.is_empty() => Ok(Spot::Query(name.to_owned())),
        (_, Ok(place @ (Place::Header(_) | Place::Json(_) | Place::Form(_)))) => {
            Ok(Spot::Request(place))
        }
        _ => Err(format!(
            "must be one of query:NAME, header:NAME, json:/POINTER, form:FIELD, not '{text}'"
        )),
    }
}

/// Reports the problems that involve several keys of one challenge.
fn check(section: &Section<'_>, one: &Handshake) {
    let says = |is_wrong: bool, message: &str| {
        if is_wrong {
            section.problem(message);
        }
    };
    let in_body = |spot: &Spot| matches!(spot, Spot::Request(Place::Json(_) | Place::Form(_)));
    let in_query = |spot: &Spot| matches!(spot, Spot::Query(_));
    let is_post = one.method == "POST";
    says(
        is_post && one.wanted.is_empty(),
        "'where' is missing: every delivery would be a challenge",
    );
    says(!is_post && one.spots().any(in_body), "only a POST has a body");
    says(one.is_signed() && !is_post, "only a POST is signed");
    says(
        one.is_signed() && one.spots().any(in_query),
        "the query of a signed challenge is not read",
    );
    says(
        one.echoes() && one.value.is_none(),
        "'value' is missing: the answer has a placeholder for it",
    );
    let registers = one.proof == ChallengeProof::Registration;
    says(registers && (one.value.is_none() || !is_post), "a registration is a POST with a 'value'");
    says(!one.echoes() && !registers && one.value.is_some(), "the answer does not have the value");
}

/// Reports the problems that involve other tables of the file.
pub(super) fn check_scheme(root: &Section<'_>, scheme: &Scheme) {
    let is_hmac = scheme.proof.signature.as_ref().is_some_and(|own| {
        matches!(own.mechanism, Mechanism::Signed { algorithm: Algorithm::Hmac(_), .. })
    });
    for one in &scheme.challenge.0 {
        if one.is_signed() && scheme.proof.is_absent() {
            root.problem("handshake.proof is \"signature\", but nothing is signed");
        }
        if one.is_signed() && scheme.proves_elements() {
            root.problem(
                "handshake.proof is \"signature\", but each element has its token, and a challenge has none",
            );
        }
        if one.proof == ChallengeProof::Registration && scheme.proof.is_absent() {
            root.problem("handshake.proof is \"registration\", but the algorithm uses no secret");
        }
        if one.is_keyed() && !is_hmac {
            root.problem("handshake.answer has an HMAC, but the algorithm makes none");
        }
    }
}
