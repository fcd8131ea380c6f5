//! Decides whether a delivery is genuine. Pure: scheme, keys, request and time in; [`Verified`] or
//! [`Rejection`] out. Only this module can make a [`Verified`], and `store::accept` takes nothing else.

use bytes::Bytes;

use crate::model::{Digest, EventId, EventType, Headers, ReplayGuard, Timestamp};
use crate::provider::Scheme;

/// A secret as the scheme uses it, and the reference it was read from. Never printed.
pub struct Key {
    reference: String,
    bytes: zeroize::Zeroizing<Vec<u8>>,
}

/// One request as it came in.
pub struct Request<'a> {
    /// The request method.
    pub method: &'a str,
    /// The source's configured public URL with the request's path and query, for schemes that sign it.
    pub url: Option<&'a str>,
    /// All header lines.
    pub headers: &'a Headers,
    /// The raw body.
    pub body: Bytes,
}

/// A genuine delivery: what the store keeps.
#[derive(Debug, Clone)]
pub struct Verified {
    pub(self) event_id: EventId,
    pub(self) event_type: EventType,
    /// Whether the signature covers the id.
    pub(self) id_signed: bool,
    /// What the same body under another id means (Off where the id is signed).
    pub(self) guard: ReplayGuard,
    /// Of the body, without the fields the provider changes between deliveries of one event.
    pub(self) digest: Digest,
    pub(self) headers: Headers,
    pub(self) body: Bytes,
    /// The reference of the secret that matched.
    pub(self) secret: Option<String>,
}

/// Why a delivery is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// A fixed short word for counters and JSON, such as `bad_signature`.
    pub reason: &'static str,
    /// A sentence for the operator; never sent outside.
    pub detail: String,
    /// Whether the sender is genuine and the request is malformed (400), or not proven (401).
    pub malformed: bool,
}

/// Decodes a secret's text as the scheme demands.
pub fn key(_scheme: &Scheme, reference: &str, text: &str) -> Result<Key, String> {
    // STAND-IN until the verifier is merged.
    if text.contains(' ') {
        return Err("the secret has a space".to_owned());
    }
    Ok(Key { reference: reference.to_owned(), bytes: text.as_bytes().to_vec().into() })
}

/// What can be refused before the body is read: a signature header that is missing, doubled, or unreadable.
pub fn precheck(_scheme: &Scheme, _headers: &Headers) -> Result<(), Rejection> {
    unimplemented!()
}

/// Verifies one delivery at time `now`. Any of `keys` may match.
pub fn verify(
    _scheme: &Scheme,
    _keys: &[Key],
    _request: Request<'_>,
    _now: Timestamp,
) -> Result<Verified, Rejection> {
    unimplemented!()
}
