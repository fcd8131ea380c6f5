//! What a verification gets, and why it refuses.

use bytes::Bytes;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::public::PublicKey;
use crate::model::Headers;

/// A secret as the scheme uses it, and the reference it was read from. The secret is never printed.
#[derive(Clone)]
pub struct Key {
    pub(super) reference: String,
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// The public keys of a key set or of certificates; empty if `bytes` is the key.
    pub(super) public: Vec<PublicKey>,
}

impl Key {
    /// Where the secret was read from, such as `env:STRIPE`; may be logged.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Compares the secrets alone, in constant time.
    pub fn is_same(&self, other: &Key) -> bool {
        self.bytes.as_slice().ct_eq(other.bytes.as_slice()).into()
    }
}

/// Keys are equal if secret and reference are.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.reference == other.reference && self.is_same(other)
    }
}
impl Eq for Key {}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({}, ***)", self.reference)
    }
}

#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub method: &'a str,
    /// The source's configured public URL with the request's path and query, for schemes that sign it.
    pub url: Option<&'a str>,
    pub headers: &'a Headers,
    pub body: Bytes,
}

/// The fixed words of every [`Rejection`]; `docs/providers.md` says what each means.
pub const REASONS: &[&str] = &[
    "missing_signature",
    "repeated_header",
    "unreadable_signature",
    "missing_timestamp",
    "bad_timestamp",
    "missing_part",
    "ambiguous_part",
    "bad_signature",
    "bad_claim",
    "no_secret",
    "stale_timestamp",
    "future_timestamp",
    "missing_id",
    "bad_id",
    "missing_events",
    "too_many_events",
    "bad_token",
    "bad_challenge",
    "handshake",
];

/// Why a delivery is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Rejection {
    /// A fixed short word for counters and JSON, such as `bad_signature`; `docs/providers.md` lists them.
    pub reason: &'static str,
    /// A lower-case fragment for the operator. It quotes nothing from a body and is never sent to the client.
    pub detail: String,
    /// True if the request is malformed (400), false if it is not proven (401).
    pub malformed: bool,
}

impl Rejection {
    pub(super) fn unproven(reason: &'static str, detail: impl Into<String>) -> Self {
        Rejection { reason, detail: detail.into(), malformed: false }
    }

    pub(super) fn malformed(reason: &'static str, detail: impl Into<String>) -> Self {
        Rejection { reason, detail: detail.into(), malformed: true }
    }
}
