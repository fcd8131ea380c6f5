//! Signing schemes as data.
pub struct Scheme;
