//! Signs a request as the provider does.
//!
//! Test deliveries, the demo and tests call [`sign`]; forwards to an endpoint that verifies signatures
//! call [`Signer::resign`]. It is next to the verifier because both read the same scheme and must agree.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use zeroize::Zeroizing;

use super::extract::Facts;
use super::{Key, Request, jwt, keyed, sample, signature, stamp};
use crate::model::{Headers, Timestamp, is_header_name};
use crate::provider::place::Place;
use crate::provider::template::Template;
use crate::provider::{
    Algorithm, Format, KeyText, Mechanism, SENDER_LABEL, Scheme, Signature, StampPlace,
};

/// An unsigned request.
#[derive(Debug, Clone, Default)]
pub struct Draft<'a> {
    /// The request method; only some schemes sign it.
    pub method: &'a str,
    /// The public URL, for schemes that sign it.
    pub url: Option<&'a str>,
    /// The event id, for schemes that have it in a header.
    pub id: &'a str,
    /// The event type (its first level), for schemes that have it in a header.
    pub event_type: &'a str,
    /// Further headers, for schemes that sign some by name.
    pub headers: Headers,
    /// The raw body. Ids, types and timestamps that the scheme has in the body must be there.
    pub body: Bytes,
}

/// What a test delivery has in a signed item of its signature header.
const ITEM: &str = "test";

/// Why nothing can be signed with a public key, and what to do.
pub fn only_provider_signs(scheme: &Scheme) -> String {
    format!(
        "only provider {} has the private key that signs its requests: send one with the provider's own test button",
        scheme.name()
    )
}

/// The draft's headers, followed by those that the scheme requires: id, type, timestamp `now`,
/// signature. An unsigned scheme needs no key. It signs in the first of the scheme's families that has a key.
///
/// # Errors
/// Names what the scheme needs and the draft does not have.
pub fn sign(
    scheme: &Scheme,
    key: Option<&Key>,
    draft: &Draft<'_>,
    now: Timestamp,
) -> Result<Headers, String> {
    let can = |family: &&Scheme| key.is_some_and(|key| key.of(family).is_some());
    let scheme = scheme.families().find(can).unwrap_or(scheme);
    let (proof, identity) = (scheme.proof(), scheme.identity());
    let mut headers = draft.headers.clone();
    for (places, value) in [(&identity.ids, draft.id), (&identity.types, draft.event_type)] {
        let mut parts = places.first().into_iter().flat_map(Place::parts);
        if let (Some(name), false) = (parts.find_map(Place::header), value.is_empty()) {
            headers.push(name, value);
        }
    }
    let time = proof.timestamp.as_ref().map(|at| stamp::print(now, at.unit));
    if let (Some(name), Some(time)) = (proof.time_header(), &time) {
        headers.push(name, time.as_str());
    }
    // A header that only makes the signature another one each time, such as a nonce.
    for name in proof.signed_content().into_iter().flat_map(Template::headers) {
        if headers.all(name).next().is_none() && !draft.id.is_empty() {
            headers.push(name, draft.id);
        }
    }
    if let Some(own) = proof.naming_header() {
        let known = headers.iter().filter(|(name, _)| is_header_name(name));
        let known = known.map(|(name, _)| name.to_ascii_lowercase());
        let names: BTreeSet<String> = known.chain([own.to_ascii_lowercase()]).collect();
        headers.push(own, names.into_iter().collect::<Vec<_>>().join(","));
    }
    let Some(signed_by) = &proof.signature else { return Ok(headers) };
    if proof.has_public_key() || key.is_some_and(|key| !key.public.is_empty()) {
        return Err(only_provider_signs(scheme));
    }
    let key = key.ok_or_else(|| format!("provider {} signs: a secret is needed", scheme.name()))?;
    let Draft { method, url, .. } = *draft;
    let request = Request { method, url, headers: &headers, body: draft.body.clone() };
    let unusable = "the secret cannot be a key";
    if proof.is_in_body() {
        let name = scheme.name();
        return Err(format!(
            "provider {name} has its signature in the body: use its own test button"
        ));
    }
    let value = match &signed_by.mechanism {
        Mechanism::Signed { algorithm: Algorithm::Hmac(hash), signed, .. } => {
            let found = Facts::read(scheme, &request.body);
            let item = signed.item().map(|_| ITEM);
            let presented = signature::Presented::of_time(time.as_deref(), item);
            let pieces = signature::pieces(scheme, signed, &request, &presented, Some(&found))
                .map_err(|rejection| rejection.detail)?;
            key.of(scheme).and_then(|key| keyed::tag(*hash, key, &pieces)).ok_or(unusable)?
        }
        Mechanism::Jwt(jwt) => {
            let token =
                jwt::sign(jwt, proof.senders.first().map(String::as_str), key, &request, now);
            token.ok_or(unusable)?.into_bytes()
        }
        Mechanism::Signed { .. } | Mechanism::Token => key.bytes.to_vec(),
    };
    let value = signature::encode(signed_by, &value);
    let item = proof.signed_content().and_then(Template::item);
    let line = match &signed_by.format {
        Format::Plain | Format::Commas => value,
        Format::List { label } => format!("{label},{value}"),
        Format::Pairs { separator, equals, label, .. } => {
            let sender = proof.senders.first().filter(|_| label == SENDER_LABEL);
            let label = sender.unwrap_or(label);
            let mut items = vec![format!("{label}{equals}{value}")];
            items.extend(item.map(|item| format!("{item}{equals}{ITEM}")));
            if let Some(StampPlace::Item(stamp)) =
                proof.timestamp.as_ref().map(|stamp| &stamp.place)
                && let Some(time) = &time
            {
                // Last behind an item that is signed, as Hygraph has it; else first.
                items.insert(
                    if item.is_some() { items.len() } else { 0 },
                    format!("{stamp}{equals}{time}"),
                );
            }
            items.join(separator)
        }
    };
    let name = signed_by.headers.first().map_or("", String::as_str);
    headers.push(name, line);
    Ok(headers)
}

/// Signs requests for one source with its scheme and one of its secrets: test deliveries, and stored events for an
/// endpoint that verifies them with the provider's own library.
#[derive(Debug, PartialEq, Eq)]
pub struct Signer {
    scheme: Arc<Scheme>,
    key: Option<Key>,
    /// The URL configured at the provider, for stored events of schemes that sign it.
    url: Option<String>,
}

impl Signer {
    /// Signs by `scheme` with `key`; an unsigned scheme needs none. [`Signer::resign`] needs the `url` that is configured
    /// at the provider if the scheme signs it.
    pub fn new(scheme: Arc<Scheme>, key: Option<Key>, url: Option<String>) -> Self {
        Signer { scheme, key, url }
    }

    /// Signs by `scheme` with a random key, so that the receiver must refuse the request.
    pub fn forger(scheme: Arc<Scheme>, random: [u8; SECRET_BYTES]) -> Self {
        // A token is sent in a header as it is, so it must be valid header text.
        let bytes = Zeroizing::new(HEXLOWER.encode(&random).into_bytes());
        let reference = "another secret".to_owned();
        let key = Key { reference, bytes, others: Vec::new(), public: Vec::new() };
        Signer { scheme, key: Some(key), url: None }
    }

    /// Where the secret was read from; `None` for an unsigned scheme.
    pub fn reference(&self) -> Option<&str> {
        self.key.as_ref().map(Key::reference)
    }

    /// Signs `draft` like [`sign`], except that its `event_type` may have both levels.
    pub fn sign(&self, draft: &Draft<'_>, now: Timestamp) -> Result<Headers, String> {
        let (event_type, second) = sample::levels(&self.scheme, draft.event_type);
        let mut draft = Draft { event_type, ..draft.clone() };
        let place = self.scheme.identity().subtype.as_ref().and_then(Place::header);
        if let (Some(name), Some(second)) = (place, second) {
            draft.headers.push(name, second);
        }
        sign(&self.scheme, self.key.as_ref(), &draft, now)
    }

    /// A stored event's `headers` with a new timestamp `now` and a new signature over `body`. The scheme must pass
    /// [`can_resign`].
    ///
    /// # Errors
    /// Names what is missing. Does not quote the secret.
    pub fn resign(
        &self,
        headers: &Headers,
        body: &Bytes,
        now: Timestamp,
    ) -> Result<Headers, String> {
        let scheme = super::family_of(&self.scheme, headers);
        let proof = scheme.proof();
        let own = proof.headers().chain(proof.time_header());
        let old: Vec<_> = own.chain(proof.naming_header()).collect();
        let draft = Draft {
            method: "POST",
            url: self.url.as_deref(),
            headers: super::only(headers, |name| !super::listed(&old, name)),
            body: body.clone(),
            ..Draft::default()
        };
        sign(scheme, self.key.as_ref(), &draft, now)
    }
}

/// Checks that a stored event has everything that a new signature needs.
///
/// # Errors
/// The reason, and what the operator can do about it.
pub fn can_resign(scheme: &Scheme) -> Result<(), (String, String)> {
    let (provider, proof, identity) = (scheme.name(), scheme.proof(), scheme.identity());
    if proof.is_absent() {
        let help = "remove sign, or give the sources that sign a handler of their own";
        return Err((format!("provider '{provider}' signs nothing"), help.to_owned()));
    }
    if identity.has_lists() {
        return Err((
            format!(
                "a request of provider '{provider}' brings several events, which have one signature"
            ),
            "write sign = false: the endpoint gets each event without a signature".to_owned(),
        ));
    }
    if proof.has_public_key() {
        return Err((
            format!("only provider '{provider}' has the private key that signs its requests"),
            "write sign = false, and let the endpoint check the provider's own signature"
                .to_owned(),
        ));
    }
    if proof.carries_secret_in_url() {
        return Err((
            format!("provider '{provider}' sends its token in the URL"),
            "write sign = false, and the endpoint's own token into its URL".to_owned(),
        ));
    }
    if proof.only_provider_signs() {
        return Err((
            format!(
                "the signature of provider '{provider}' is in the body, which is sent on as it came"
            ),
            "write sign = false, and let the endpoint check the provider's own signature"
                .to_owned(),
        ));
    }
    if matches!(&proof.timestamp, Some(stamp) if matches!(stamp.place, StampPlace::Json(_))) {
        return Err((
            format!(
                "the timestamp of provider '{provider}' is in the body, which is sent on as it came"
            ),
            "write sign = false, and let the endpoint take old timestamps".to_owned(),
        ));
    }
    let signed = proof.signed_content().into_iter().flat_map(Template::headers);
    let is_new = |name: &str| proof.time_header().is_some_and(|own| own.eq_ignore_ascii_case(name));
    let lost = signed
        .chain(proof.signed_id_header())
        .find(|name| !is_new(name) && !super::listed(&identity.kept_headers, name));
    match lost {
        None => Ok(()),
        Some(name) => Err((
            format!("provider '{provider}' signs the header {name} and does not keep it"),
            "add it to keep_headers in the provider's file".to_owned(),
        )),
    }
}

/// The number of random bytes in a generated secret: the output length of HMAC-SHA256, the shortest
/// key that RFC 2104, section 3, recommends.
pub const SECRET_BYTES: usize = 32;

/// Writes `random` as a secret in the scheme's text form. A scheme with a public key has none.
pub fn secret_text(scheme: &Scheme, random: &[u8; SECRET_BYTES]) -> Zeroizing<String> {
    Zeroizing::new(match &scheme.proof().signature {
        Some(Signature {
            mechanism: Mechanism::Signed { key: KeyText::Base64 { prefix }, .. },
            ..
        }) => {
            format!("{prefix}{}", BASE64.encode(random))
        }
        Some(token) if token.is_basic() => format!("hooklatch:{}", HEXLOWER.encode(random)),
        _ => HEXLOWER.encode(random),
    })
}
