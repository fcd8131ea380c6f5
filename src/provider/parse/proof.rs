//! Reads the tables `[signature]`, `[secret]` and `[timestamp]` of a provider file, which say how a
//! delivery is proven. Only the parent module calls it.

use std::time::Duration;

use super::values::{header_names, one_of, parsed, word};
use crate::document::{OneOrMany, Section};
use crate::limits::{TOLERANCE_MAX, TOLERANCE_MIN};
use crate::model::is_header_name;
use crate::payload::Pointer;
use crate::payload::in_query;
use crate::provider::place::Place;
use crate::provider::template::Template;
use crate::provider::{
    Algorithm, BodyClaim, Encoding, Format, Hash, Jwt, JwtAlgorithm, KeyText, MERGED, Mechanism,
    Scheme, Signature, Stamp, StampPlace, StampUnit,
};

/// The signature and the timestamp; tables that the file lacks are those of `like`. The signature is `None` after a
/// problem, and `Some(None)` for `algorithm = "none"`.
pub(super) fn read(
    root: &Section<'_>,
    like: Option<&Scheme>,
) -> (Option<Option<Signature>>, Option<Stamp>) {
    let stamp = root.section("timestamp").map(timestamp);
    let stamp = stamp.unwrap_or_else(|| like.and_then(|like| like.proof.timestamp.clone()));
    let key = root.section("secret").map(key_text);
    if let Some(like) = like.filter(|_| !root.has("signature")) {
        let mut signature = like.proof.signature.clone();
        if let (
            Some(Signature { mechanism: Mechanism::Signed { key: own, .. }, .. }),
            Some(Some(key)),
        ) = (&mut signature, key)
        {
            *own = key;
        }
        return (Some(signature), stamp);
    }
    let help = "add it; algorithm = \"none\" where nothing is signed";
    let Some(section) = root.required_section("signature", help) else { return (None, stamp) };
    let algorithm = word(&section, "algorithm", &ALGORITHMS);
    let signature = match algorithm {
        Some(Kind::None) => Some(None),
        Some(Kind::Token) => carried(&section, Some(Mechanism::Token)).map(Some),
        Some(Kind::Jwt) => carried(&section, jwt(&section)).map(Some),
        // Of a wrong algorithm too, so that the other keys are not reported as unknown.
        None => carried(&section, signed(&section, Algorithm::Ed25519, None)).and(None),
        Some(Kind::Signed(known)) => {
            let inherited =
                like.filter(|_| !root.has("secret")).and_then(|like| like_key(like, known));
            let key = key.flatten().or(inherited);
            carried(&section, signed(&section, known, key)).map(Some)
        }
    };
    section.finish();
    let item = matches!(&stamp, Some(Stamp { place: StampPlace::Item(_), .. }));
    let unpaired = |signature: &Signature| !matches!(signature.format, Format::Pairs { .. });
    let lists = |signature: &Signature| matches!(&signature.mechanism, Mechanism::Signed { signed, .. } if signed.item().is_some());
    if signature.iter().flatten().any(|signature| lists(signature) && unpaired(signature)) {
        root.problem(
            "{headers:ITEM} and {item:ITEM} are an item of the signature header, whose format is not \"pairs\"",
        );
    }
    if item && signature.iter().flatten().any(unpaired) {
        root.problem(
            "timestamp.from is an item of the signature header, whose format is not \"pairs\"",
        );
    }
    (signature, stamp)
}

/// How a secret becomes a key of this kind in the provider that the file is like.
fn like_key(like: &Scheme, algorithm: Algorithm) -> Option<KeyText> {
    let is_hmac = |algorithm: Algorithm| matches!(algorithm, Algorithm::Hmac(_));
    match &like.proof.signature.as_ref()?.mechanism {
        Mechanism::Signed { algorithm: own, key, .. } => {
            (is_hmac(*own) == is_hmac(algorithm)).then(|| key.clone())
        }
        Mechanism::Jwt(_) | Mechanism::Token => None,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Signed(Algorithm),
    Jwt,
    Token,
    None,
}

const ALGORITHMS: [(&str, Kind); 10] = [
    ("hmac-md5", Kind::Signed(Algorithm::Hmac(Hash::Md5))),
    ("hmac-sha1", Kind::Signed(Algorithm::Hmac(Hash::Sha1))),
    ("hmac-sha256", Kind::Signed(Algorithm::Hmac(Hash::Sha256))),
    ("hmac-sha512", Kind::Signed(Algorithm::Hmac(Hash::Sha512))),
    ("ed25519", Kind::Signed(Algorithm::Ed25519)),
    ("ecdsa-p256", Kind::Signed(Algorithm::EcdsaP256)),
    ("rsa-sha256", Kind::Signed(Algorithm::RsaSha256)),
    ("jwt", Kind::Jwt),
    ("token", Kind::Token),
    ("none", Kind::None),
];

/// Combines `mechanism` with the keys that say how the header carries it.
fn carried(section: &Section<'_>, mechanism: Option<Mechanism>) -> Option<Signature> {
    let field = section.parse("field", |text: String| match Place::parse(&text)? {
        Place::Json(pointer) => Ok(pointer),
        _ => Err(format!("'{text}' is not a json:/POINTER")),
    });
    let query = section.get::<String>("query");
    let is_token = matches!(mechanism, None | Some(Mechanism::Token));
    let form = section.value::<String>("form");
    if form.is_some() && field.is_some() != is_token {
        section.problem(
            "signature.form goes with 'field' for a token, and stands alone for a signature",
        );
    }
    if query.is_some() && !is_token {
        section.problem("signature.query carries tokens: what signs the request is elsewhere");
    }
    let headers = match (&query, &field) {
        (Some(query), _) => Some(vec![in_query(&query.value)]),
        (None, Some(_)) => Some(Vec::new()),
        (None, None) if form.is_some() => Some(Vec::new()),
        (None, None) => {
            let headers = section.required::<OneOrMany>("header");
            parsed(section, headers, |OneOrMany(names)| header_names(names))
        }
    };
    let body_digest = section.value::<String>("body_digest");
    let sender = section.parse("sender", |text: String| match Place::parse(&text)? {
        place @ (Place::Header(_) | Place::Json(_)) => Ok(place),
        _ => Err(format!("'{text}' is neither header:NAME nor json:/POINTER")),
    });
    let sender = sender.map(|sender| sender.value);
    let repeatable = section.get::<bool>("repeatable").is_some_and(|v| v.value);
    let prefix = section.value::<String>("prefix").unwrap_or_default();
    let format = format(section);
    if let (true, Some(Format::Pairs { separator, .. })) = (repeatable, &format)
        && separator.contains(MERGED)
    {
        section.problem(
            "signature.repeatable: its lines can be merged by ', ', which is the separator",
        );
    }
    let (format, mechanism, field) = (format?, mechanism?, field.map(|field| field.value));
    let headers = headers?;
    Some(Signature {
        headers,
        repeatable,
        prefix,
        format,
        mechanism,
        field,
        form,
        body_digest,
        sender,
    })
}

fn format(section: &Section<'_>) -> Option<Format> {
    if !section.has("format") {
        return Some(Format::Plain);
    }
    match one_of(section, "format", ["plain", "pairs", "list", "commas"])? {
        "pairs" => {
            let (separator, label) = (filled(section, "separator"), filled(section, "label"));
            let unless = section.value::<String>("unless").filter(|label| !label.is_empty());
            let equals = section.value::<String>("equals").unwrap_or_else(|| "=".to_owned());
            Some(Format::Pairs { separator: separator?, equals, label: label?, unless })
        }
        "commas" => Some(Format::Commas),
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

const ENCODINGS: [(&str, Encoding); 4] = [
    ("hex", Encoding::Hex),
    ("hex-any-case", Encoding::HexAnyCase),
    ("base64", Encoding::Base64),
    ("base64url", Encoding::Base64Url),
];

fn signed(section: &Section<'_>, algorithm: Algorithm, key: Option<KeyText>) -> Option<Mechanism> {
    let encoding = word(section, "encoding", &ENCODINGS);
    let signed = parsed(section, section.required::<String>("signed"), |text| {
        Template::parse(&text).map_err(|wrong| format!("'{text}' {wrong}"))
    });
    let is_hmac = matches!(algorithm, Algorithm::Hmac(_));
    let key = key.unwrap_or(if is_hmac { KeyText::Text } else { KeyText::Spki });
    match (is_hmac, &key) {
        (true, KeyText::Spki) => {
            section.problem("secret.encoding is for a public key: an HMAC has none")
        }
        (false, KeyText::Text | KeyText::Sha1) => {
            section.problem("secret.encoding: the bytes of a text are not a public key")
        }
        _ => {}
    }
    Some(Mechanism::Signed { algorithm, encoding: encoding?, signed: signed?, key })
}

fn jwt(section: &Section<'_>) -> Option<Mechanism> {
    let known = |text: &String| {
        let wrong = || format!("must be some of HS256, RS256, ES256, not '{text}'");
        JwtAlgorithm::named(text).ok_or_else(wrong)
    };
    let algorithms = parsed(section, section.required::<Vec<String>>("jwt"), |texts| {
        let all = texts.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() { Err("the list is empty".to_owned()) } else { Ok(all) }
    });
    let body = if section.has("body_claim") || section.has("body_encoding") {
        let (name, encoding) =
            (filled(section, "body_claim"), word(section, "body_encoding", &ENCODINGS));
        Some(BodyClaim {
            name: name?,
            encoding: encoding?,
            signed: Template::parse("{body}").ok()?,
        })
    } else {
        None
    };
    let issuer = section.value::<String>("issuer");
    let audience_is_url = section.has("audience") && one_of(section, "audience", ["url"]).is_some();
    let sender_claim = section.value::<String>("sender_claim");
    let tolerance = section.has("tolerance").then(|| tolerance(section));
    Some(Mechanism::Jwt(Box::new(Jwt {
        algorithms: algorithms?,
        body,
        issuer,
        audience_is_url,
        sender_claim,
        tolerance: tolerance.flatten(),
    })))
}

fn tolerance(section: &Section<'_>) -> Option<Duration> {
    // `Scheme::check_tolerance` checks what the rest of the file allows.
    parsed(section, section.required::<Duration>("tolerance"), |tolerance| {
        let in_range = (TOLERANCE_MIN..=TOLERANCE_MAX).contains(&tolerance);
        if in_range { Ok(tolerance) } else { Err("must be 1 min to 7 days") }
    })
}

fn key_text(section: Section<'_>) -> Option<KeyText> {
    let key =
        one_of(&section, "encoding", ["text", "base64", "hex", "sha1", "spki"]).map(|encoding| {
            match encoding {
                "base64" => KeyText::Base64 {
                    prefix: section.value::<String>("prefix").unwrap_or_default(),
                },
                "hex" => KeyText::Hex,
                "sha1" => KeyText::Sha1,
                "spki" => KeyText::Spki,
                _ => KeyText::Text,
            }
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
        &[
            ("s", StampUnit::Seconds),
            ("decimal", StampUnit::Decimal),
            ("ms", StampUnit::Millis),
            ("iso8601", StampUnit::Iso8601),
        ],
    );
    let tolerance = tolerance(&section);
    section.finish();
    Some(Stamp { place: place?, unit: unit?, tolerance: tolerance? })
}
