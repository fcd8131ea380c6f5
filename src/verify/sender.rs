//! Compares the customer that a request names with the source's `sender`, where one key signs for all customers of a
//! provider.
//!
//! `verify` calls [`check`] after the signature, `confirm` calls [`sender()`] on a stored event. Must stay true: a
//! request that names no sender, or one twice, is refused.

use super::Rejection;
use super::extract::Facts;
use crate::model::Headers;
use crate::provider::{Proof, Scheme};

/// Checks the sender that the request names, and returns it; `None` if the scheme has no place for one.
pub(super) fn check(
    proof: &Proof,
    headers: &Headers,
    found: &Facts<'_>,
) -> Result<Option<String>, Rejection> {
    let Some(place) = proof.sender_place() else { return Ok(None) };
    let named = found.text_in(place, headers);
    match named.filter(|named| proof.takes_sender(named)) {
        Some(named) => Ok(Some(named)),
        None => {
            let detail = format!("the sender, {place}, is not the source's sender");
            Err(Rejection::unproven("bad_claim", detail))
        }
    }
}

/// The sender that a stored event names, and that the source takes; `None` if the scheme has no place for one.
///
/// # Errors
/// The source does not take what this sender sends.
pub fn sender(
    scheme: &Scheme,
    headers: &Headers,
    body: &[u8],
) -> Result<Option<String>, Rejection> {
    check(scheme.proof(), headers, &Facts::read(scheme, body))
}
