//! Finds the signatures in a request's headers, and the key that made one of them.
//!
//! `verify`, `sign` and `hint` call it. Must stay true: keys and tokens are compared in constant
//! time; a header that libraries could read in two ways is refused.

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::extract::{self, Facts};
use super::keyed::{alphabet, lengths, tag};
use super::public::{self, PublicKey};
use super::{Key, Rejection, Request, jwt, stamp};
use crate::limits::SORTED_FIELDS_COUNT;
use crate::model::{Digest, EventId, Headers, Timestamp, is_header_name, is_same_secret};
use crate::payload::{Pointer, one, only_field, parameters};
use crate::provider::place::Place;
use crate::provider::template::{Blurred, Part, Template};
use crate::provider::{
    Algorithm, Format, KeyText, MERGED, Mechanism, Proof, SENDER_LABEL, Scheme, Signature,
    StampPlace,
};

/// The signatures of one request that a public key is tried on: each costs a hash of the body.
const SIGNATURES_MAX: usize = 8;

/// The most lines of a repeatable signature header. Mollie sends two, while a secret is rotated.
const LINES_MAX: usize = 16;

/// The signatures and the timestamp in a request's headers.
#[derive(Debug, Default)]
pub(super) struct Presented<'h> {
    /// Decoded signatures of the right length, or tokens; not empty unless the scheme is unsigned.
    signatures: Vec<Vec<u8>>,
    /// The timestamp's text, if the scheme has it in a header.
    pub(super) stamp: Option<&'h str>,
    /// The item of the signature header that is signed, or has the names of the signed headers.
    listed: Option<&'h str>,
}

impl<'h> Presented<'h> {
    /// What a request has before it is signed.
    pub(super) fn of_time(stamp: Option<&'h str>, item: Option<&'h str>) -> Self {
        Presented { stamp, listed: item, ..Presented::default() }
    }
}

/// Decodes a secret's text in the form that the scheme requires.
///
/// # Errors
/// Says what is wrong with the text. Does not quote it.
pub fn key(scheme: &Scheme, reference: &str, text: &str) -> Result<Key, String> {
    let others = scheme.alternatives().iter().map(|other| own_key(other, reference, text));
    let others: Vec<_> = others.map(|key| key.map(|key| key.bytes).unwrap_or_default()).collect();
    match own_key(scheme, reference, text) {
        Ok(key) => Ok(Key { others, ..key }),
        Err(wrong) if others.iter().all(|bytes| bytes.is_empty()) => Err(wrong),
        Err(_) => {
            let (reference, bytes) = (reference.to_owned(), Zeroizing::default());
            Ok(Key { reference, bytes, others, public: Vec::new() })
        }
    }
}

/// Decodes a secret's text in the form of one family of the scheme.
fn own_key(scheme: &Scheme, reference: &str, text: &str) -> Result<Key, String> {
    let proof = scheme.proof();
    let Some(signature) = &proof.signature else {
        return Err(format!("{reference}: provider {} takes no secret", scheme.name()));
    };
    let how = match &signature.mechanism {
        Mechanism::Signed { key, .. } => key,
        Mechanism::Jwt(_) | Mechanism::Token => &KeyText::Text,
    };
    let word = proof.secret_word();
    let wrong = |why: String| {
        format!("{reference}: the {word} is wrong for provider {}: {why}", scheme.name())
    };
    if proof.has_public_key() {
        public::refuse_private(text).map_err(wrong)?;
    }
    let mut certified: Vec<PublicKey> = Vec::new();
    let bytes = match how {
        // RFC 7617
        KeyText::Text if signature.is_basic() => match text.contains(':') {
            true => Ok(BASE64.encode(text.as_bytes()).into_bytes()),
            false => Err("user:password".to_owned()),
        },
        KeyText::Text => Ok(text.as_bytes().to_vec()),
        KeyText::Sha1 => Ok(match text.is_empty() {
            true => Vec::new(),
            false => Sha1::digest(text).to_vec(),
        }),
        KeyText::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| "hex".to_owned()),
        KeyText::Base64 { prefix } => {
            let text = text.strip_prefix(prefix.as_str()).unwrap_or(text).as_bytes();
            BASE64.decode(text).or_else(|_| BASE64_NOPAD.decode(text)).map_err(|_| {
                match prefix.as_str() {
                    "" => "base64".to_owned(),
                    prefix => format!("'{prefix}' and base64"),
                }
            })
        }
        KeyText::Spki => {
            certified = public::keys(text).map_err(wrong)?;
            if let Mechanism::Signed { algorithm: own, .. } = &signature.mechanism
                && certified.iter().any(|key| key.algorithm != *own)
            {
                return Err(wrong("it is of another kind".to_owned()));
            }
            match &certified[..] {
                [_, _, ..] => Ok(text.as_bytes().to_vec()),
                _ => Ok(certified.pop().map(|only| only.bytes).unwrap_or_default()),
            }
        }
    };
    let bytes = bytes.map_err(|form| {
        format!("{reference}: the {word} is not {form}, as provider {} writes it", scheme.name())
    })?;
    if bytes.is_empty() {
        return Err(format!("{reference}: the {word} is empty"));
    }
    let public = match &signature.mechanism {
        Mechanism::Signed { algorithm, .. } => match certified.is_empty() {
            true => public::check(*algorithm, &bytes).map(|()| certified).map_err(wrong)?,
            false => certified,
        },
        Mechanism::Jwt(jwt) => jwt::keys(jwt, text).map_err(wrong)?,
        Mechanism::Token => Vec::new(),
    };
    let (reference, bytes) = (reference.to_owned(), Zeroizing::new(bytes));
    Ok(Key { reference, bytes, others: Vec::new(), public })
}

/// Reads the signature headers. Makes every check that does not need the body.
pub(super) fn present<'h>(
    scheme: &'h Scheme,
    headers: &'h Headers,
) -> Result<Presented<'h>, Rejection> {
    let proof = scheme.proof();
    for name in scheme.read_headers() {
        let repeatable = proof.signature.as_ref().is_some_and(|signature| {
            signature.repeatable && signature.headers.iter().any(|h| h.eq_ignore_ascii_case(name))
        });
        if !repeatable && headers.all(name).count() > 1 {
            let detail = format!("header {name} came more than once");
            return Err(Rejection::unproven("repeated_header", detail));
        }
    }
    let Some(signature) = &proof.signature else { return Ok(Presented::default()) };
    if proof.is_in_body() {
        let stamp = stamp_text(proof, headers, &[])?;
        return Ok(Presented { stamp, ..Presented::default() });
    }
    let lines: Vec<&[u8]> = signature.headers.iter().flat_map(|name| headers.all(name)).collect();
    if lines.is_empty() {
        let all: Vec<&str> =
            scheme.families().flat_map(|family| family.proof().headers()).collect();
        let detail = format!("there is no {} header", all.join(" or "));
        return Err(Rejection::unproven("missing_signature", detail));
    }
    let unreadable = || {
        let detail = format!(
            "{} holds no signature in the provider's form",
            signature.headers.join(" and ")
        );
        Rejection::unproven("unreadable_signature", detail)
    };
    let mut texts = Vec::new();
    for line in lines {
        let line = std::str::from_utf8(line).map_err(|_| unreadable())?;
        match signature.repeatable {
            true => texts.extend(line.split(MERGED).take(LINES_MAX + 1)),
            false => texts.push(line),
        }
    }
    if signature.repeatable && texts.len() > LINES_MAX {
        let header = signature.headers.join(" or ");
        let detail = format!("header {header} came more than {LINES_MAX} times");
        return Err(Rejection::unproven("repeated_header", detail));
    }
    let mut signatures = Vec::new();
    let mut items = Vec::new();
    let mut lists = Vec::new();
    let listing = proof.signed_content().and_then(Template::item);
    for line in texts {
        lists.extend(listing.iter().flat_map(|item| items_of(signature, line, item)));
        let (values, stamps) = split(proof, signature, line);
        signatures.extend(values.into_iter().filter_map(|value| decode(signature, value)));
        items.extend(stamps);
    }
    let names = proof.signed_content().is_some_and(Template::lists_headers);
    let listed = listing
        .map(|_| one(lists.into_iter()).ok().flatten().filter(|text| !names || is_list(text)));
    if signatures.is_empty() || listed == Some(None) {
        return Err(unreadable());
    }
    Ok(Presented {
        signatures,
        stamp: stamp_text(proof, headers, &items)?,
        listed: listed.flatten(),
    })
}

/// The values of the items called `label` of a header line in pairs.
fn items_of<'h>(signature: &Signature, line: &'h str, label: &str) -> Vec<&'h str> {
    let Format::Pairs { separator, equals, .. } = &signature.format else { return Vec::new() };
    let pairs = line.split(separator).filter_map(|item| item.split_once(equals));
    pairs.filter(|(name, _)| *name == label).map(|(_, value)| value).collect()
}

/// The most headers that an item can name. Coinbase names two or three.
const LISTED_MAX: usize = 16;

/// Whether these are the names of headers, as Hook0 writes them: in lower case, a space between them, none twice.
fn is_list(names: &str) -> bool {
    let all: Vec<&str> = names.split(' ').collect();
    let is_name = |name: &&str| {
        is_header_name(name) && name.bytes().all(|b| !b.is_ascii_uppercase() && b != b'.')
    };
    all.len() <= LISTED_MAX
        && all.iter().all(is_name)
        && all.iter().enumerate().all(|(at, name)| !all[..at].contains(name))
}

/// The signatures and the timestamps of one header line. Items with other labels are skipped:
/// providers add signature versions, and an unknown version must neither match nor cause a refusal.
pub(super) fn split<'h>(
    proof: &Proof,
    signature: &Signature,
    line: &'h str,
) -> (Vec<&'h str>, Vec<&'h str>) {
    let (items, label): (Vec<_>, _) = match &signature.format {
        Format::Plain => return (vec![line], Vec::new()),
        Format::Commas => return (line.split(',').collect(), Vec::new()),
        Format::List { label } => {
            // Supabase writes ", " between them: a signature ends at the next comma.
            let items = line.split(' ').filter_map(|item| item.split_once(','));
            (items.map(|(name, value)| (name, value.trim_end_matches(','))).collect(), label)
        }
        Format::Pairs { separator, equals, label, unless } => {
            let items = line.split(separator).filter_map(|item| item.split_once(equals));
            let items: Vec<_> = items.collect();
            if unless.as_ref().is_some_and(|other| items.iter().any(|(name, _)| name == other)) {
                return (Vec::new(), Vec::new());
            }
            (items, label)
        }
    };
    let named = |label: &str| {
        let is_own = |name: &str| match label {
            SENDER_LABEL => proof.senders.iter().any(|sender| sender == name),
            _ => name == label,
        };
        let own = items.iter().filter(|(name, _)| is_own(name));
        own.map(|(_, value)| *value).collect()
    };
    match proof.timestamp.as_ref().map(|stamp| &stamp.place) {
        Some(StampPlace::Item(stamp)) => (named(label), named(stamp)),
        _ => (named(label), Vec::new()),
    }
}

/// A signature's bytes; `None` if it is empty, of the wrong length or not in the scheme's form.
fn decode(signature: &Signature, value: &str) -> Option<Vec<u8>> {
    let (prefix, rest) = value.split_at_checked(signature.prefix.len())?;
    let is_prefix = match &signature.mechanism {
        // The names of HTTP's ways to authenticate have no case (RFC 9110, section 11.1).
        Mechanism::Token | Mechanism::Jwt(_) => prefix.eq_ignore_ascii_case(&signature.prefix),
        Mechanism::Signed { .. } => prefix == signature.prefix,
    };
    match &signature.mechanism {
        _ if !is_prefix => None,
        Mechanism::Token => (!rest.is_empty()).then(|| rest.as_bytes().to_vec()),
        Mechanism::Jwt(_) => jwt::is_token(rest).then(|| rest.as_bytes().to_vec()),
        Mechanism::Signed { algorithm, encoding, .. } => {
            let bytes = alphabet(*encoding).decode(rest.as_bytes()).ok()?;
            lengths(*algorithm).contains(&bytes.len()).then_some(bytes)
        }
    }
}

fn stamp_text<'h>(
    proof: &'h Proof,
    headers: &'h Headers,
    items: &[&'h str],
) -> Result<Option<&'h str>, Rejection> {
    let Some(stamp) = &proof.timestamp else { return Ok(None) };
    let (text, at) = match &stamp.place {
        StampPlace::Json(_) => return Ok(None),
        StampPlace::Item(label) => {
            // Libraries differ in which of two timestamps they read, so a sender with two could
            // choose the one that is checked.
            let text = one(items.iter().copied()).map_err(|_| {
                let detail = format!("the signature header has more than one item {label}");
                Rejection::unproven("repeated_header", detail)
            })?;
            (text, format!("item {label} of the signature header"))
        }
        StampPlace::Header(name) => {
            let value = headers.all(name).next();
            let text =
                value.map(|v| std::str::from_utf8(v).map_err(|_| stamp::unreadable(stamp.unit)));
            (text.transpose()?, format!("header {name}"))
        }
    };
    let text = text.ok_or_else(|| {
        Rejection::unproven("missing_timestamp", format!("there is no timestamp: {at}"))
    })?;
    match stamp::parse(text, stamp.unit) {
        Some(_) => Ok(Some(stamp::signed(text, stamp.unit))),
        None => Err(stamp::unreadable(stamp.unit)),
    }
}

/// Reads the parts of the proof that are in the body. `None` where all of it is elsewhere: then the body is not read before
/// the proof.
pub(super) fn read_unproven<'a>(scheme: &'a Scheme, request: &'a Request<'_>) -> Option<Facts<'a>> {
    match scheme.proof() {
        proof if proof.reads_json() => Some(Facts::read(scheme, &request.body)),
        proof => proof.is_in_body().then(|| Facts::unparsed(&request.body)),
    }
}

/// The key that made one of the presented signatures; `None` if the scheme is unsigned. `found` is [`read_unproven`]'s.
pub(super) fn matching<'k>(
    scheme: &Scheme,
    keys: &'k [Key],
    request: &Request<'_>,
    presented: &Presented<'_>,
    found: Option<&Facts<'_>>,
    now: Timestamp,
) -> Result<Option<&'k Key>, Rejection> {
    let Some(signature) = &scheme.proof().signature else { return Ok(None) };
    if keys.is_empty() {
        return Err(Rejection::unproven("no_secret", "the source has no secret"));
    }
    let form_field = scheme.identity().form_field.as_deref();
    if found.is_some_and(Facts::is_json)
        && let Some(signed) = scheme.proof().signed_content()
        && !extract::only_elements(&request.body, form_field, signed.pointers())
    {
        let detail = "the signature covers one element of a list, and the list has more";
        return Err(Rejection::unproven("ambiguous_part", detail));
    }
    let in_body = match found.filter(|_| scheme.proof().is_in_body()) {
        Some(found) => of_body(scheme.proof(), signature, found)?,
        None => Vec::new(),
    };
    let proves = |expected: &[u8]| {
        let fits = |given: &Vec<u8>| bool::from(given.as_slice().ct_eq(expected));
        presented.signatures.iter().chain(&in_body).any(fits)
    };
    let key = match &signature.mechanism {
        Mechanism::Token => keys.iter().find(|key| {
            let fits = |given: &Vec<u8>| is_same_secret(&key.bytes, given);
            presented.signatures.iter().chain(&in_body).any(fits)
        }),
        Mechanism::Jwt(own) => {
            let judged = |token| jwt::matching(own, scheme.proof(), keys, token, request, now);
            let one = one(presented.signatures.iter().chain(&in_body));
            let token = one.ok().flatten().ok_or_else(|| {
                Rejection::unproven("repeated_header", "there is more than one token")
            })?;
            return judged(token).map(Some);
        }
        Mechanism::Signed { algorithm: Algorithm::Hmac(hash), signed, .. } => {
            let pieces = pieces(scheme, signed, request, presented, found)?;
            if scheme.challenge().signs_tokens() && is_token(&pieces) {
                let detail = "the content looks like a token, which a challenge has signed";
                return Err(Rejection::unproven("bad_signature", detail));
            }
            let tag = |key: &Key| key.of(scheme).and_then(|key| tag(*hash, key, &pieces));
            keys.iter().find(|key| tag(key).is_some_and(|tag| proves(&tag)))
        }
        Mechanism::Signed { algorithm, signed, .. } => {
            // `ring` takes a message in one piece.
            let message = pieces(scheme, signed, request, presented, found)?.concat();
            let mut given = presented.signatures.iter().chain(&in_body).take(SIGNATURES_MAX);
            let made = |key: &Key, signature: &Vec<u8>| match &key.public[..] {
                [] => public::verifies(*algorithm, false, &key.bytes, &message, signature),
                all => all.iter().any(|key| key.verifies(&message, signature, false)),
            };
            given.find_map(|signature| keys.iter().find(|key| made(key, signature)))
        }
    };
    let tried = match keys.len() {
        1 => "the secret".to_owned(),
        many => format!("any of the {many} secrets"),
    };
    key.map(Some).ok_or_else(|| {
        Rejection::unproven(
            "bad_signature",
            format!("no signature was made with {tried} over this request"),
        )
    })
}

/// The signatures that the body carries.
fn of_body(
    proof: &Proof,
    signature: &Signature,
    found: &Facts<'_>,
) -> Result<Vec<Vec<u8>>, Rejection> {
    let places = signature.field.iter().cloned().map(Place::Json);
    let places: Vec<Place> =
        places.chain(signature.form.iter().cloned().map(Place::Form)).collect();
    let text = places.iter().find_map(|place| found.at(place).ok().flatten());
    let values = text.as_deref().map(|text| split(proof, signature, text).0).unwrap_or_default();
    let all: Vec<_> = values.into_iter().filter_map(|value| decode(signature, value)).collect();
    if all.is_empty() {
        let places: Vec<String> = places.iter().map(Place::to_string).collect();
        let detail = format!("there is no signature: {}", places.join(", and no "));
        return Err(Rejection::unproven("missing_signature", detail));
    }
    Ok(all)
}

/// The signed content of a request, in pieces so that the body is not copied. `found` is what the body has, for a scheme
/// whose body is read before it is proven.
pub(super) fn pieces<'a>(
    scheme: &'a Scheme,
    signed: &'a Template,
    request: &'a Request<'_>,
    presented: &Presented<'a>,
    found: Option<&'a Facts<'_>>,
) -> Result<Vec<Cow<'a, [u8]>>, Rejection> {
    let proof = scheme.proof();
    if proof.signs_url() && !proof.knows_query(request.query()) {
        let detail = "the query is not in the source's public_url";
        return Err(Rejection::unproven("ambiguous_part", detail));
    }
    if signed.joins_url_and_body() && proof.queries.is_empty() && !ends_before_body(request) {
        let detail = "the query could end elsewhere in the signed content";
        return Err(Rejection::unproven("ambiguous_part", detail));
    }
    let sorts_fields = signed.has(&Part::Form) || signed.has(&Part::UrlForm);
    if sorts_fields && form_urlencoded::parse(&request.body).nth(SORTED_FIELDS_COUNT).is_some() {
        let detail = format!("the form has more than {SORTED_FIELDS_COUNT} fields");
        return Err(Rejection::unproven("ambiguous_part", detail));
    }
    let (stamp, listed) = (presented.stamp, presented.listed);
    let mut missing = None;
    let mut unclear = None;
    let header = |name: &'a str| request.headers.all(name).next();
    let filled = signed.fill(|part| {
        let value: Option<Cow<'a, [u8]>> = match part {
            Part::Body => Some(Cow::Borrowed(&request.body)),
            Part::Method => Some(request.method.as_bytes().into()),
            Part::Url => request.url.map(|url| url.as_bytes().into()),
            Part::UrlForm => request.url.map(|url| {
                let (text, is_clear) = url_form(url, &request.body);
                unclear = unclear.take().or((!is_clear).then(|| part.clone()));
                text.into_bytes().into()
            }),
            Part::Listed(_) => listed.map(|names| {
                let (text, is_clear) = named_headers(names, request);
                unclear = unclear.take().or((!is_clear).then(|| part.clone()));
                text.into()
            }),
            Part::Path => request.url.map(|url| path(url).into_bytes().into()),
            Part::Named(own) => header(own).and_then(|names| {
                let (text, is_clear) = signed_headers(proof, own, names, request)?;
                unclear = unclear.take().or((!is_clear).then(|| part.clone()));
                Some(text.into())
            }),
            Part::OtherPort => request.url.map(|url| other_port(url).into_bytes().into()),
            Part::Timestamp => stamp.map(|stamp| stamp.as_bytes().into()),
            // An id that is signed and empty names nothing.
            Part::Id => {
                let id = proof.signed_id_header().and_then(header);
                id.filter(|id| !id.is_empty()).map(Cow::Borrowed)
            }
            Part::Header(name) => header(name).map(Cow::Borrowed),
            Part::Form => form(scheme, request).map(|(text, is_clear)| {
                unclear = unclear.take().or((!is_clear).then(|| part.clone()));
                text.into_bytes().into()
            }),
            Part::Item(_) => listed.map(|text| text.as_bytes().into()),
            Part::JsonString => {
                let text = std::str::from_utf8(&request.body).ok();
                text.and_then(|text| serde_json::to_vec(text).ok()).map(Cow::Owned)
            }
            Part::Field(name) => {
                only_signed(scheme, request, name).map(|text| text.into_bytes().into())
            }
            Part::Json(pointer) | Part::Free(pointer) => {
                found.and_then(|found| found.signed(pointer)).map(Cow::Borrowed)
            }
            Part::Lines(members) => {
                let lines = found.and_then(|found| lines(members, found));
                lines.map(|(text, is_clear)| {
                    unclear = unclear.take().or((!is_clear).then(|| part.clone()));
                    text.into()
                })
            }
            Part::Crc32 => Some(crc32fast::hash(&request.body).to_string().into_bytes().into()),
            Part::Sender => proof.senders.first().map(|sender| sender.as_bytes().into()),
        };
        value.unwrap_or_else(|| {
            missing = Some(part.clone());
            Cow::Borrowed(&[])
        })
    });
    let filled = filled.map_err(|Blurred { part, literal }| {
        let detail = format!("{part} holds '{literal}', which ends it in the signed content");
        Rejection::unproven("ambiguous_part", detail)
    })?;
    if let Some(part) = unclear {
        let detail = format!("{part} could end elsewhere in the signed content");
        return Err(Rejection::unproven("ambiguous_part", detail));
    }
    match missing {
        None => Ok(filled),
        Some(part) => {
            let detail = format!("{part} is signed, and the request has none");
            Err(Rejection::unproven("missing_part", detail))
        }
    }
}

/// The digest of the signed content of a request that is proven; `None` if nothing is signed.
pub(super) fn digest(
    scheme: &Scheme,
    request: &Request<'_>,
    presented: &Presented<'_>,
    found: &Facts<'_>,
) -> Result<Option<String>, Rejection> {
    let Some(signed) = scheme.proof().signed_content() else { return Ok(None) };
    let pieces = pieces(scheme, signed, request, presented, Some(found))?;
    let mut hash = Sha256::new();
    pieces.iter().for_each(|piece| hash.update(piece));
    // The body is all that a token's template has, and two requests may have the same.
    let token = presented.signatures.first().filter(|_| scheme.identity().id_is_generated());
    if let (Some(token), Some(_)) = (token, scheme.proof().jwt()) {
        let end = token.iter().rposition(|byte| *byte == b'.').unwrap_or(token.len());
        hash.update(&token[..end]);
    }
    Ok(Some(EventId::derived(Digest(hash.finalize().into())).to_string()))
}

/// The digest of what is signed of a body: its checksum, and members. A captured request has it with any event in it; and a
/// re-send, which is signed anew, too.
pub(super) fn digest_of_body(signed: &Template, body: &[u8], found: &Facts<'_>) -> Digest {
    let mut hash = Sha256::new();
    if signed.has(&Part::Crc32) {
        extract::add_part(&mut hash, &crc32fast::hash(body).to_be_bytes());
    }
    for pointer in signed.pointers() {
        extract::add_part(&mut hash, found.signed(pointer).unwrap_or_default());
    }
    Digest(hash.finalize().into())
}

/// The field of a form that is signed alone. Another one would be unsigned content that reaches the handlers.
fn only_signed(scheme: &Scheme, request: &Request<'_>, name: &str) -> Option<String> {
    let signature = scheme.proof().signature.as_ref();
    only_field(&request.body, name, signature.and_then(|own| own.form.as_deref()))
}

/// The digest of what a signature over fields covers of a request: of one field that of its text, however it is spelled,
/// with what is signed around it, which another family may have in the field.
/// Under sorted fields, bytes can move between the URL and the fields, and from one field to the next: all these requests
/// have one digest, as have another spelling of the form and, of a URL with and without its port, both.
pub(super) fn digest_of_form(scheme: &Scheme, request: &Request<'_>) -> Digest {
    let proof = scheme.proof();
    if let Some(signed) = proof.signed_content()
        && let Some(field) = signed.field()
    {
        let text = only_signed(scheme, request, field).unwrap_or_default();
        return Digest::of(signed.around(&text));
    }
    let url = request.url.filter(|_| proof.covers_url()).unwrap_or_default();
    let text = match proof.signed_content().is_some_and(|signed| signed.has(&Part::UrlForm)) {
        true => url_form(url, &request.body).0,
        false => url.to_owned() + &form(scheme, request).unwrap_or_default().0,
    };
    Digest::of(text)
}

/// Whether a URL that the body follows at once ends where it seems to: it has no query, or the body is JSON.
fn ends_before_body(request: &Request<'_>) -> bool {
    let Some(query) = request.query() else { return !request.body.starts_with(b"?") };
    let is_json = request.body.first().is_none_or(|first| b"{[".contains(first));
    is_json && !query.contains(['{', '['])
}

/// The text of `{form}`, which is empty if the URL has the body's digest, and whether it is clear where it begins. `None` if
/// that digest is not the body's.
fn form(scheme: &Scheme, request: &Request<'_>) -> Option<(String, bool)> {
    let (proof, identity) = (scheme.proof(), scheme.identity());
    let parameter = proof.signature.as_ref().and_then(|own| own.body_digest.as_deref());
    let query = request.query().unwrap_or_default();
    let digest = parameter.and_then(|name| one(parameters(query.as_bytes(), name)).transpose());
    if let Some(digest) = digest {
        let own = HEXLOWER.encode(&Sha256::digest(&request.body));
        return digest.is_ok_and(|digest| *digest == own).then(|| (String::new(), true));
    }
    // Only one field, with the expected name: then URL, name and value can be told apart in one way only.
    let is_alone = |field: &String| {
        let mut pairs = form_urlencoded::parse(&request.body);
        pairs.next().is_none_or(|(name, _)| name == **field) && pairs.next().is_none()
    };
    if !identity.form_field.as_ref().is_none_or(is_alone) {
        return Some((String::new(), false));
    }
    let fields = extract::sorted_fields(&request.body, true);
    let is_of_query = query.is_empty() && fields.starts_with('?');
    let kind = request.headers.all("Content-Type").next().map(<[u8]>::to_ascii_lowercase);
    let is_form = kind.is_none_or(|kind| kind.starts_with(b"application/x-www-form-urlencoded"));
    let needs_digest = parameter.is_some() && !is_form && !request.body.is_empty();
    Some((fields, !is_of_query && !needs_digest))
}

/// What `{url+form}` stands for, and whether it can be read in one way only. A query has '=' for each pair, so without '.'
/// it ends at the first one; and without a query no '=' is before the first '.'.
fn url_form(url: &str, form: &[u8]) -> (String, bool) {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let pairs = extract::sorted_pairs(query.as_bytes()).into_iter();
    let query: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
    let (query, fields) = (query.join("&"), extract::sorted_fields(form, false));
    let first = fields.split('.').next().unwrap_or_default();
    let is_clear = if query.is_empty() { !first.contains('=') } else { !query.contains('.') };
    let text = match (query.is_empty(), fields.is_empty()) {
        (true, true) => base.to_owned(),
        (false, false) => format!("{base}?{query}.{fields}"),
        _ => format!("{base}?{query}{fields}"),
    };
    (text, is_clear)
}

/// What `{headers:ITEM}` stands for, and whether it can be read in one way only: the body begins with '{', and no header
/// has one. A header that is missing has no value, as in hook0-client.
fn named_headers(names: &str, request: &Request<'_>) -> (Vec<u8>, bool) {
    let values: Vec<&[u8]> = names.split(' ').flat_map(|name| request.headers.all(name)).collect();
    let is_once = names.split(' ').all(|name| request.headers.all(name).count() <= 1);
    let is_plain = values.iter().all(|value| !value.contains(&b'{'));
    let text = [names.as_bytes(), b".", &values.join(&b'.')].concat();
    (text, is_once && is_plain && request.body.starts_with(b"{"))
}

/// What `{headers-in:NAME}` stands for, and whether it can be read in one way only: no value has in it what begins the next
/// header. `None` if the list is not sorted, in lower case and with `own` and the time's header in it, or if a header of it
/// is missing or there twice.
fn signed_headers(
    proof: &Proof,
    own: &str,
    names: &[u8],
    request: &Request<'_>,
) -> Option<(Vec<u8>, bool)> {
    let names: Vec<&str> = std::str::from_utf8(names).ok()?.split(',').collect();
    let is_name = |name: &&str| is_header_name(name) && !name.contains(char::is_uppercase);
    let is_sorted = names.windows(2).all(|two| two[0] < two[1]);
    let mut needed = proof.time_header().into_iter().chain([own]);
    let is_whole = needed.all(|needed| names.iter().any(|name| name.eq_ignore_ascii_case(needed)));
    if names.len() > NAMED_MAX || !names.iter().all(is_name) || !is_sorted || !is_whole {
        return None;
    }
    let (mut lines, mut is_clear) = (Vec::new(), true);
    for name in names {
        let value = one(request.headers.all(name)).ok()??.trim_ascii();
        let begins = |text: &[u8]| {
            let name = text.iter().position(|&byte| byte == b':').map(|at| &text[..at]);
            name.and_then(|name| std::str::from_utf8(name).ok()).is_some_and(is_header_name)
        };
        is_clear &= !value.split(|&byte| byte == b';').skip(1).any(begins);
        lines.push([name.as_bytes(), b":", value].concat());
    }
    Some((lines.join(&b';'), is_clear))
}

/// The most headers that a header can name. Contentful names its own, some fifteen, and those that its user adds.
pub(super) const NAMED_MAX: usize = 64;

/// What JavaScript's `encodeURI` leaves as it is, and of a query `encodeURIComponent` (ECMA-262, section 19.2.6).
const PLAIN: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');
const OF_PATH: AsciiSet = PLAIN
    .remove(b';')
    .remove(b',')
    .remove(b'/')
    .remove(b'?')
    .remove(b':')
    .remove(b'@')
    .remove(b'&')
    .remove(b'=')
    .remove(b'+')
    .remove(b'$')
    .remove(b'#');

/// What `{path}` stands for: the path as `encodeURI` writes it, and a query as `encodeURIComponent` and it do.
fn path(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let path = rest.find(['/', '?']).map_or("/", |at| &rest[at..]);
    let (path, query) =
        path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let escaped = |text, set| utf8_percent_encode(text, set).to_string();
    let query = query.map(|query| format!("?{}", escaped(query, &PLAIN).replace('%', "%25")));
    escaped(path, &OF_PATH) + &query.unwrap_or_default()
}

/// The URL without its port, or with the standard one if it has none.
fn other_port(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A colon in a password or within the brackets of an IPv6 address is not that of a port.
    let ends = authority.rfind([']', '@']).unwrap_or(0);
    let port = match authority[ends..].rfind(':') {
        Some(at) => return format!("{scheme}://{}{path}", &authority[..ends + at]),
        None if scheme == "http" => 80,
        None => 443,
    };
    format!("{scheme}://{authority}:{port}{path}")
}

/// The longest token that is signed for anybody.
const TOKEN_BYTES: usize = 128;

/// Whether the signed content looks like a token, which a challenge has signed: in base64 or its URL-safe form, without
/// padding.
pub(super) fn is_token(pieces: &[impl AsRef<[u8]>]) -> bool {
    let bytes = || pieces.iter().flat_map(|piece| piece.as_ref());
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_+/".contains(b);
    (1..=TOKEN_BYTES).contains(&bytes().take(TOKEN_BYTES + 1).count()) && bytes().all(plain)
}

/// What `{lines:…}` stands for; `None` if readers could disagree on a value.
fn lines(members: &[(String, Pointer)], found: &Facts<'_>) -> Option<(Vec<u8>, bool)> {
    let (mut lines, mut is_clear) = (Vec::new(), true);
    for (name, pointer) in members {
        let value = found.signed(pointer)?;
        if found.text(pointer).is_some() {
            is_clear &= lines.is_empty() || !value.contains(&b'\n');
            for text in [name.as_bytes(), value] {
                lines.extend_from_slice(text);
                lines.push(b'\n');
            }
        }
    }
    Some((lines, is_clear))
}

/// Writes a signature or a token in the provider's encoding, with its prefix.
pub(super) fn encode(signature: &Signature, bytes: &[u8]) -> String {
    let value = match &signature.mechanism {
        Mechanism::Token | Mechanism::Jwt(_) => String::from_utf8_lossy(bytes).into_owned(),
        Mechanism::Signed { encoding, .. } => alphabet(*encoding).encode(bytes),
    };
    format!("{}{value}", signature.prefix)
}

#[cfg(test)]
#[path = "borders_tests.rs"]
mod borders;
#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
