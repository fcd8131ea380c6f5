//! JSON Web Tokens and the keys that check them. The input's lines are a token's header, its claims, its signature,
//! and the text of a key.

use data_encoding::BASE64URL_NOPAD;
use hooklatch::model::{Headers, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Key, Request};

const PROVIDERS: [&str; 4] = ["netlify", "livekit", "fusionauth", "google-pubsub"];

pub(super) fn check(data: &[u8]) {
    let (header, rest) = super::line(data);
    let (claims, rest) = super::line(rest);
    let (signature, text) = super::line(rest);
    let token = [header, claims, signature].map(|part| BASE64URL_NOPAD.encode(part)).join(".");
    let text = String::from_utf8_lossy(text);
    for name in PROVIDERS {
        let scheme = Scheme::embedded(name).expect("a built-in provider").with_sender("me");
        // The input does not have this secret.
        let own = verify::key(&scheme, "env:OWN", &format!("{name}: no input holds this secret"));
        let given = verify::key(&scheme, "env:GIVEN", &text);
        if let Err(why) = &given {
            assert!(text.len() < 12 || !why.contains(text.as_ref()), "a message quotes the secret");
        }
        let mut headers = Headers::new();
        let prefix = if name == "google-pubsub" { "Bearer " } else { "" };
        for name in scheme.proof().headers() {
            headers.push(name, format!("{prefix}{token}"));
        }
        let url = Some("https://example.com/in");
        let judged = |keys: &[Key]| {
            let request = Request { method: "POST", url, headers: &headers, body: "{}".into() };
            verify::verify(&scheme, keys, request, Timestamp(1_767_225_600_000))
        };
        let keys: Vec<Key> = own.into_iter().collect();
        assert!(judged(&keys).is_err(), "a token that was not signed");
        let _ = judged(&given.into_iter().collect::<Vec<_>>());
    }
    for name in ["discord", "telnyx", "sendgrid", "kick"] {
        let scheme = Scheme::embedded(name).expect("a built-in provider");
        let _ = verify::key(&scheme, "env:GIVEN", &text);
    }
}
