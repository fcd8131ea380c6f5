//! Checks JSON Web Tokens (RFC 7519) in the compact form, and makes those that are signed with a shared secret.
//!
//! Must stay true: the provider file says which algorithms are accepted and the key says which of them it is for, so
//! that a token cannot choose; claims are read only after the signature is checked; what two readers could read
//! differently is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::keyed::{alphabet, tag};
use super::{Key, Rejection, Request, public, stamp};
use crate::model::Timestamp;
use crate::payload::walk::members;
use crate::provider::{Algorithm, Hash, Jwt, JwtAlgorithm, Proof, StampUnit, ahead};

/// The largest token: header lines are no larger with most servers.
pub(super) const TOKEN_BYTES: usize = 8 << 10;

/// The allowed difference of two clocks, where the provider's file names no tolerance.
const LEEWAY: Duration = Duration::from_secs(60);

/// The members of an object as they are written.
type Members = BTreeMap<String, String>;

/// A token in its three parts, decoded.
struct Token<'t> {
    algorithm: String,
    key_id: Option<String>,
    /// Header and claims as they are signed.
    signed: &'t str,
    claims: Members,
    signature: Vec<u8>,
}

impl<'t> Token<'t> {
    /// `None` if it is too large, is not of the form, or has a member twice or an extension that must be understood.
    fn parse(text: &'t str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.').filter(|_| text.len() <= TOKEN_BYTES)?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).ok();
        let (header, claims) = (object(&decode(header)?)?, object(&decode(claims)?)?);
        if header.contains_key("crit") {
            return None;
        }
        let key_id = match header.get("kid") {
            Some(kid) => Some(string(kid)?),
            None => None,
        };
        let algorithm = string(header.get("alg")?)?;
        Some(Token { algorithm, key_id, signed, claims, signature: decode(signature)? })
    }

    fn is_by(&self, algorithm: JwtAlgorithm, key: &Key) -> bool {
        let signed = self.signed.as_bytes();
        let wanted = match algorithm {
            JwtAlgorithm::Hs256 => {
                let tag = tag(Hash::Sha256, &key.bytes, &[signed]);
                let fits = |tag: Vec<u8>| bool::from(tag.ct_eq(&self.signature));
                return key.public.is_empty() && tag.is_some_and(fits);
            }
            JwtAlgorithm::Rs256 => Algorithm::RsaSha256,
            JwtAlgorithm::Es256 => Algorithm::EcdsaP256,
        };
        let named = |id: &Option<String>| id.is_none() || *id == self.key_id;
        let mut fitting = key.public.iter().filter(|k| k.algorithm == wanted && named(&k.id));
        fitting.any(|public| public.verifies(signed, &self.signature, true))
    }

    /// A claim that is a string.
    fn text(&self, name: &str) -> Option<String> {
        self.claims.get(name).and_then(|raw| string(raw))
    }

    /// A claim that is a time.
    fn time(&self, name: &str) -> Result<Option<Timestamp>, Rejection> {
        let time = |raw: &String| stamp::parse(raw, StampUnit::Seconds);
        let unreadable = || stamp::unreadable(StampUnit::Seconds);
        self.claims.get(name).map(|raw| time(raw).ok_or_else(unreadable)).transpose()
    }
}

/// The members of a JSON object; `None` if one comes twice.
fn object(json: &[u8]) -> Option<Members> {
    let mut all = Members::new();
    let mut is_twice = false;
    let is_object = members(
        json,
        |_| true,
        |name, raw| {
            is_twice |= all.insert(name.to_owned(), raw.to_owned()).is_some();
        },
    );
    (is_object && !is_twice).then_some(all)
}

fn string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// Whether `text` has the form of a token.
pub(super) fn is_token(text: &str) -> bool {
    Token::parse(text).is_some()
}

/// Reads a secret: the HMAC secret, a public key in PEM, or a key set.
pub(super) fn keys(jwt: &Jwt, text: &str) -> Result<Vec<public::PublicKey>, String> {
    let takes = |algorithm| jwt.algorithms.contains(&algorithm);
    let public = match text.trim_start() {
        pem if pem.starts_with("-----BEGIN") => vec![public::spki(pem)?],
        set if set.starts_with('{') => public::jwks(set)?,
        _ if takes(JwtAlgorithm::Hs256) => return Ok(Vec::new()),
        _ => return Err("neither a public key in PEM nor a JSON Web Key Set".to_owned()),
    };
    let fits = |key: &public::PublicKey| match key.algorithm {
        Algorithm::RsaSha256 => takes(JwtAlgorithm::Rs256),
        Algorithm::EcdsaP256 => takes(JwtAlgorithm::Es256),
        Algorithm::Hmac(_) | Algorithm::Ed25519 => false,
    };
    match public.iter().any(fits) {
        true => Ok(public),
        false => Err("the tokens are signed with another kind of key".to_owned()),
    }
}

/// The key that signed the token, if its claims fit the request.
pub(super) fn matching<'k>(
    jwt: &Jwt,
    proof: &Proof,
    keys: &'k [Key],
    text: &[u8],
    request: &Request<'_>,
    now: Timestamp,
) -> Result<&'k Key, Rejection> {
    let bad = |detail: &str| Rejection::unproven("bad_signature", detail);
    let claim = |detail: &str| Rejection::unproven("bad_claim", detail);
    let token = std::str::from_utf8(text).ok().and_then(Token::parse);
    let token = token.ok_or_else(|| bad("the token has not the form of one"))?;
    let accepted = JwtAlgorithm::named(&token.algorithm).filter(|own| jwt.algorithms.contains(own));
    let algorithm =
        accepted.ok_or_else(|| bad("the provider does not use the token's algorithm"))?;
    let key = keys.iter().find(|key| token.is_by(algorithm, key));
    let key = key.ok_or_else(|| bad("no key of the source signed the token"))?;
    check_times(jwt, &token, now)?;
    if jwt.issuer.is_some() && token.text("iss") != jwt.issuer {
        return Err(claim("the token has another issuer (iss)"));
    }
    if jwt.audience_is_url {
        let url = audience(request).ok_or_else(|| {
            Rejection::unproven("missing_part", "the token names a URL, and none is configured")
        })?;
        if token.text("aud").as_deref() != Some(url) {
            return Err(claim("the token is for another URL (aud)"));
        }
    }
    if let Some(name) = &jwt.sender_claim
        && !token.text(name).is_some_and(|sender| proof.takes_sender(&sender))
    {
        return Err(claim(&format!("the token's {name} is not the source's sender")));
    }
    if let Some(body) = &jwt.body {
        let claimed = token.text(&body.name);
        let claimed = claimed.and_then(|text| alphabet(body.encoding).decode(text.as_bytes()).ok());
        let digest = Sha256::digest(&request.body);
        if !claimed.is_some_and(|claimed| bool::from(claimed.ct_eq(&digest))) {
            return Err(bad(&format!("the token's {} is not this body's digest", body.name)));
        }
    }
    Ok(key)
}

/// The public URL without its query.
fn audience<'r>(request: &Request<'r>) -> Option<&'r str> {
    request.url?.split('?').next()
}

fn check_times(jwt: &Jwt, token: &Token<'_>, now: Timestamp) -> Result<(), Rejection> {
    let [expires, begins, issued] = ["exp", "nbf", "iat"].map(|name| token.time(name));
    let (expires, begins, issued) = (expires?, begins?, issued?);
    if jwt.tolerance.is_some() && expires.is_none() && issued.is_none() {
        return Err(Rejection::unproven("missing_timestamp", "the token has neither exp nor iat"));
    }
    let now = Timestamp(now.seconds().saturating_mul(1000));
    let tolerance = jwt.tolerance.unwrap_or(LEEWAY);
    let age = expires.or(issued.filter(|_| jwt.tolerance.is_some())).map(|last| now.since(last));
    if age.is_some_and(|age| age > tolerance) {
        return Err(Rejection::unproven("stale_timestamp", "the token has expired"));
    }
    if [begins, issued].into_iter().flatten().any(|first| first.since(now) > ahead(tolerance)) {
        return Err(Rejection::unproven("future_timestamp", "the token is from the future"));
    }
    Ok(())
}

/// Makes a token for `request` as the provider does, with the shared secret `key`.
pub(super) fn sign(
    jwt: &Jwt,
    sender: Option<&str>,
    key: &Key,
    request: &Request<'_>,
    now: Timestamp,
) -> Option<String> {
    let mut claims = Map::new();
    let mut claim = |name: &str, value: Option<Value>| {
        claims.extend(value.map(|value| (name.to_owned(), value)));
    };
    claim("iss", jwt.issuer.clone().map(Value::from));
    claim("aud", audience(request).filter(|_| jwt.audience_is_url).map(Value::from));
    for name in ["exp", "nbf", "iat"] {
        claim(name, jwt.tolerance.map(|_| now.seconds().into()));
    }
    if let Some(body) = &jwt.body {
        let digest = alphabet(body.encoding).encode(&Sha256::digest(&request.body));
        claim(&body.name, Some(digest.into()));
    }
    if let Some(sender_claim) = &jwt.sender_claim {
        claim(sender_claim, sender.map(Value::from));
    }
    let header = r#"{"alg":"HS256","typ":"JWT"}"#.to_owned();
    let encode = |text: String| BASE64URL_NOPAD.encode(text.as_bytes());
    let signed = format!("{}.{}", encode(header), encode(Value::Object(claims).to_string()));
    let tag = tag(Hash::Sha256, &key.bytes, &[signed.as_str()])?;
    Some(format!("{signed}.{}", BASE64URL_NOPAD.encode(&tag)))
}
