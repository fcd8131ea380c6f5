//! Keys and tokens that an attacker or a mistaken operator could give, with keys that `ring` makes.

#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING,
    ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
};
use spki::der::Encode;
use spki::der::asn1::{AnyRef, BitStringRef};
use spki::der::pem::LineEnding;
use spki::{AlgorithmIdentifier, ObjectIdentifier, SubjectPublicKeyInfo};

use crate::document::Problems;
use crate::model::{Headers, Timestamp};
use crate::provider::Scheme;
use crate::verify::{
    Draft, Key, Rejection, Request, Signer, can_be_judged_again, can_resign, evidence, key, sign,
    verify,
};

const NOW: Timestamp = Timestamp(1_767_225_600_000);
const BODY: &str = r#"{"id":"e-1","type":"a.b"}"#;

fn scheme(signature: &str, more: &str) -> Scheme {
    let text = format!(
        "name = \"test\"\n[signature]\nheader = \"X-Sig\"\n{signature}\n{more}\n[event]\nid = \"json:/id\"\n"
    );
    let problems = Problems::new();
    let scheme = Scheme::parse("test.toml", &text, &problems);
    scheme.unwrap_or_else(|| panic!("{:#?}", problems.into_sorted()))
}

fn public(algorithm: &str, more: &str) -> Scheme {
    let signature =
        format!("algorithm = \"{algorithm}\"\nencoding = \"hex\"\nsigned = \"v1:{{body}}\"");
    scheme(&signature, more)
}

fn judge(scheme: &Scheme, keys: &[Key], value: &str) -> Result<(), Rejection> {
    judge_at(scheme, keys, value, None, NOW)
}

fn judge_at(
    scheme: &Scheme,
    keys: &[Key],
    value: &str,
    url: Option<&str>,
    now: Timestamp,
) -> Result<(), Rejection> {
    let mut headers = Headers::new();
    headers.push("X-Sig", value);
    let body = Bytes::from_static(BODY.as_bytes());
    let request = Request { method: "POST", url, headers: &headers, body };
    verify(scheme, keys, request, now).map(drop)
}

fn reason(judged: Result<(), Rejection>) -> &'static str {
    judged.unwrap_err().reason
}

fn ed25519() -> Ed25519KeyPair {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let rng = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &rng).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &rng).unwrap()
}

fn spki(oid: &str, curve: Option<&str>, key: &[u8]) -> Vec<u8> {
    let curve = curve.map(ObjectIdentifier::new_unwrap);
    let info = SubjectPublicKeyInfo {
        algorithm: AlgorithmIdentifier {
            oid: ObjectIdentifier::new_unwrap(oid),
            parameters: curve.as_ref().map(AnyRef::from),
        },
        subject_public_key: BitStringRef::from_bytes(key).unwrap(),
    };
    info.to_der().unwrap()
}

fn pem(der: &[u8]) -> String {
    let document = spki::der::Document::try_from(der).unwrap();
    document.to_pem("PUBLIC KEY", LineEnding::LF).unwrap()
}

const ED25519: &str = "1.3.101.112";
const EC: &str = "1.2.840.10045.2.1";
const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";

#[test]
fn any_of_several_public_keys_matches_in_each_form() {
    let (pair, other) = (ed25519(), ed25519());
    let bytes = pair.public_key().as_ref();
    let signature = HEXLOWER.encode(pair.sign(format!("v1:{BODY}").as_bytes()).as_ref());
    let der = spki(ED25519, None, bytes);
    for (form, text) in [
        ("hex\"", HEXLOWER.encode(bytes)),
        ("base64\"\nprefix = \"whpk_\"", format!("whpk_{}", BASE64.encode(bytes))),
        ("spki\"", BASE64.encode(&der)),
        ("spki\"", pem(&der)),
        ("spki\"", pem(&der).trim().to_owned()),
    ] {
        let scheme = public("ed25519", &format!("[secret]\nencoding = \"{form}"));
        let own = key(&scheme, "k", &text).unwrap();
        let wrong = key(&scheme, "w", &text)
            .map(|own| Key { bytes: other.public_key().as_ref().to_vec().into(), ..own });
        let keys = [wrong.unwrap(), own];
        assert_eq!(judge(&scheme, &keys, &signature), Ok(()), "{form}");
        assert_eq!(reason(judge(&scheme, &keys[..1], &signature)), "bad_signature");
    }
    let pair = ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING);
    let scheme = public("ecdsa-p256", "");
    let text = pem(&spki(EC, Some(P256), pair.public_key().as_ref()));
    let keys = [key(&scheme, "k", &text).unwrap()];
    let signed = pair.sign(&SystemRandom::new(), format!("v1:{BODY}").as_bytes()).unwrap();
    assert_eq!(judge(&scheme, &keys, &HEXLOWER.encode(signed.as_ref())), Ok(()));
}

#[test]
fn signatures_of_another_form_or_length_are_refused() {
    let pair = ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING);
    let scheme = public("ecdsa-p256", "[secret]\nencoding = \"hex\"\n");
    let keys = [key(&scheme, "k", &HEXLOWER.encode(pair.public_key().as_ref())).unwrap()];
    let signed = pair.sign(&SystemRandom::new(), format!("v1:{BODY}").as_bytes()).unwrap();
    let longer = [signed.as_ref(), &[0]].concat();
    let mut oversize = signed.as_ref().to_vec();
    oversize[1] = 0x84;
    for bytes in [
        &[][..],
        &[0; 64],
        &[0x30; 70],
        &[0xFF; 72],
        &[0; 73],
        &[0; 5000],
        // SEQUENCE { INTEGER 0, INTEGER 0 }
        &[0x30, 6, 2, 1, 0, 2, 1, 0],
        &longer,
        &oversize,
        &signed.as_ref()[..signed.as_ref().len() - 1],
    ] {
        let refused = reason(judge(&scheme, &keys, &HEXLOWER.encode(bytes)));
        assert!(["bad_signature", "unreadable_signature"].contains(&refused), "{bytes:?}");
    }
    // An Ed25519 signature of zeros, of the identity, and of other lengths.
    let scheme = public("ed25519", "[secret]\nencoding = \"hex\"\n");
    let keys = [key(&scheme, "k", &HEXLOWER.encode(ed25519().public_key().as_ref())).unwrap()];
    let mut identity = [0; 64];
    identity[0] = 1;
    for bytes in [&[0; 64][..], &identity, &[0xFF; 64]] {
        assert_eq!(reason(judge(&scheme, &keys, &HEXLOWER.encode(bytes))), "bad_signature");
    }
    for length in [0, 1, 63, 65, 128] {
        let value = "00".repeat(length);
        assert_eq!(reason(judge(&scheme, &keys, &value)), "unreadable_signature", "{length}");
    }
}

#[test]
fn only_the_first_of_many_signatures_are_tried() {
    let pair = ed25519();
    let scheme = scheme(
        "algorithm = \"ed25519\"\nformat = \"list\"\nlabel = \"v1a\"\nencoding = \"hex\"\nsigned = \"{body}\"",
        "[secret]\nencoding = \"hex\"\n",
    );
    let keys = [key(&scheme, "k", &HEXLOWER.encode(pair.public_key().as_ref())).unwrap()];
    let own = format!("v1a,{}", HEXLOWER.encode(pair.sign(BODY.as_bytes()).as_ref()));
    let wrong = format!("v1a,{} ", "00".repeat(64));
    assert_eq!(judge(&scheme, &keys, &format!("{}{own}", wrong.repeat(7))), Ok(()));
    let many = format!("{}{own}", wrong.repeat(8));
    assert_eq!(reason(judge(&scheme, &keys, &many)), "bad_signature");
}

#[test]
fn a_key_of_another_kind_length_or_curve_is_refused_when_it_is_read() {
    let small_order = [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ];
    let hex = public("ed25519", "[secret]\nencoding = \"hex\"\n");
    let refused = |scheme: &Scheme, text: &str, wanted: &str| {
        let error = key(scheme, "env:K", text).unwrap_err();
        assert!(error.starts_with("env:K: ") && error.contains(wanted), "{text}: {error}");
        assert!(!error.contains(text) || text.is_empty(), "{error}");
    };
    for text in small_order {
        refused(&hex, text, "small order");
    }
    refused(&hex, "", "empty");
    refused(&hex, "00ff", "has 32 bytes and this has 2");
    refused(&hex, &"11".repeat(64), "private half");
    refused(&hex, "zz", "not hex");
    refused(&hex, "-----BEGIN PRIVATE KEY-----", "PRIVATE key");

    let p384 = ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING);
    let p384 = spki(EC, Some(P384), p384.public_key().as_ref());
    let p256 = ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING);
    let p256 = spki(EC, Some(P256), p256.public_key().as_ref());
    let edwards = spki(ED25519, None, ed25519().public_key().as_ref());
    let point = public("ecdsa-p256", "[secret]\nencoding = \"hex\"\n");
    refused(&point, &"00".repeat(65), "uncompressed point");
    refused(&point, &format!("02{}", "11".repeat(32)), "uncompressed point");
    for algorithm in ["ed25519", "ecdsa-p256", "rsa-sha256"] {
        let scheme = public(algorithm, "");
        refused(&scheme, &pem(&p384), "its curve is not P-256");
        refused(&scheme, &BASE64.encode(&[p256.clone(), vec![0]].concat()), "not a public key");
        refused(&scheme, &BASE64.encode(&p256[..40]), "not a public key");
        refused(&scheme, "whsec_AAECAwQF", "not a public key");
        let private = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let private = spki::der::Document::try_from(private.as_ref()).unwrap();
        refused(&scheme, &private.to_pem("PRIVATE KEY", LineEnding::LF).unwrap(), "PRIVATE key");
        refused(&scheme, &BASE64.encode(private.as_bytes()), "PRIVATE key");
        let certificate = pem(&p256).replace("PUBLIC KEY", "CERTIFICATE");
        refused(&scheme, &certificate, "not certificates in PEM");
    }
    refused(&public("ed25519", ""), &pem(&p256), "another kind");
    refused(&public("ecdsa-p256", ""), &pem(&edwards), "another kind");
    // RSA with 1,024 bits, and with no number at all.
    let short = [&[0x30, 0x81, 0x89, 2, 0x81, 0x81, 0, 0xFF][..], &[0x55; 127], &[2, 3, 1, 0, 1]];
    let rsa = public("rsa-sha256", "[secret]\nencoding = \"hex\"\n");
    refused(&rsa, &HEXLOWER.encode(&short.concat()), "2048 to 8192 bits");
    refused(&rsa, "3000", "2048 to 8192 bits");
}

#[test]
fn only_the_provider_can_sign_with_a_public_key() {
    let scheme = public("ed25519", "[secret]\nencoding = \"hex\"\n");
    let own = key(&scheme, "k", &HEXLOWER.encode(ed25519().public_key().as_ref())).unwrap();
    let draft = Draft { method: "POST", body: Bytes::from_static(b"{}"), ..Draft::default() };
    for key in [None, Some(&own)] {
        let why = sign(&scheme, key, &draft, NOW).unwrap_err();
        assert!(why.contains("the provider's own test button"), "{why}");
    }
    let (message, help) = can_resign(&scheme).unwrap_err();
    assert!(message.contains("private key") && help.contains("sign = false"), "{message} {help}");
    assert!(scheme.proof().has_public_key() && scheme.proof().signs_content());
    let token = jwt("jwt = [\"ES256\"]", "");
    assert!(sign(&token, None, &draft, NOW).unwrap_err().contains("test button"));
    let forger = Signer::forger(scheme.into(), [7; 32]);
    assert!(forger.sign(&draft, NOW).unwrap_err().contains("test button"));
}

/// A scheme of tokens; `more` are further keys.
fn jwt(algorithms: &str, more: &str) -> Scheme {
    let replay = if more.contains("body_claim") { "" } else { "[replay]\nguard = \"off\"\n" };
    scheme(&format!("algorithm = \"jwt\"\n{algorithms}\n{more}"), replay)
}

fn encoded(text: &str) -> String {
    BASE64URL_NOPAD.encode(text.as_bytes())
}

/// A token of any header and claims, with a valid HS256 signature.
fn hs256(secret: &str, header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let tag = ring::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", BASE64URL_NOPAD.encode(tag.as_ref()))
}

const HEADER: &str = r#"{"alg":"HS256"}"#;

#[test]
fn a_token_that_two_readers_could_read_differently_is_refused() {
    let scheme = jwt("jwt = [\"HS256\"]", "issuer = \"me\"");
    let keys = [key(&scheme, "k", "secret").unwrap()];
    let judged =
        |header: &str, claims: &str| judge(&scheme, &keys, &hs256("secret", header, claims));
    let claims = r#"{"iss":"me"}"#;
    assert_eq!(judged(HEADER, claims), Ok(()));
    assert_eq!(judged(r#"{"alg":"HS256","kid":"any","typ":"x"}"#, claims), Ok(()));
    for (header, claims) in [
        (r#"{"alg":"HS256","alg":"HS256"}"#, claims),
        (r#"{"alg":"none","alg":"HS256"}"#, claims),
        (r#"{"alg":["HS256"]}"#, claims),
        (r#"{"alg":"HS256","kid":1}"#, claims),
        (r#"{"alg":"HS256","crit":[]}"#, claims),
        (r#"{"typ":"JWT"}"#, claims),
        (r#"[{"alg":"HS256"}]"#, claims),
        ("", claims),
        (HEADER, r#"{"iss":"me","iss":"me"}"#),
        (HEADER, r#"{"iss":"me","\u0069ss":"you"}"#),
        (HEADER, r#"{"iss":"me"} {}"#),
        (HEADER, "\"me\""),
        (HEADER, ""),
    ] {
        assert_eq!(reason(judged(header, claims)), "unreadable_signature", "{header} {claims}");
    }
    for algorithm in ["none", "None", "HS512", "RS256", "hs256", ""] {
        let header = format!(r#"{{"alg":"{algorithm}"}}"#);
        assert_eq!(reason(judged(&header, claims)), "bad_signature", "{algorithm}");
        let bare = format!("{}.{}.", encoded(&header), encoded(claims));
        assert_eq!(reason(judge(&scheme, &keys, &bare)), "bad_signature", "{algorithm}");
    }
    for claims in [r#"{"iss":"Me"}"#, r#"{"iss":["me"]}"#, "{}", r#"{"iss":null}"#] {
        assert_eq!(reason(judged(HEADER, claims)), "bad_claim", "{claims}");
    }
    let token = hs256("secret", HEADER, claims);
    let padding = "A".repeat(8 << 10);
    let huge = hs256("secret", HEADER, &format!(r#"{{"iss":"me","a":"{padding}"}}"#));
    let deep = hs256("secret", HEADER, &format!(r#"{{"iss":"me","a":{}}}"#, "[".repeat(4000)));
    let padded = format!("{token}=");
    for bad in ["", ".", "..", "a.b", &token[..20], &padded, &huge, &deep, &format!("{token}.x")] {
        assert_eq!(reason(judge(&scheme, &keys, bad)), "unreadable_signature", "{bad}");
    }
}

#[test]
fn a_token_is_valid_for_the_time_that_it_says() {
    let scheme = jwt("jwt = [\"HS256\"]", "tolerance = \"1min\"");
    let keys = [key(&scheme, "k", "secret").unwrap()];
    let judged = |claims: &str, after: i64| {
        let now = Timestamp(NOW.0 + after * 1000);
        judge_at(&scheme, &keys, &hs256("secret", HEADER, claims), None, now)
    };
    let now = NOW.seconds();
    let exp = format!(r#"{{"exp":{now}}}"#);
    assert_eq!((judged(&exp, 60), judged(&exp, -86_400)), (Ok(()), Ok(())));
    assert_eq!(reason(judged(&exp, 61)), "stale_timestamp");
    let nbf = format!(r#"{{"exp":{},"nbf":{now}}}"#, now + 3600);
    assert_eq!((judged(&nbf, -60), judged(&nbf, 3660)), (Ok(()), Ok(())));
    assert_eq!(reason(judged(&nbf, -61)), "future_timestamp");
    let iat = format!(r#"{{"iat":{now}}}"#);
    assert_eq!((judged(&iat, -60), judged(&iat, 60)), (Ok(()), Ok(())));
    assert_eq!(reason(judged(&iat, -61)), "future_timestamp");
    assert_eq!(reason(judged(&iat, 61)), "stale_timestamp");
    assert_eq!(reason(judged(&nbf.replace("exp", "x"), 0)), "missing_timestamp");
    for bad in ["\"1767225600\"", "1e9", "-1", "1767225600.5", "null", "99999999999999999999"] {
        let claims = format!(r#"{{"exp":{bad}}}"#);
        assert_eq!(reason(judged(&claims, 0)), "bad_timestamp", "{bad}");
    }
    assert_eq!(scheme.proof().tolerance(), Some(std::time::Duration::from_secs(60)));
}

#[test]
fn a_token_without_the_bodys_digest_is_a_secret_and_one_with_it_a_signature() {
    let (token, signature) = (
        jwt("jwt = [\"HS256\"]", ""),
        jwt("jwt = [\"HS256\"]", "body_claim = \"h\"\nbody_encoding = \"base64url\""),
    );
    assert!(!token.proof().signs_content() && signature.proof().covers_id());
    assert!(signature.proof().signs_content());
    assert_eq!((can_be_judged_again(&token), can_be_judged_again(&signature)), (false, true));
    let mut headers = Headers::new();
    headers.push("X-Sig", "a.b.c");
    assert_eq!(evidence(&token, &headers).all("x-sig").count(), 0);
    assert_eq!(evidence(&signature, &headers).all("x-sig").count(), 1);
    for scheme in [token, signature] {
        let keys = [key(&scheme, "k", "secret").unwrap()];
        let body = Bytes::from_static(BODY.as_bytes());
        let draft = Draft { method: "POST", body, ..Draft::default() };
        let headers = sign(&scheme, Some(&keys[0]), &draft, NOW).unwrap();
        let value = std::str::from_utf8(headers.all("X-Sig").next().unwrap()).unwrap();
        assert_eq!(judge(&scheme, &keys, value), Ok(()));
        let other =
            Request { method: "POST", url: None, headers: &headers, body: "{\"id\":1}".into() };
        assert_eq!(verify(&scheme, &keys, other, NOW).is_ok(), !scheme.proof().signs_content());
    }
}

/// A key set of one P-256 key, and what signs tokens with it.
fn set(id: &str) -> (String, EcdsaKeyPair) {
    let pair = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING);
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    let [x, y] = [x, y].map(|part| BASE64URL_NOPAD.encode(part));
    (format!(r#"{{"kty":"EC","crv":"P-256","use":"sig","kid":"{id}","x":"{x}","y":"{y}"}}"#), pair)
}

fn es256(pair: &EcdsaKeyPair, header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
}

#[test]
fn the_key_id_chooses_a_key_of_the_set() {
    let scheme = jwt("jwt = [\"ES256\", \"HS256\"]", "");
    let ((one, pair), (two, other)) = (set("k1"), set("k2"));
    let text = format!(r#"{{"keys":[{{"kty":"oct","k":"AA"}},{one},{two}],"more":1}}"#);
    let keys = [key(&scheme, "k", &text).unwrap()];
    let header = |id: &str| format!(r#"{{"alg":"ES256","kid":"{id}"}}"#);
    let judged = |token: &str| judge(&scheme, &keys, token);
    assert_eq!(judged(&es256(&pair, &header("k1"), "{}")), Ok(()));
    assert_eq!(judged(&es256(&other, &header("k2"), "{}")), Ok(()));
    for id in ["k2", "k3", ""] {
        assert_eq!(reason(judged(&es256(&pair, &header(id), "{}"))), "bad_signature", "{id}");
    }
    assert_eq!(reason(judged(&es256(&pair, r#"{"alg":"ES256"}"#, "{}"))), "bad_signature");
    // The public text is no HMAC secret, although HS256 is accepted.
    let forged = hs256(&text, r#"{"alg":"HS256","kid":"k1"}"#, "{}");
    assert_eq!(reason(judged(&forged)), "bad_signature");
    let confused = pem(&spki(EC, Some(P256), pair.public_key().as_ref()));
    let by_pem = [key(&scheme, "k", &confused).unwrap()];
    assert_eq!(judge(&scheme, &by_pem, &es256(&pair, &header("k9"), "{}")), Ok(()));
    assert_eq!(reason(judge(&scheme, &by_pem, &hs256(&confused, HEADER, "{}"))), "bad_signature");

    for (text, wanted) in [
        (format!(r#"{{"keys":[{one},{one}]}}"#), "two keys with one kid"),
        (format!(r#"{{"keys":[{}]}}"#, one.replace("\"x\"", "\"d\":\"AA\",\"x\"")), "PRIVATE key"),
        (format!(r#"{{"keys":[{}]}}"#, one.replace("sig", "enc")), "no RSA or P-256 key"),
        (format!(r#"{{"keys":[{}]}}"#, one.replace("P-256", "P-384")), "no RSA or P-256 key"),
        (
            r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#.to_owned(),
            "no RSA or P-256",
        ),
        (r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#.to_owned(), "2048 to 8192 bits"),
        (format!(r#"{{"keys":[{}]}}"#, one.replace("\"x\"", "\"kid\":\"b\",\"x\"")), "Key Set"),
        (r#"{"keys":[]}"#.to_owned(), "no RSA or P-256 key"),
        (one.clone(), "Key Set"),
        ("{".to_owned(), "Key Set"),
    ] {
        let error = key(&scheme, "k", &text).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    let public_only = jwt("jwt = [\"RS256\"]", "");
    let plain = key(&public_only, "k", "secret").unwrap_err();
    assert!(plain.contains("neither a public key in PEM nor"), "{plain}");
    let kind = key(&public_only, "k", &confused).unwrap_err();
    assert!(kind.contains("another kind of key"), "{kind}");
}

#[test]
fn a_token_for_all_customers_must_name_the_url_and_the_sender() {
    let scheme = jwt("jwt = [\"HS256\"]", "audience = \"url\"\nsender_claim = \"email\"");
    assert!(scheme.proof().covers_url());
    let keys = [key(&scheme, "k", "secret").unwrap()];
    let url = "https://hooks.example.org/hooks/p";
    let judged = |scheme: &Scheme, claims: &str, url: Option<&str>| {
        judge_at(scheme, &keys, &hs256("secret", HEADER, claims), url, NOW)
    };
    let claims = format!(r#"{{"aud":"{url}","email":"a@example.org"}}"#);
    assert_eq!(reason(judged(&scheme, &claims, Some(url))), "bad_claim", "no sender is set");
    let scheme = scheme.with_sender("a@example.org");
    assert_eq!(judged(&scheme, &claims, Some(url)), Ok(()));
    let with_query = format!("{url}?token=x");
    assert_eq!(judged(&scheme, &claims, Some(&with_query)), Ok(()));
    assert_eq!(reason(judged(&scheme, &claims, None)), "missing_part");
    for (from, to) in [("hooks/p", "hooks/q"), ("a@", "b@"), ("aud", "x"), ("email", "x")] {
        let other = claims.replace(from, to);
        assert_eq!(reason(judged(&scheme, &other, Some(url))), "bad_claim", "{other}");
    }
}
