//! What a verification gets, and why it refuses.

use bytes::Bytes;
use zeroize::Zeroizing;

use super::public::PublicKey;
use crate::model::{Headers, is_same_secret};
use crate::provider::Scheme;

/// A secret as the scheme uses it, and the reference it was read from. The secret is never printed.
#[derive(Clone)]
pub struct Key {
    pub(super) reference: String,
    /// Empty if the text is not a key in the form of the scheme itself.
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// The secret in the form of each of the scheme's alternatives; empty where the text is not a key in that form.
    pub(super) others: Vec<Zeroizing<Vec<u8>>>,
    /// The public keys of a key set or of certificates; empty if `bytes` is the key.
    pub(super) public: Vec<PublicKey>,
}

impl Key {
    /// Where the secret was read from, such as `env:STRIPE`; may be logged.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// The key in the form of this family of its scheme.
    pub(super) fn of(&self, family: &Scheme) -> Option<&[u8]> {
        let bytes = self.forms().nth(family.family())?;
        (!bytes.is_empty()).then_some(bytes)
    }

    fn forms(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.bytes).chain(&self.others).map(|bytes| bytes.as_slice())
    }

    /// Compares the secrets alone, in constant time. They are the same if they are in any form.
    pub fn is_same(&self, other: &Key) -> bool {
        let is_one_of = |own: &[u8]| other.forms().any(|form| is_same_secret(own, form));
        self.forms().filter(|own| !own.is_empty()).any(is_one_of)
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

impl Request<'_> {
    /// The query of its URL; `None` if there is no `?`.
    pub(super) fn query(&self) -> Option<&str> {
        self.url?.split_once('?').map(|(_, query)| query)
    }
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
