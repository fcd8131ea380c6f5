//! The digest of a body, a text or a setting.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(bytes: impl AsRef<[u8]>) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }
}

/// Compares secrets in constant time. Compares their digests, which have one length: a comparison of texts ends early if
/// their lengths differ, and so reveals the secret's length.
pub fn is_same_secret(one: impl AsRef<[u8]>, other: impl AsRef<[u8]>) -> bool {
    Digest::of(one).0.ct_eq(&Digest::of(other).0).into()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_the_same_in_every_byte_and_in_length_or_not_at_all() {
        assert!(is_same_secret("token", b"token"));
        assert!(is_same_secret("", ""));
        for other in ["", "toke", "tokens", "Token", "tokem"] {
            assert!(!is_same_secret("token", other), "{other}");
            assert!(!is_same_secret(other, "token"), "{other}");
        }
    }
}
