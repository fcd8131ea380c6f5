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

impl Verified {
    /// The event's id.
    pub fn event_id(&self) -> &EventId {
        &self.event_id
    }
    /// The event's type.
    pub fn event_type(&self) -> &EventType {
        &self.event_type
    }
    /// Whether the signature covers the id.
    pub fn id_signed(&self) -> bool {
        self.id_signed
    }
    /// What the same body under another id means.
    pub fn guard(&self) -> ReplayGuard {
        self.guard
    }
    /// SHA-256 of the body without its volatile fields.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
    /// The headers worth keeping.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }
    /// The raw body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
    /// The reference of the secret that matched.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }
    /// STUB ONLY, until `verify` is merged: what the store's tests deliver.
    #[doc(hidden)]
    pub fn stub(
        id: &str,
        event_type: &str,
        id_signed: bool,
        guard: ReplayGuard,
        digest: Digest,
        body: &[u8],
    ) -> Self {
        let mut headers = Headers::new();
        headers.push("Content-Type", "application/json");
        Verified {
            event_id: match id.parse() {
                Ok(id) => id,
                Err(_) => unreachable!(),
            },
            event_type: EventType::from_raw(event_type),
            id_signed,
            guard,
            digest,
            headers,
            body: Bytes::copy_from_slice(body),
            secret: Some("literal:test".to_owned()),
        }
    }
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
pub fn key(_scheme: &Scheme, _reference: &str, _text: &str) -> Result<Key, String> {
    unimplemented!()
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
