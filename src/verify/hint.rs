//! Explains a rejection to the operator in one sentence that says what to do.
//!
//! The `verify` command and the drill call it. The receiver does not call it for each bad delivery,
//! because it hashes the body again for every guess. Must stay true: it states a guess as a fact
//! only if the signature then matches.

use bytes::Bytes;
use data_encoding::BASE64;

use super::extract::Facts;
use super::{Key, Rejection, Request, signature, stamp};
use crate::model::Timestamp;
use crate::payload::json_of;
use crate::provider::{Algorithm, KeyText, Mechanism, Scheme};

/// What the operator can do about a rejection of `request` at `now`; `None` if no advice is known.
pub fn hint(
    scheme: &Scheme,
    keys: &[Key],
    request: &Request<'_>,
    rejection: &Rejection,
    now: Timestamp,
) -> Option<String> {
    let advice = match rejection.reason {
        "stale_timestamp" => {
            let age = now.since(signed_at(scheme, request)?).as_secs();
            format!(
                "the request is {age} s old: it arrived late, a third party re-sent it, or the \
                 clock here is {age} s ahead (for a captured request give the time of its arrival)"
            )
        }
        "future_timestamp" => {
            let lead = signed_at(scheme, request)?.since(now).as_secs();
            format!("the clock here is {lead} s behind the sender's: is its time synchronised?")
        }
        "bad_signature" => bad_signature(scheme, keys, request, now),
        "missing_signature" => missing_signature(scheme, request),
        "repeated_header" => "a proxy on the way may add the header a second time".to_owned(),
        "unreadable_signature" => {
            format!("is {} the right provider for this sender?", scheme.name())
        }
        "no_secret" => {
            format!("give the source the {} that the provider shows", scheme.proof().secret_word())
        }
        "missing_part" if scheme.proof().covers_url() && request.url.is_none() => {
            "this provider signs the URL: give the public one, as it is set at the provider"
                .to_owned()
        }
        "missing_id" | "bad_id" => {
            "the sender is genuine; its callers choose their keys, so none is made for them"
                .to_owned()
        }
        _ => return None,
    };
    Some(advice)
}

fn signed_at(scheme: &Scheme, request: &Request<'_>) -> Option<Timestamp> {
    let scheme = super::family_of(scheme, request.headers);
    let presented = signature::present(scheme, request.headers).ok()?;
    let found = Facts::read(scheme, &request.body);
    let at = scheme.proof().timestamp.as_ref()?;
    stamp::parse(stamp::text(at, presented.stamp, &found)?, at.unit)
}

fn missing_signature(scheme: &Scheme, request: &Request<'_>) -> String {
    let has = |name: &str| request.headers.all(name).next().is_some();
    let expects = |other: &Scheme| other.families().any(|family| family.proof().headers().any(has));
    // More share a header such as X-Hub-Signature, and then none is a likely one.
    let fitting: Vec<&str> = Scheme::embedded_names()
        .filter(|name| Scheme::embedded(name).is_some_and(|other| expects(&other)))
        .collect();
    if (1..=2).contains(&fitting.len()) {
        let others = fitting.join(" or ");
        return format!("this looks like a request of provider {others}, not {}", scheme.name());
    }
    let similar = request.headers.iter().find(|(name, _)| {
        let name = name.to_ascii_lowercase();
        name.contains("signature") || name.contains("hmac")
    });
    match similar {
        Some((name, _)) => {
            format!("there is {name} instead: is it another provider, or a legacy signature?")
        }
        None => {
            "is a secret set at the provider, and does every proxy pass the header on?".to_owned()
        }
    }
}

fn bad_signature(scheme: &Scheme, keys: &[Key], request: &Request<'_>, now: Timestamp) -> String {
    let fits = |keys: &[Key], body: Vec<u8>| {
        let request = Request { body: Bytes::from(body), ..request.clone() };
        super::prove(scheme, keys, &request, now).is_ok()
    };
    for (what, body) in bodies(scheme, &request.body) {
        if fits(keys, body) {
            return what.to_owned();
        }
    }
    for key in keys {
        for (what, bytes) in other_keys(scheme, &key.bytes) {
            let other = Key { bytes: bytes.into(), ..key.clone() };
            if fits(&[other], request.body.to_vec()) {
                return format!("{}: {what}", key.reference);
            }
        }
    }
    let encoding = request.headers.all("content-encoding").next();
    if let Some(encoding) = encoding.filter(|name| !name.eq_ignore_ascii_case(b"identity")) {
        let encoding = String::from_utf8_lossy(encoding).escape_debug().to_string();
        return format!(
            "the body is marked as encoded ({encoding}): either it was compressed or decompressed on \
             its way, or the sender signs it before it compresses it: turn its compression off"
        );
    }
    if request.body.is_empty() {
        return "the body is empty: was it lost on its way, or read before it came here?"
            .to_owned();
    }
    if scheme.proof().has_public_key() {
        return "either the public key is another one (has the provider changed it?), or the body was \
                re-encoded or changed by a proxy"
            .to_owned();
    }
    "either the secret is another one (each endpoint has its own), or the body was re-encoded or \
     changed by a proxy"
        .to_owned()
}

/// The bodies that the provider may have signed, each with the change that turned it into `body`.
fn bodies(scheme: &Scheme, body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    const NEWLINE: &str = "a newline was added to or cut from the end of the body on its way";
    const JSON: &str =
        "the body was re-encoded by a proxy or a framework: the same JSON in other bytes";
    const ENDS: &str = "the body's line ends were changed on its way";
    let mut all = vec![
        (NEWLINE, body.trim_ascii_end().to_vec()),
        (NEWLINE, [body, b"\n"].concat()),
        (NEWLINE, [body, b"\r\n"].concat()),
    ];
    let text = String::from_utf8_lossy(body);
    let lf = text.replace("\r\n", "\n");
    all.push((ENDS, lf.replace('\n', "\r\n").into_bytes()));
    all.push((ENDS, lf.into_bytes()));
    if let Some(indented) = reprint(body, true) {
        all.push((JSON, [&indented[..], b"\n"].concat()));
        all.push((JSON, indented));
    }
    all.extend(reprint(body, false).map(|compact| (JSON, compact)));
    all.extend(json_of(body, scheme.identity().form_field.as_deref()).map(|json| {
        (
            "the sender signs the JSON inside the form, as Gitea does: let it send JSON",
            json.into_owned(),
        )
    }));
    all
}

/// The keys that the provider may have used, each with the mistake that turned it into `key`.
fn other_keys(scheme: &Scheme, key: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    const TRIM: &str = "the secret has a space or newline around it";
    const CUT: &str = "the secret's prefix was cut: here it is part of the key";
    const TEXT: &str = "the sender uses the secret's text as the key: is it another provider?";
    const DECODED: &str =
        "the sender decodes the secret first: is it another provider, such as standard-webhooks?";
    let Some(Mechanism::Signed { algorithm: Algorithm::Hmac(_), key: how, .. }) =
        scheme.proof().signature.as_ref().map(|signature| &signature.mechanism)
    else {
        return Vec::new();
    };
    match how {
        KeyText::Text => {
            let trimmed = key.trim_ascii();
            let bare = trimmed.strip_prefix(b"whsec_").unwrap_or(trimmed);
            let mut all = vec![(TRIM, trimmed.to_vec()), (CUT, [b"whsec_", bare].concat())];
            all.extend(BASE64.decode(bare).ok().map(|decoded| (DECODED, decoded)));
            all
        }
        KeyText::Base64 { prefix } => {
            let text = BASE64.encode(key);
            vec![(TEXT, format!("{prefix}{text}").into_bytes()), (TEXT, text.into_bytes())]
        }
        KeyText::Hex => vec![(TEXT, data_encoding::HEXLOWER.encode(key).into_bytes())],
        KeyText::Sha1 | KeyText::Spki => Vec::new(),
    }
}

/// Writes the same JSON tokens without spaces, or indented by two spaces as Stripe does; `None` if the text is not
/// JSON. Strings and numbers keep their spelling.
fn reprint(json: &[u8], indent: bool) -> Option<Vec<u8>> {
    serde_json::from_slice::<serde::de::IgnoredAny>(json).ok()?;
    let mut out = Vec::with_capacity(json.len());
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let line = |out: &mut Vec<u8>, depth: usize| {
        if indent {
            out.push(b'\n');
            out.resize(out.len() + 2 * depth, b' ');
        }
    };
    for &byte in json {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
            out.push(byte);
            continue;
        }
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => continue,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !matches!(out.last(), Some(b'{' | b'[')) {
                    line(&mut out, depth);
                }
            }
            _ if matches!(out.last(), Some(b'{' | b'[')) => line(&mut out, depth),
            _ => {}
        }
        out.push(byte);
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b',' => line(&mut out, depth),
            b':' if indent => out.push(b' '),
            _ => {}
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reprinted_json_has_the_layout_of_serde_json() {
        let text = r#" {"a" : [1, 2.50,{}, []], "b": "x: {\"y\\\\\", \n[", "c":{"d":null}}  "#
            .replace("\\n", "");
        let value: serde_json::Value = serde_json::from_str(&text.replace("2.50", "2.5")).unwrap();
        let print = |indent| {
            String::from_utf8(reprint(text.as_bytes(), indent).unwrap())
                .unwrap()
                .replace("2.50", "2.5")
        };
        assert_eq!(print(false), serde_json::to_string(&value).unwrap());
        assert_eq!(print(true), serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(reprint(b"{} {}", false), None);
    }
}
