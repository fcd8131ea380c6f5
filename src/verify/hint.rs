//! Turns a rejection into a sentence to act on.
use super::{Key, Rejection, Request};
use crate::model::Timestamp;
use crate::provider::Scheme;

/// x
pub fn hint(
    _s: &Scheme,
    _k: &[Key],
    _r: &Request<'_>,
    _j: &Rejection,
    _n: Timestamp,
) -> Option<String> {
    None
}
