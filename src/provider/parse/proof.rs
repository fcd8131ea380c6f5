//! Reads the tables `[signature]`, `[secret]` and `[timestamp]` of a provider file, which say how a
//! delivery is proven. Only the parent module calls it.

use std::time::Duration;

use super::values::{header_names, one_of, parsed, word};
use crate::document::{OneOrMany, Section};
use crate::limits::TOLERANCE_MAX;
use crate::model::is_header_name;
use crate::payload::Pointer;
use crate::provider::template::Template;
use crate::provider::{
    Encoding, Format, Hash, KeyText, Proof, Scheme, Signature, Stamp, StampPlace, StampUnit,
};

/// The signature and the timestamp; tables that the file lacks are those of `like`. The signature is `None` after a
/// problem, and `Some(None)` for `algorithm = "none"`.
pub(super) fn read(
    root: &Section<'_>,
    like: Option<&Scheme>,
) -> (Option<Option<Signature>>, Option<Stamp>) {
    let stamp = root.section("timestamp").map(timestamp);
    let stamp = stamp.unwrap_or_else(|| like.and_then(|like| like.timestamp.clone()));
    let key = root.section("secret").map(key_text);
    if let Some(like) = like.filter(|_| !root.has("signature")) {
        let mut signature = like.signature.clone();
        if let (Some(Signature { proof: Proof::Hmac { key: own, .. }, .. }), Some(Some(key))) =
            (&mut signature, key)
        {
            *own = key;
        }
        return (Some(signature), stamp);
    }
    let help = "add it; algorithm = \"none\" where nothing is signed";
    let Some(section) = root.required_section("signature", help) else { return (None, stamp) };
    let algorithms = ["hmac-sha1", "hmac-sha256", "hmac-sha512", "token", "none"];
    let algorithm = one_of(&section, "algorithm", algorithms);
    let key = key.flatten().unwrap_or(KeyText::Text);
    let signature = match algorithm {
        Some("none") => Some(None),
        Some("token") => carried(&section, Some(Proof::Token)).map(Some),
        hash => {
            // Of a wrong algorithm too, so that the other keys are not reported as unknown.
            let known = match hash {
                Some("hmac-sha1") => Hash::Sha1,
                Some("hmac-sha512") => Hash::Sha512,
                _ => Hash::Sha256,
            };
            carried(&section, hmac(&section, known, key)).filter(|_| hash.is_some()).map(Some)
        }
    };
    section.finish();
    let item = matches!(&stamp, Some(Stamp { place: StampPlace::Item(_), .. }));
    let unpaired = |signature: &Signature| !matches!(signature.format, Format::Pairs { .. });
    if item && signature.iter().flatten().any(unpaired) {
        root.problem(
            "timestamp.from is an item of the signature header, whose format is not \"pairs\"",
        );
    }
    (signature, stamp)
}

/// Combines `proof` with the keys that say how the header carries it.
fn carried(section: &Section<'_>, proof: Option<Proof>) -> Option<Signature> {
    let headers = section.required::<OneOrMany>("header");
    let headers = parsed(section, headers, |OneOrMany(names)| header_names(names));
    let repeatable = section.get::<bool>("repeatable").is_some_and(|v| v.value);
    let prefix = section.value::<String>("prefix").unwrap_or_default();
    let format = format(section);
    Some(Signature { headers: headers?, repeatable, prefix, format: format?, proof: proof? })
}

fn format(section: &Section<'_>) -> Option<Format> {
    if !section.has("format") {
        return Some(Format::Plain);
    }
    match one_of(section, "format", ["plain", "pairs", "list"])? {
        "pairs" => {
            let (separator, label) = (filled(section, "separator"), filled(section, "label"));
            Some(Format::Pairs { separator: separator?, label: label? })
        }
        "list" => Some(Format::List { label: filled(section, "label")? }),
        _ => Some(Format::Plain),
    }
}

/// A required string that must not be empty.
fn filled(section: &Section<'_>, key: &'static str) -> Option<String> {
    parsed(section, section.required::<String>(key), |text| {
        if text.is_empty() { Err("must not be empty") } else { Ok(text) }
    })
}

fn hmac(section: &Section<'_>, hash: Hash, key: KeyText) -> Option<Proof> {
    let encoding = word(
        section,
        "encoding",
        &[
            ("hex", Encoding::Hex),
            ("hex-any-case", Encoding::HexAnyCase),
            ("base64", Encoding::Base64),
            ("base64url", Encoding::Base64Url),
        ],
    );
    let signed = parsed(section, section.required::<String>("signed"), |text| {
        Template::parse(&text).map_err(|wrong| format!("'{text}' {wrong}"))
    });
    Some(Proof::Hmac { hash, encoding: encoding?, signed: signed?, key })
}

fn key_text(section: Section<'_>) -> Option<KeyText> {
    let key =
        one_of(&section, "encoding", ["text", "base64", "hex"]).map(|encoding| match encoding {
            "base64" => {
                KeyText::Base64 { prefix: section.value::<String>("prefix").unwrap_or_default() }
            }
            "hex" => KeyText::Hex,
            _ => KeyText::Text,
        });
    section.finish();
    key
}

fn timestamp(section: Section<'_>) -> Option<Stamp> {
    let place =
        parsed(&section, section.required::<String>("from"), |text| match text.split_once(':') {
            Some(("item", label)) if !label.is_empty() => Ok(StampPlace::Item(label.to_owned())),
            Some(("header", name)) if is_header_name(name) => {
                Ok(StampPlace::Header(name.to_owned()))
            }
            Some(("json", pointer)) => Pointer::parse(pointer).map(StampPlace::Json),
            _ => {
                Err(format!("must be one of item:LABEL, header:NAME, json:/POINTER, not '{text}'"))
            }
        });
    let unit = word(
        &section,
        "unit",
        &[("s", StampUnit::Seconds), ("ms", StampUnit::Millis), ("iso8601", StampUnit::Iso8601)],
    );
    let tolerance = parsed(&section, section.required::<Duration>("tolerance"), |tolerance| {
        let in_range = (Duration::from_secs(1)..=TOLERANCE_MAX).contains(&tolerance);
        if in_range { Ok(tolerance) } else { Err("must be 1 s to 1 day") }
    });
    section.finish();
    Some(Stamp { place: place?, unit: unit?, tolerance: tolerance? })
}
