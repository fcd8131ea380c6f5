//! Reads the tables `[signature]`, `[secret]` and `[timestamp]` of a provider file, which say how a
//! delivery is proven. Only the parent module calls it.

use std::time::Duration;

use super::values::{header_names, parsed, word};
use crate::document::{OneOrMany, Section};
use crate::limits::TOLERANCE_MAX;
use crate::model::is_header_name;
use crate::payload::Pointer;
use crate::provider::template::Template;
use crate::provider::{
    Encoding, Format, Hash, KeyText, Proof, Signature, Stamp, StampPlace, StampUnit,
};

/// The value of `signature.algorithm`.
#[derive(Clone, Copy)]
enum Algorithm {
    Hmac(Hash),
    Token,
    Unsigned,
}

/// The signature and the timestamp. The signature is `None` after a problem, and `Some(None)` for
/// `algorithm = "none"`.
pub(super) fn read(root: &Section<'_>) -> (Option<Option<Signature>>, Option<Stamp>) {
    let stamp = root.section("timestamp").and_then(timestamp);
    let key = root.section("secret").map(key_text);
    let help = "add it; algorithm = \"none\" where nothing is signed";
    let Some(section) = root.required_section("signature", help) else { return (None, stamp) };
    let algorithm = word(
        &section,
        "algorithm",
        &[
            ("hmac-sha1", Algorithm::Hmac(Hash::Sha1)),
            ("hmac-sha256", Algorithm::Hmac(Hash::Sha256)),
            ("hmac-sha512", Algorithm::Hmac(Hash::Sha512)),
            ("token", Algorithm::Token),
            ("none", Algorithm::Unsigned),
        ],
    );
    if key.is_some() && matches!(algorithm, Some(Algorithm::Token | Algorithm::Unsigned)) {
        root.problem("[secret] says how a key is made, but the algorithm uses none");
    }
    let key = key.flatten().unwrap_or(KeyText::Text);
    let signature = match algorithm {
        Some(Algorithm::Unsigned) => Some(None),
        Some(Algorithm::Token) => carried(&section, Some(Proof::Token)).map(Some),
        Some(Algorithm::Hmac(hash)) => carried(&section, hmac(&section, hash, key)).map(Some),
        None => {
            // Reads the other keys, so that a wrong algorithm does not also report them as unknown.
            carried(&section, hmac(&section, Hash::Sha256, key));
            None
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
    let headers = header_names(section, section.required::<OneOrMany>("header"));
    let repeatable = section.get::<bool>("repeatable").is_some_and(|v| v.value);
    let prefix = section.get::<String>("prefix").map(|v| v.value).unwrap_or_default();
    let format = format(section);
    Some(Signature { headers: headers?, repeatable, prefix, format: format?, proof: proof? })
}

fn format(section: &Section<'_>) -> Option<Format> {
    #[derive(Clone, Copy)]
    enum Kind {
        Plain,
        Pairs,
        List,
    }
    let kinds = [("plain", Kind::Plain), ("pairs", Kind::Pairs), ("list", Kind::List)];
    let kind = if section.has("format") { word(section, "format", &kinds)? } else { Kind::Plain };
    match kind {
        Kind::Plain => Some(Format::Plain),
        Kind::Pairs => {
            let (separator, label) = (filled(section, "separator"), filled(section, "label"));
            Some(Format::Pairs { separator: separator?, label: label? })
        }
        Kind::List => Some(Format::List { label: filled(section, "label")? }),
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
    #[derive(Clone, Copy)]
    enum Kind {
        Text,
        Base64,
        Hex,
    }
    let kinds = [("text", Kind::Text), ("base64", Kind::Base64), ("hex", Kind::Hex)];
    let key = word(&section, "encoding", &kinds).map(|kind| match kind {
        Kind::Text => KeyText::Text,
        Kind::Hex => KeyText::Hex,
        Kind::Base64 => KeyText::Base64 {
            prefix: section.get::<String>("prefix").map(|v| v.value).unwrap_or_default(),
        },
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
