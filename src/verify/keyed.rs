//! Keyed hashes, and the forms of signatures as text and in bytes.

use std::ops::RangeInclusive;

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use crate::provider::{Algorithm, Encoding, Hash};

/// The alphabet and the padding of a text.
pub(super) fn alphabet(encoding: Encoding) -> data_encoding::Encoding {
    match encoding {
        Encoding::Hex => HEXLOWER,
        Encoding::HexAnyCase => HEXLOWER_PERMISSIVE,
        Encoding::Base64 => BASE64,
        Encoding::Base64Url => BASE64URL_NOPAD,
    }
}

/// The lengths that a signature may have, in bytes.
pub(super) fn lengths(algorithm: Algorithm) -> RangeInclusive<usize> {
    match algorithm {
        Algorithm::Hmac(Hash::Md5) => 16..=16,
        Algorithm::Hmac(Hash::Sha1) => 20..=20,
        Algorithm::Hmac(Hash::Sha256) => 32..=32,
        Algorithm::Hmac(Hash::Sha512) | Algorithm::Ed25519 => 64..=64,
        // Two integers of 1 to 33 bytes in DER.
        Algorithm::EcdsaP256 => 8..=72,
        Algorithm::RsaSha256 => 256..=1024,
    }
}

/// The HMAC of the pieces; `None` if the key is unusable, so that it matches no signature.
pub(super) fn tag(hash: Hash, key: &[u8], pieces: &[impl AsRef<[u8]>]) -> Option<Vec<u8>> {
    fn of<M: Mac + KeyInit>(key: &[u8], pieces: &[impl AsRef<[u8]>]) -> Option<Vec<u8>> {
        let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
        pieces.iter().for_each(|piece| mac.update(piece.as_ref()));
        Some(mac.finalize().into_bytes().to_vec())
    }
    match hash {
        Hash::Md5 => of::<Hmac<Md5>>(key, pieces),
        Hash::Sha1 => of::<Hmac<Sha1>>(key, pieces),
        Hash::Sha256 => of::<Hmac<Sha256>>(key, pieces),
        Hash::Sha512 => of::<Hmac<Sha512>>(key, pieces),
    }
}
