//! Reads public keys and checks the signatures that were made with their private halves.
//!
//! `ring` does all arithmetic. Must stay true: a key of another kind, length or curve is refused when it is read,
//! and so is a private key.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use spki::SubjectPublicKeyInfoRef;
use spki::der::asn1::UintRef;
use spki::der::{Decode, Document, Encode};
use spki::{ObjectIdentifier, der};
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::provider::Algorithm;

/// A public key in the form that `ring` takes: 32 bytes, an uncompressed point, or an `RSAPublicKey` (RFC 8017).
#[derive(Clone)]
pub(super) struct PublicKey {
    /// The name of the key in its set.
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) bytes: Vec<u8>,
}

impl PublicKey {
    /// Checks a signature over `message`; one in an ECDSA token is `fixed` in length, another in DER.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8], fixed: bool) -> bool {
        verifies(self.algorithm, fixed, &self.bytes, message, signature)
    }
}

/// Whether the private half of `key` made `signature` over `message`.
pub(super) fn verifies(
    algorithm: Algorithm,
    fixed: bool,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let algorithm: &dyn VerificationAlgorithm = match algorithm {
        Algorithm::Hmac(_) => return false,
        Algorithm::Ed25519 => &signature::ED25519,
        Algorithm::EcdsaP256 if fixed => &signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::EcdsaP256 => &signature::ECDSA_P256_SHA256_ASN1,
        Algorithm::RsaSha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
    };
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
}

/// Refuses what is not a key of this algorithm.
pub(super) fn check(algorithm: Algorithm, key: &[u8]) -> Result<(), String> {
    match algorithm {
        Algorithm::Hmac(_) => Ok(()),
        Algorithm::Ed25519 if key.len() != 32 => Err(format!(
            "an Ed25519 public key has 32 bytes and this has {}; with 64 it has the private half in it",
            key.len()
        )),
        Algorithm::Ed25519 if is_weak(key) => {
            Err("this Ed25519 key accepts forged signatures (it is of small order)".to_owned())
        }
        Algorithm::EcdsaP256 if key.len() != 65 || key.first() != Some(&4) => {
            Err("a P-256 public key is an uncompressed point of 65 bytes".to_owned())
        }
        Algorithm::RsaSha256 => {
            let parts = Vec::<UintRef<'_>>::from_der(key).unwrap_or_default();
            let bits = match parts[..] {
                [modulus, _] => modulus.as_bytes().len() * 8,
                _ => 0,
            };
            let in_range = (2048..=8192).contains(&bits);
            in_range
                .then_some(())
                .ok_or_else(|| "an RSA public key has 2048 to 8192 bits".to_owned())
        }
        Algorithm::Ed25519 | Algorithm::EcdsaP256 => Ok(()),
    }
}

/// Whether an Ed25519 key is of small order. Such a key takes the identity with the scalar 0 for a signature of one
/// message in eight at least, and any other key for none.
fn is_weak(key: &[u8]) -> bool {
    let mut forged = [0; 64];
    forged[0] = 1;
    (0..64u8).any(|message| verifies(Algorithm::Ed25519, true, key, &[message], &forged))
}

const PRIVATE: &str =
    "this is a PRIVATE key: give the public key, and treat the private one as leaked";

/// Refuses a private key in PEM.
pub(super) fn refuse_private(text: &str) -> Result<(), String> {
    if text.contains("PRIVATE KEY") { Err(PRIVATE.to_owned()) } else { Ok(()) }
}

/// The end of a block of PEM (RFC 7468).
const CERTIFICATE_END: &str = "-----END CERTIFICATE-----";

/// Reads one or several certificates in PEM, or what [`spki`] reads. Of a certificate only the key counts.
pub(super) fn keys(text: &str) -> Result<Vec<PublicKey>, String> {
    refuse_private(text)?;
    if !text.contains(CERTIFICATE_END) {
        return Ok(vec![spki(text)?]);
    }
    let wrong = |_| "not certificates in PEM".to_owned();
    let blocks = text.split_inclusive(CERTIFICATE_END).filter(|block| !block.trim().is_empty());
    let key = |block: &str| {
        let (_, document) = Document::from_pem(block.trim()).map_err(|_| wrong(()))?;
        let der = CertificateDer::from(document.into_vec());
        let certificate = EndEntityCert::try_from(&der).map_err(|_| wrong(()))?;
        of_spki(certificate.subject_public_key_info().as_ref())
    };
    blocks.map(key).collect()
}

/// Reads SubjectPublicKeyInfo: PEM, or base64 of the DER.
pub(super) fn spki(text: &str) -> Result<PublicKey, String> {
    refuse_private(text)?;
    let document = if text.contains("-----BEGIN") {
        match Document::from_pem(text.trim()) {
            Ok(("PUBLIC KEY", document)) => document.into_vec(),
            Ok((label, _)) => return Err(format!("a {label} is not a PUBLIC KEY")),
            Err(_) => return Err(NONE.to_owned()),
        }
    } else {
        BASE64.decode(text.as_bytes()).map_err(|_| NONE)?
    };
    of_spki(&document)
}

const NONE: &str = "not a public key in PEM or in base64 (SubjectPublicKeyInfo)";

fn of_spki(der: &[u8]) -> Result<PublicKey, String> {
    // Forms of private keys begin with a version, 0 or 1.
    if (2..=4).any(|at| matches!(der.get(at..at + 3), Some([2, 1, 0 | 1]))) {
        return Err(PRIVATE.to_owned());
    }
    let info = SubjectPublicKeyInfoRef::try_from(der).map_err(|_| NONE)?;
    let parameters = info.algorithm.parameters;
    let curve = parameters.and_then(|own| own.decode_as::<ObjectIdentifier>().ok());
    let algorithm = match (info.algorithm.oid.to_string().as_str(), curve) {
        ("1.3.101.112", _) if parameters.is_none() => Algorithm::Ed25519,
        ("1.2.840.113549.1.1.1", _) if parameters.is_some_and(|own| own.is_null()) => {
            Algorithm::RsaSha256
        }
        ("1.2.840.10045.2.1", Some(curve)) if curve.to_string() == "1.2.840.10045.3.1.7" => {
            Algorithm::EcdsaP256
        }
        ("1.2.840.10045.2.1", _) => return Err("its curve is not P-256".to_owned()),
        _ => return Err("it must be an Ed25519, ECDSA P-256 or RSA key".to_owned()),
    };
    let bytes = info.subject_public_key.as_bytes().ok_or(NONE)?.to_vec();
    check(algorithm, &bytes)?;
    Ok(PublicKey { id: None, algorithm, bytes })
}

/// What is read of a JSON Web Key (RFC 7517). A repeated member is an error.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

/// Reads a JSON Web Key Set. Keys of other kinds and for other uses are left out.
pub(super) fn jwks(text: &str) -> Result<Vec<PublicKey>, String> {
    let set: Jwks =
        serde_json::from_str(text).map_err(|_| "not a JSON Web Key Set (RFC 7517)".to_owned())?;
    let mut keys: Vec<PublicKey> = Vec::new();
    for jwk in set.keys {
        if jwk.d.is_some() {
            return Err(PRIVATE.to_owned());
        }
        if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            continue;
        }
        let Some((algorithm, bytes)) = components(&jwk) else { continue };
        check(algorithm, &bytes)?;
        if keys.iter().any(|known| known.id == jwk.kid) {
            return Err("the set has two keys with one kid".to_owned());
        }
        keys.push(PublicKey { id: jwk.kid, algorithm, bytes });
    }
    match keys.is_empty() {
        true => Err("the set has no RSA or P-256 key for signatures".to_owned()),
        false => Ok(keys),
    }
}

fn components(jwk: &Jwk) -> Option<(Algorithm, Vec<u8>)> {
    let decode = |text: &Option<String>| BASE64URL_NOPAD.decode(text.as_ref()?.as_bytes()).ok();
    match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => Some((Algorithm::RsaSha256, rsa(&decode(&jwk.n)?, &decode(&jwk.e)?).ok()?)),
        ("EC", Some("P-256")) => {
            let (x, y) = (decode(&jwk.x)?, decode(&jwk.y)?);
            (x.len() == 32).then(|| (Algorithm::EcdsaP256, [&[4], &x[..], &y].concat()))
        }
        _ => None,
    }
}

/// The DER of an `RSAPublicKey`.
fn rsa(modulus: &[u8], exponent: &[u8]) -> der::Result<Vec<u8>> {
    vec![UintRef::new(modulus)?, UintRef::new(exponent)?].to_der()
}

#[cfg(test)]
#[path = "public_tests.rs"]
mod tests;
