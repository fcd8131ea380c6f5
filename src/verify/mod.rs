//! Decides whether a delivery is genuine. It is pure: it takes a scheme, keys, a request and a time,
//! and returns [`Verified`] or [`Rejection`].
//!
//! `http` and the `verify` command call [`judge`]; `send`, `demo` and tests call [`sign()`]; forwards
//! call [`Signer`]. Must stay true: only [`judge`] makes a [`Verified`], and `store::accept` takes
//! nothing else; a body is inflated only after its proof, and parsed before it only where the signature,
//! the key's URL or the signed content is inside it; no input makes this module panic.

pub mod extract;
mod handshake;
mod hint;
mod jwt;
mod keyed;
mod public;
mod request;
mod sample;
mod sender;
mod sign;
mod signature;
mod stamp;
pub mod vectors;

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::limits::{
    LIST_EVENT_BYTES, LIST_HEADERS_BYTES, PROVEN_EVENT_BYTES, SENDER_ID_BYTES, TOLERANCE_RUNS,
};
use crate::model::{
    CONTENT_ENCODING, Digest, EventId, EventType, Headers, Repeats, ReplayGuard, SENDER_ID,
    Timestamp,
};
use crate::payload::Pointer;
use crate::payload::{in_query, is_compressed, keep_parameter, parameters, plain};
use crate::provider::place::{Place, key_text};
use crate::provider::template::Template;
use crate::provider::{KeyUrl, Proof, Scheme};
pub use extract::text_at;
use extract::{NoText, header};
pub use handshake::{Answered, Challenge, challenge, may_be_challenge, no_challenge, verify_token};
pub use hint::hint;
pub use request::{Key, REASONS, Rejection, Request};
pub use sample::{BodyFacts, media_type, read_body, sample};
pub use sender::sender;
pub use sign::{Draft, SECRET_BYTES, Signer, can_resign, only_provider_signs, secret_text, sign};
pub use signature::key;

/// A genuine delivery: what the store keeps. Nothing but [`verify`] makes one.
#[derive(Debug, Clone)]
pub struct Verified {
    event_id: EventId,
    event_type: EventType,
    id_signed: bool,
    guard: ReplayGuard,
    digest: Digest,
    repeats: Repeats,
    signed_at: Option<Timestamp>,
    headers: Headers,
    body: Bytes,
    secret: Option<String>,
    id_fault: Option<Rejection>,
}

impl Verified {
    /// The id that identifies the event within its source.
    pub fn event_id(&self) -> &EventId {
        &self.event_id
    }

    /// The event's type, both levels joined where the provider has two.
    pub fn event_type(&self) -> &EventType {
        &self.event_type
    }

    /// Why the sender's own id is not the event's: it is missing or malformed, and the receiver has derived one instead.
    /// A source with `reply = "handler"` refuses such a request.
    pub fn id_fault(&self) -> Option<&Rejection> {
        self.id_fault.as_ref()
    }

    /// Whether the signature covers the id: then only the provider can send the same id with another
    /// body.
    pub fn id_signed(&self) -> bool {
        self.id_signed
    }

    /// What to do if the same body comes again under another id; `Off` if the id is signed.
    pub fn guard(&self) -> ReplayGuard {
        self.guard
    }

    /// SHA-256 of the body, without the fields the provider changes between deliveries of one event; or of what is signed
    /// of the body, if neither the whole nor the id is.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What an equal request means; a duplicate where an id of the sender names the event.
    pub fn repeats(&self) -> Repeats {
        self.repeats
    }

    /// When it was signed. After a restore, the store holds deliveries signed before it, because it may have lost their
    /// events. `None` where the tolerance is at most [`TOLERANCE_RUNS`].
    pub fn signed_at(&self) -> Option<Timestamp> {
        self.signed_at
    }

    /// Identifies the request: a digest of the values at `fields` of its JSON. It is
    /// [`Verified::digest`] if there are no fields, or if one of them occurs twice.
    pub fn request(&self, scheme: &Scheme, fields: &[Pointer]) -> Digest {
        let field = scheme.identity().form_field.as_deref();
        let chosen = || extract::digest_at(&readable(scheme, &self.body)?, field, fields);
        (!fields.is_empty()).then(chosen).flatten().unwrap_or(self.digest)
    }

    /// The headers that the scheme lists in `keep_headers`.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The body before any decoding.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The reference of the secret that matched; `None` for an unsigned scheme.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }
}

/// What can be refused before the body is read: a header that is missing, doubled or unreadable.
/// [`verify`] checks the same again.
pub fn precheck(scheme: &Scheme, headers: &Headers) -> Result<(), Rejection> {
    first_family(scheme, |family| signature::present(family, headers).map(|_| ()))
}

/// What `prove` gives for the first of the scheme's families that it succeeds with: that family alone reads the request.
/// Else the first refusal by the family that got furthest: past its signature, an unreadable one, or none.
fn first_family<'s, T>(
    scheme: &'s Scheme,
    prove: impl Fn(&'s Scheme) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    let rank = |rejection: &Rejection| match rejection.reason {
        "missing_signature" => 0,
        "unreadable_signature" => 1,
        _ => 2,
    };
    let mut refused = match prove(scheme) {
        Ok(proven) => return Ok(proven),
        Err(rejection) => rejection,
    };
    for other in scheme.alternatives() {
        match prove(other) {
            Ok(proven) => return Ok(proven),
            Err(rejection) if rank(&rejection) > rank(&refused) => refused = rejection,
            Err(_) => {}
        }
    }
    Err(refused)
}

/// The family and the key that prove a request, and what its headers have of it.
type Proven<'s> = (&'s Scheme, Option<&'s Key>, signature::Presented<'s>);

fn prove<'s>(
    scheme: &'s Scheme,
    keys: &'s [Key],
    request: &'s Request<'_>,
    now: Timestamp,
) -> Result<Proven<'s>, Rejection> {
    // The first byte of the body is all that tells where signed headers end, in whichever form their signature is presented.
    let lists = |proof: &Proof| proof.signed_content().is_some_and(Template::lists_headers);
    let has_border = scheme.families().any(|family| lists(family.proof()));
    first_family(scheme, |family| {
        let presented = signature::present(family, request.headers)?;
        if has_border && !request.body.starts_with(b"{") {
            let detail =
                "signed headers could be a part of the body, which does not begin with '{'";
            return Err(Rejection::unproven("ambiguous_part", detail));
        }
        let found = keys.first().and_then(|_| signature::read_unproven(family, request));
        let key = signature::matching(family, keys, request, &presented, found.as_ref(), now)
            .map_err(|rejection| {
                naming_key(key_url(family, request, found.as_ref()).as_ref(), rejection)
            })?;
        Ok((family, key, presented))
    })
}

/// The first family with any of its headers in the request, for requests that are not judged.
fn family_of<'s>(scheme: &'s Scheme, headers: &Headers) -> &'s Scheme {
    let has = |name: &&str| headers.all(name).next().is_some();
    let mut all = scheme.families();
    all.find(|family| family.read_headers().iter().any(has)).unwrap_or(scheme)
}

/// Whether a request carries nothing that could prove it, not even in a form that is unreadable: then it may be a
/// challenge without a signature. A token in the body is looked for only in a request that is not a challenge.
pub fn is_bare(scheme: &Scheme, headers: &Headers) -> bool {
    let proof = scheme.proof();
    let mut carriers = scheme.families().flat_map(|family| family.proof().headers());
    (!proof.is_in_body() || proof.token_field().is_some())
        && carriers.all(|name| headers.all(name).next().is_none())
}

/// A genuine request.
#[derive(Debug, Clone)]
pub enum Genuine<E = Vec<Verified>> {
    /// Its events, and, where elements of its list are not proven and left out, how many and why the last one.
    Event(E, Option<Rejection>),
    /// A signed challenge, which is answered and never stored.
    Challenge(Answered),
}

/// The reason for which a challenge is not an event.
pub const HANDSHAKE: &str = "handshake";

/// Verifies one delivery at time `now`. Any of `keys` may match; without keys, only an unsigned
/// scheme accepts a request. Of a list it returns the first event; a challenge is not a delivery. With
/// `id = "new"` the event's id is `new`.
pub fn verify(
    scheme: &Scheme,
    keys: &[Key],
    request: Request<'_>,
    now: Timestamp,
) -> Result<Verified, Rejection> {
    match judge(scheme, keys, request, now, Some("new"))? {
        Genuine::Event(events, _) => {
            let none = || Rejection::malformed("missing_events", "the list of events is empty");
            events.into_iter().next().ok_or_else(none)
        }
        Genuine::Challenge(_) => {
            Err(Rejection::malformed(HANDSHAKE, "a challenge, which is answered and never stored"))
        }
    }
}

/// Returns all events of the request, in the order of its list, or the answer to a signed challenge. `own_id` is the
/// event's id for schemes with [`Identity::id_is_generated`](crate::provider::Identity::id_is_generated) that sign no
/// time.
pub fn judge(
    scheme: &Scheme,
    keys: &[Key],
    request: Request<'_>,
    now: Timestamp,
    own_id: Option<&str>,
) -> Result<Genuine, Rejection> {
    let by_element = scheme.proves_elements();
    let (family, secret, presented) = match by_element {
        true => (scheme, None, signature::present(scheme, request.headers)?),
        false => prove(scheme, keys, &request, now)?,
    };
    let mut kept = kept_by(scheme, family, request.headers);
    let (scheme, identity) = (family, family.identity());
    if key_url(scheme, &request, None).is_some_and(|url| url.is_err()) {
        let detail = "the key's URL is not by https at a host and a path of the provider's file";
        return Err(Rejection::unproven("bad_signature", detail));
    }
    // Only now: an unproven body is not inflated. A body that cannot be inflated counts as neither JSON nor a form.
    let body = match by_element {
        true => None,
        false => readable(scheme, &request.body),
    };
    let body = body.unwrap_or_else(|| request.body.clone());
    let found = extract::Facts::read(scheme, &body);
    let signed_at = stamp::check(scheme.proof(), presented.stamp, &found, now)?;
    let is_long = scheme.proof().tolerance().is_some_and(|tolerance| tolerance > TOLERANCE_RUNS);
    let signed_at = signed_at.filter(|_| is_long);
    sender::check(scheme.proof(), request.headers, &found)?;
    if let Some(answered) = handshake::signed(scheme, secret, request.headers, &found) {
        return Ok(Genuine::Challenge(answered));
    }
    if identity.has_lists() && is_compressed(&request.body) && !is_compressed(&body) {
        // An element is handed on as plain text.
        kept = only(&kept, |name| !name.eq_ignore_ascii_case(CONTENT_ENCODING));
    }
    // With a signed time the digest of the signed content names the request: a captured one is a duplicate.
    let is_named_by_signed = identity.ids.contains(&Place::Signed)
        || identity.id_is_generated() && scheme.proof().tolerance().is_some();
    let signed = match is_named_by_signed {
        true => signature::digest(scheme, &request, &presented, &found)?,
        false => None,
    };
    let own_id = signed.as_deref().or(own_id);
    let (mut equal, mut made) = (HashMap::<Digest, u64>::new(), 0_u64);
    let mut event =
        |body: Bytes, plain: &Bytes, found: &extract::Facts<'_>, secret: Option<&Key>| {
            let digest = equal_digest(scheme, &request, &body, plain);
            let mut digest = with_query(scheme, &kept, digest);
            let mut named = event_id(scheme, request.headers, found, digest, own_id)?;
            if identity.has_lists() && named.is_of_body {
                let nth = equal.entry(digest).or_default();
                digest = extract::repeated(digest, *nth);
                named.id = EventId::derived(digest);
                *nth += 1;
            }
            if identity.has_lists() && identity.id_is_generated() {
                let own = format!("{}-{made}", named.id);
                named.id = own
                    .parse()
                    .map_err(|_| bad_id("the receiver's own id is too long".to_owned()))?;
                made += 1;
            }
            let repeats = if named.is_of_body { identity.repeats } else { Repeats::Duplicate };
            let event_type = event_type(scheme, request.headers, found);
            let id_signed = scheme.proof().covers_id();
            let unsigned = || identity.guard_for(event_type.as_str());
            let guard = if id_signed { ReplayGuard::Off } else { unsigned() };
            let digest = guarded_digest(scheme, found, &body, digest);
            let mut headers = kept.clone();
            if let Some(text) = &named.sender_id {
                headers.push(SENDER_ID, printable(text));
            }
            Ok(Verified {
                event_id: named.id,
                event_type,
                id_signed,
                guard,
                digest,
                repeats,
                signed_at,
                headers,
                body,
                secret: secret.map(|key| key.reference().to_owned()),
                id_fault: named.fault,
            })
        };
    let Some(list) = &identity.each else {
        return Ok(Genuine::Event(vec![event(request.body.clone(), &body, &found, secret)?], None));
    };
    // Only the last of the unproven ones is kept: any client can send a long list.
    let (mut events, mut unproven, mut last_unproven) = (Vec::new(), 0_usize, None);
    let event_bytes = if by_element { PROVEN_EVENT_BYTES } else { LIST_EVENT_BYTES };
    let elements = extract::elements(&body, list, event_bytes)?;
    let kept_bytes = kept.bytes();
    if elements.len().saturating_mul(kept_bytes) > LIST_HEADERS_BYTES {
        let detail =
            format!("each of {} events would have {kept_bytes} bytes of headers", elements.len());
        return Err(Rejection::malformed("too_many_events", detail));
    }
    for body in elements {
        let element = Request { body: body.clone(), ..request.clone() };
        let found = extract::Facts::read(scheme, &body);
        let proven = match by_element {
            true => signature::matching(scheme, keys, &element, &presented, Some(&found), now),
            false => Ok(secret),
        };
        match proven {
            Ok(secret) => events.push(event(body.clone(), &body, &found, secret)?),
            Err(rejection) => (unproven, last_unproven) = (unproven + 1, Some(rejection)),
        }
    }
    let of = format!(" ({unproven} of {} elements)", unproven + events.len());
    let left_out = last_unproven.map(|one| Rejection { detail: one.detail + &of, ..one });
    match left_out {
        Some(rejection) if events.is_empty() => Err(rejection),
        None if events.is_empty() && by_element => Err(Rejection::unproven(
            "missing_signature",
            "an empty list has no element with the token",
        )),
        left_out => Ok(Genuine::Event(events, left_out)),
    }
}

/// The plain bytes of a proven body; `None` if it is compressed and cannot be inflated within the source's bound.
fn readable(scheme: &Scheme, body: &Bytes) -> Option<Bytes> {
    Some(match plain(body, scheme.identity().inflated_bytes).ok()? {
        Cow::Borrowed(_) => body.clone(),
        Cow::Owned(plain) => plain.into(),
    })
}

/// What a rejection's detail has before the URL at which the key of the request is published.
pub const KEY_AT: &str = "; its key is at ";

/// The URL at which the request's key is published; an `Err` if no key may be fetched from there. The request chose it,
/// so it proves nothing.
fn key_url(
    scheme: &Scheme,
    request: &Request<'_>,
    found: Option<&extract::Facts<'_>>,
) -> Option<Result<String, ()>> {
    let keys = scheme.proof().published_keys.as_ref()?;
    let url = match &keys.url {
        KeyUrl::Fixed(url) => url.clone(),
        KeyUrl::In(place @ Place::Json(_)) => match found.filter(|found| found.is_json()) {
            Some(found) => found.at(place).ok()??,
            None => extract::Facts::read(scheme, &request.body).at(place).ok()??,
        },
        KeyUrl::In(place) => header(request.headers, place.header()?)?,
    };
    Some(if keys.allows_key(&url) { Ok(url) } else { Err(()) })
}

/// The rejection with the URL of the request's key.
fn naming_key(url: Option<&Result<String, ()>>, rejection: Rejection) -> Rejection {
    match url {
        Some(Ok(url)) => Rejection { detail: rejection.detail + KEY_AT + url, ..rejection },
        _ => rejection,
    }
}

/// The headers that are stored with an event.
pub fn kept(scheme: &Scheme, headers: &Headers) -> Headers {
    kept_by(scheme, family_of(scheme, headers), headers)
}

/// The headers that are stored with an event that this `family` of the scheme proved: not those of the other families,
/// which it does not look at.
fn kept_by(scheme: &Scheme, family: &Scheme, headers: &Headers) -> Headers {
    let foreign = |name: &str| {
        let mut others = scheme.families().filter(|other| other.family() != family.family());
        others.any(|other| listed(&other.read_headers(), name))
            && !listed(&family.read_headers(), name)
    };
    only(headers, |name| listed(&scheme.identity().kept_headers, name) && !foreign(name))
}

/// The event id that a request claims, for listings. It is not verified: the sender chooses it. `None` where it names
/// none.
pub fn claimed_id(scheme: &Scheme, headers: &Headers, body: &[u8]) -> Option<EventId> {
    let scheme = family_of(scheme, headers);
    let found = extract::Facts::read(scheme, body);
    let digest = extract::digest(body, &scheme.identity().volatile);
    let named = event_id(scheme, headers, &found, digest, None).ok()?;
    // The digest of a form covers its URL, which is not known here.
    let is_known = named.fault.is_none() && !scheme.proof().signs_fields();
    (!named.is_of_body || is_known).then_some(named.id)
}

/// The event type that a request claims, not verified. `None` where it names none.
pub fn claimed_type(scheme: &Scheme, headers: &Headers, body: &[u8]) -> Option<EventType> {
    let scheme = family_of(scheme, headers);
    let found = event_type(scheme, headers, &extract::Facts::read(scheme, body));
    (found != EventType::missing()).then_some(found)
}

/// Whether a stored delivery that failed can verify after the operator corrects the secret. False for
/// a token, which is not stored, and for an unsigned scheme, which checks no secret.
pub fn can_be_judged_again(scheme: &Scheme) -> bool {
    scheme.proof().signs_content()
}

/// Adds the parameters of a query that the scheme reads or keeps to the headers of its request, under names that no header
/// can have.
pub fn add_parameters(scheme: &Scheme, query: &str, headers: &mut Headers) {
    for parameter in scheme.proof().parameters() {
        for value in parameters(query.as_bytes(), parameter) {
            headers.push(in_query(parameter), value.into_owned().into_bytes());
        }
    }
    for parameter in &scheme.identity().kept_query {
        keep_parameter(query, parameter, headers);
    }
}

/// Whether `scheme` reads or keeps the header `name` of a request. `value` is what the request has in a header.
pub fn needs<'h>(
    scheme: &'h Scheme,
    value: impl Fn(&'h str) -> Option<&'h [u8]>,
) -> impl Fn(&str) -> bool + 'h {
    let mut reads = reads(scheme, value);
    reads.extend(scheme.challenge().headers(false));
    move |name| listed(&reads, name) || listed(&scheme.identity().kept_headers, name)
}

/// The headers by which the scheme verifies and names a delivery, with those that the request itself says are signed.
fn reads<'h>(scheme: &'h Scheme, value: impl Fn(&'h str) -> Option<&'h [u8]>) -> Vec<&'h str> {
    let naming = scheme.families().filter_map(|family| family.proof().naming_header());
    let lists = naming.filter_map(value).filter_map(|names| std::str::from_utf8(names).ok());
    let named = lists.flat_map(|names| names.split(',').take(signature::NAMED_MAX));
    scheme.families().flat_map(Scheme::read_headers).chain(named).collect()
}

/// The headers of a failed delivery that may be stored: those the scheme reads or keeps for an event, without a
/// token that proves the sender only: its holder can send anything.
pub fn evidence(scheme: &Scheme, headers: &Headers) -> Headers {
    let reads = reads(scheme, |name| headers.all(name).next());
    let needs = |name: &str| listed(&reads, name) || listed(&scheme.identity().kept_headers, name);
    let proves_sender = Some(scheme.proof()).filter(|proof| !proof.signs_content());
    let tokens: Vec<&str> = proves_sender.into_iter().flat_map(Proof::headers).collect();
    only(headers, |name| !listed(&tokens, name) && needs(name))
}

/// The size of [`evidence`] in bytes, header names included.
pub fn evidence_bytes(scheme: &Scheme, headers: &Headers) -> u64 {
    evidence(scheme, headers).bytes() as u64
}

fn listed(names: &[impl AsRef<str>], name: &str) -> bool {
    names.iter().any(|known| known.as_ref().eq_ignore_ascii_case(name))
}

fn only(headers: &Headers, keep: impl Fn(&str) -> bool) -> Headers {
    let mut kept = Headers::new();
    let mut all: Vec<_> = headers.iter().filter(|(name, _)| keep(name)).collect();
    // Sorted by name: the HTTP server does not keep the order of different names, which has no
    // meaning (RFC 9110, section 5.3). The sort is stable, so lines of one name keep their order.
    let lower = |byte: u8| byte.to_ascii_lowercase();
    all.sort_by(|(a, _), (b, _)| a.bytes().map(lower).cmp(b.bytes().map(lower)));
    all.into_iter().for_each(|(name, value)| kept.push(name, value));
    kept
}

/// The digest by which an equal request is known. `body` is the request's or that of an element, and `plain` the same
/// without its compression.
fn equal_digest(scheme: &Scheme, request: &Request<'_>, body: &Bytes, plain: &Bytes) -> Digest {
    let volatile = &scheme.identity().volatile;
    match scheme.proof().signs_fields() {
        true => signature::digest_of_form(scheme, request),
        false if volatile.is_empty() => Digest::of(body),
        // Two attempts that differ in a volatile member are compressed to different bytes.
        false => extract::digest(plain, volatile),
    }
}

/// The digest by which the replay guard knows a captured request: `equal`, the digest of equal requests, or one of what is
/// signed of the body if the request verifies with another body too.
fn guarded_digest(
    scheme: &Scheme,
    found: &extract::Facts<'_>,
    body: &Bytes,
    equal: Digest,
) -> Digest {
    let proof = scheme.proof();
    let open = proof.signed_content().filter(|_| proof.leaves_event_open());
    open.map_or(equal, |signed| signature::digest_of_body(signed, body, found))
}

/// The digest with the parameters of the query that the source keeps, where nothing is signed: `?alert=up` is another event
/// than `?alert=down`. Where the body is signed, an attacker who changes the query must not get another digest.
fn with_query(scheme: &Scheme, kept: &Headers, digest: Digest) -> Digest {
    let names = &scheme.identity().kept_query;
    if names.is_empty() || scheme.proof().signs_content() {
        return digest;
    }
    let mut hash = Sha256::new_with_prefix(digest.0);
    for name in names {
        extract::add_part(&mut hash, name.as_bytes());
        let own = in_query(name);
        let lines: Vec<&[u8]> = kept.all(&own).collect();
        extract::add_part(&mut hash, &lines.concat());
    }
    Digest(hash.finalize().into())
}

/// What an event is called, and why.
struct Named {
    id: EventId,
    /// The id is made of the body's digest.
    is_of_body: bool,
    /// The sender's own id, where it is not the event's.
    sender_id: Option<String>,
    /// Why the sender's id is unusable; `None` if the provider file asks for a derived id.
    fault: Option<Rejection>,
}

impl Named {
    fn of_body(digest: Digest, fault: Option<Rejection>) -> Named {
        Named { id: EventId::derived(digest), is_of_body: true, sender_id: None, fault }
    }

    fn of_text(text: String, fault: Rejection) -> Named {
        let id = EventId::of_text(&text);
        Named { id, is_of_body: false, sender_id: Some(text), fault: Some(fault) }
    }

    /// One that the receiver has made.
    fn own(id: &str) -> Option<Named> {
        let id = id.parse().ok()?;
        Some(Named { id, is_of_body: false, sender_id: None, fault: None })
    }

    fn of_sender(text: String) -> Named {
        match EventId::of_sender(&text) {
            Ok(id) => Named { id, is_of_body: false, sender_id: None, fault: None },
            Err(error) => Named::of_text(text, bad_id(error.to_string())),
        }
    }

    /// The values of several places: joined by colons, or a digest where that would be ambiguous or not an id, and where
    /// one of them has a `fault`.
    fn joined(texts: &[String], fault: Option<Rejection>) -> Named {
        let plain = Named::of_sender(texts.join(":"));
        let is_plain = plain.fault.is_none() && fault.is_none();
        if is_plain && !texts.iter().any(|text| text.contains(':')) {
            return plain;
        }
        let mut hash = Sha256::new();
        texts.iter().for_each(|text| extract::add_part(&mut hash, text.as_bytes()));
        let id = EventId::derived(Digest(hash.finalize().into()));
        Named { id, is_of_body: false, sender_id: Some(texts.join(":")), fault }
    }
}

fn bad_id(detail: String) -> Rejection {
    Rejection::malformed("bad_id", detail)
}

/// The id from the first place that has a value. Where the value is not an id, the receiver derives one: from the
/// value as it is written, or from the body's digest where the value is missing or there twice.
///
/// # Errors
/// The request is refused where callers choose their keys, so that two requests are never taken for one; and where the
/// signature covers the missing id and not the body, which an attacker could change.
fn event_id(
    scheme: &Scheme,
    headers: &Headers,
    found: &extract::Facts<'_>,
    digest: Digest,
    own_id: Option<&str>,
) -> Result<Named, Rejection> {
    let (ids, proof) = (&scheme.identity().ids, scheme.proof());
    let has_keys = ids.iter().any(|place| matches!(place, Place::Key(_)));
    let text_at = |place: &Place| match place {
        Place::Header(name) => {
            let text = headers.all(name).next().map(std::str::from_utf8).transpose();
            text.map(|text| text.map(str::to_owned)).map_err(|_| {
                Named::of_body(digest, Some(bad_id(format!("the event id, {place}, is not UTF-8"))))
            })
        }
        Place::Key(name) => {
            let key = header(headers, name).map(|value| key_text(&value).ok_or(NoText::Twice));
            key.transpose().map_err(|_| {
                let form = "neither bare nor a string in quotes";
                Named::of_body(digest, Some(bad_id(format!("the key, {place}, is {form}"))))
            })
        }
        // If it is there twice, two parsers could read two ids, and store one event under another's id.
        Place::Json(_) | Place::Form(_) => found.at(place).map_err(|form| {
            let fault = bad_id(format!("the event id, {place}, is {form}"));
            match form {
                NoText::Twice => Named::of_body(digest, Some(fault)),
                NoText::Other(text) => Named::of_text(text, fault),
            }
        }),
        // Of a join; alone, it is found before.
        Place::Digest => Ok(Some(digest.to_string())),
        Place::New | Place::Signed | Place::Join(_) => Ok(None),
    };
    let named_at = |place: &Place| match place {
        Place::Digest => Some(Named::of_body(digest, None)),
        Place::New | Place::Signed => Named::own(own_id?),
        Place::Join(places) => {
            let (mut texts, mut fault) = (Vec::new(), None);
            for place in places {
                match text_at(place) {
                    Ok(text) => texts.push(text?),
                    // Alone it would name all events that differ in another of the places.
                    Err(Named { sender_id: Some(text), fault: own, .. }) => {
                        texts.push(text);
                        fault = fault.or(own);
                    }
                    Err(named) => return Some(named),
                }
            }
            Some(Named::joined(&texts, fault))
        }
        one => match text_at(one) {
            Ok(text) => {
                let is_there = |text: &String| has_keys || !text.is_empty();
                text.filter(is_there).map(Named::of_sender)
            }
            Err(named) => Some(named),
        },
    };
    let missing = || {
        let places: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let mut parts = ids.iter().flat_map(Place::parts);
        let wants_json = parts.any(|place| matches!(place, Place::Json(_)));
        let why = if found.is_json() || !wants_json { "" } else { " (the body is not JSON)" };
        let detail = format!("there is no event id: {}{why}", places.join(", "));
        Named::of_body(digest, Some(Rejection::malformed("missing_id", detail)))
    };
    let named = ids.iter().find_map(named_at).unwrap_or_else(missing);
    let is_open = named.is_of_body && proof.covers_id() && !proof.covers(&Place::Digest);
    match named.fault {
        Some(fault) if has_keys || is_open => Err(fault),
        _ => Ok(named),
    }
}

/// The sender's id as a header's value: printable ASCII, everything else escaped as in Rust, at most [`SENDER_ID_BYTES`].
fn printable(text: &str) -> String {
    let printable = |c: char| matches!(c, ' '..='~');
    let mut shown = String::new();
    for c in text.chars() {
        match printable(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_default()),
        }
        if shown.len() > SENDER_ID_BYTES {
            shown.truncate(SENDER_ID_BYTES);
            break;
        }
    }
    shown
}

/// The type from the first place that has a value. A malformed or repeated type is `?`: it is not a
/// reason to refuse an event.
fn event_type(scheme: &Scheme, headers: &Headers, found: &extract::Facts<'_>) -> EventType {
    let identity = scheme.identity();
    let at = |place: &Place| found.text_in(place, headers);
    let first = identity.types.iter().find_map(at);
    let Some(first) = first.map(|text| EventType::from_raw(&text)) else {
        return EventType::missing();
    };
    match identity.subtype.as_ref().and_then(at) {
        Some(second) if first.raw().is_none() && !second.is_empty() => {
            EventType::from_raw(&format!("{first}.{second}"))
        }
        _ => first,
    }
}

#[cfg(test)]
mod alternatives_tests;
#[cfg(test)]
mod possible_tests;
#[cfg(test)]
mod tests;
