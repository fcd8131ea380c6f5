//! Deliveries of providers, of relays and of forgers, each with its expected result.
//!
//! Ids and bodies come from small pools, so that they repeat in every combination.

use std::sync::Arc;

use bytes::Bytes;
use hooklatch::model::{Digest, EventId, Headers, ReplayGuard, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Draft, Key, Request, Verified};

use crate::random::Random;

/// Source names with their providers. Two sources of one provider share the pool of ids, but not events.
pub(crate) const SOURCES: &[(&str, &str)] =
    &[("stripe", "stripe"), ("shop", "stripe"), ("github", "github")];

/// GitHub's event header, the action in the body, and whether the type has legitimate repeats of one body.
const GITHUB_TYPES: &[(&str, Option<&str>, bool)] = &[
    ("push", None, false),
    ("issues", Some("opened"), false),
    ("label", None, true),
    ("label", Some("edited"), true),
    ("star", Some("deleted"), true),
    ("star", Some("created"), false),
];

/// The contents of a genuine delivery.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) source: &'static str,
    pub(crate) id: String,
    /// The type, with both levels.
    pub(crate) kind: String,
    /// The body without the provider's volatile field: equal for two deliveries of one event.
    pub(crate) content: String,
    pub(crate) body: String,
    /// The first level, for the header.
    event: &'static str,
    /// Whether the same body may legitimately come under another id; `None` if the id is signed.
    pub(crate) repeats: Option<bool>,
}

impl Delivery {
    pub(crate) fn id_signed(&self) -> bool {
        self.repeats.is_none()
    }

    /// A random delivery from the pools; `pool` ids are in use.
    pub(crate) fn any(random: &mut Random, pool: usize) -> Self {
        let &(source, provider) = random.pick(SOURCES);
        let number = random.below(pool);
        if provider == "github" {
            let &(event, action, repeats) = random.pick(GITHUB_TYPES);
            let data = random.below(pool);
            let action = action.map(|action| format!(r#""action":"{action}","#));
            let body = format!(r#"{{{}"n":{data}}}"#, action.unwrap_or_default());
            return Self::github(format!("guid-{number}"), event, body, repeats);
        }
        // Usually an id has one body; sometimes the provider changes it.
        let data = if random.one_in(4) { 1 + random.below(6) } else { 0 };
        let kind = if data % 2 == 0 { "invoice.paid" } else { "invoice.failed" };
        let id = format!("evt_{number}");
        let mut delivery = Delivery {
            source,
            id,
            kind: kind.to_owned(),
            content: format!("{number} {kind} {data}"),
            body: String::new(),
            event: "",
            repeats: None,
        };
        delivery.body = stripe_body(&delivery, data, random.below(4));
        delivery
    }

    fn github(id: String, event: &'static str, body: String, repeats: bool) -> Self {
        let kind = match body.split('"').skip_while(|part| *part != "action").nth(2) {
            Some(action) => format!("{event}.{action}"),
            None => event.to_owned(),
        };
        let source = "github";
        Delivery { source, id, kind, content: body.clone(), body, event, repeats: Some(repeats) }
    }

    /// A repeat of the delivery, by the provider or by an attacker who captured it.
    pub(crate) fn again(&self, random: &mut Random, pool: usize) -> Self {
        let mut again = self.clone();
        if self.id_signed() {
            let pending = random.below(4);
            let at = again.body.rfind(':').unwrap() + 1;
            again.body.replace_range(at.., &format!("{pending}}}"));
            return again;
        }
        match random.below(5) {
            0 | 1 => again,
            2 => {
                again.id = format!("guid-{}", random.below(pool));
                again
            }
            3 => {
                again.id = EventId::derived(Digest::of(again.body.as_bytes())).to_string();
                again
            }
            _ => {
                let &(event, _, _) = random.pick(GITHUB_TYPES);
                // Whether the type has legitimate repeats, from the table by type and action.
                let mut again = Self::github(again.id, event, again.body, false);
                let action = again.kind.split_once('.').map(|(_, action)| action);
                again.repeats = Some(match (event, action) {
                    ("star", action) => action == Some("deleted"),
                    (event, _) => event == "label",
                });
                again
            }
        }
    }

    /// Signs the delivery at the time `at`, as the provider does.
    pub(crate) fn send(&self, keys: &Keys, at: Timestamp) -> Sent {
        let (scheme, key, _) = keys.of(self.source);
        let mut headers = Headers::new();
        headers.push("Content-Type", "application/json");
        headers.push("X-Forwarded-For", "192.0.2.1");
        let body = Bytes::from(self.body.clone());
        let (id, event_type) = (self.id.as_str(), self.event);
        let draft =
            Draft { method: "POST", url: None, id, event_type, headers, body: body.clone() };
        let headers = verify::sign(scheme, Some(key), &draft, at).unwrap();
        let mut sent = Sent { headers, body };
        if self.id.parse::<EventId>().unwrap().is_derived() {
            sent.map_header("X-GitHub-Delivery", |_| None);
        }
        sent
    }

    /// Checks what `verify` read from the delivery.
    pub(crate) fn check(&self, verified: &Verified) {
        let guard = match self.repeats {
            None => ReplayGuard::Off,
            Some(true) => ReplayGuard::Flag,
            Some(false) => ReplayGuard::Hold,
        };
        assert_eq!(verified.event_id().as_str(), self.id, "the id");
        assert_eq!(verified.event_type().as_str(), self.kind, "the type");
        assert_eq!(verified.id_signed(), self.id_signed(), "whether the id is signed");
        assert_eq!(verified.guard(), guard, "what the replay guard does");
        assert_eq!(verified.body(), self.body.as_bytes(), "the body, byte for byte");
        assert_eq!(
            verified.headers().all("X-Forwarded-For").count(),
            0,
            "a header nobody asked for"
        );
    }
}

fn stripe_body(delivery: &Delivery, data: usize, pending: usize) -> String {
    let (id, kind) = (&delivery.id, &delivery.kind);
    format!(r#"{{"id":"{id}","type":"{kind}","data":{data},"pending_webhooks":{pending}}}"#)
}

/// One signed request.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

impl Sent {
    pub(crate) fn verify(
        &self,
        keys: &Keys,
        source: &str,
        now: Timestamp,
    ) -> Result<Verified, verify::Rejection> {
        let (scheme, key, _) = keys.of(source);
        let (headers, body) = (&self.headers, self.body.clone());
        verify::precheck(scheme, headers)?;
        let request = Request { method: "POST", url: None, headers, body };
        verify::verify(scheme, std::slice::from_ref(key), request, now)
    }

    fn map_header(&mut self, name: &str, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
        let mut headers = Headers::new();
        for (n, value) in self.headers.iter() {
            if !n.eq_ignore_ascii_case(name) {
                headers.push(n, value);
            } else if let Some(value) = change(value) {
                headers.push(n, value);
            }
        }
        self.headers = headers;
    }
}

/// The schemes of the sources, with the right secret of each and a forger's wrong one.
pub(crate) struct Keys(Vec<(&'static str, Scheme, Key, Key)>);

impl Keys {
    pub(crate) fn new() -> Self {
        let of = |&(source, provider): &(&'static str, &str)| {
            let scheme = Scheme::embedded(provider).unwrap();
            let key = |text: String| verify::key(&scheme, source, &text).unwrap();
            let (own, guessed) = (key(format!("whsec_{source}")), key("whsec_guess".to_owned()));
            (source, scheme, own, guessed)
        };
        Keys(SOURCES.iter().map(of).collect())
    }

    fn of(&self, source: &str) -> (&Scheme, &Key, &Key) {
        let found = self.0.iter().find(|(name, ..)| *name == source).unwrap();
        (&found.1, &found.2, &found.3)
    }

    /// How the source's provider signs.
    pub(crate) fn scheme(&self, source: &str) -> Arc<Scheme> {
        Arc::new(self.of(source).0.clone())
    }

    /// The headers of a failed delivery that may be stored.
    pub(crate) fn evidence(&self, source: &str, headers: &Headers) -> Headers {
        verify::evidence(self.of(source).0, headers)
    }
}

/// A delivery that must be refused: the request and the reason.
pub(crate) fn refused(
    random: &mut Random,
    keys: &Keys,
    genuine: &Delivery,
    now: Timestamp,
) -> (Sent, &'static str) {
    let signed = genuine.id_signed();
    let header = if signed { "Stripe-Signature" } else { "X-Hub-Signature-256" };
    let mut sent = genuine.send(keys, now);
    match random.below(if signed { 8 } else { 6 }) {
        0 => {
            // Signed with a secret that is not the source's.
            let (scheme, _, guessed) = keys.of(genuine.source);
            let id = genuine.id.as_str();
            let (event_type, body) = (genuine.event, sent.body.clone());
            let draft = Draft { method: "POST", id, event_type, body, ..Draft::default() };
            sent.headers = verify::sign(scheme, Some(guessed), &draft, now).unwrap();
            (sent, "bad_signature")
        }
        1 | 2 => {
            let mut body = sent.body.to_vec();
            let at = random.below(body.len());
            body[at] ^= 1 << random.below(8);
            sent.body = body.into();
            (sent, "bad_signature")
        }
        3 => {
            sent.map_header(header, |_| None);
            (sent, "missing_signature")
        }
        4 => {
            let again = sent.headers.all(header).next().unwrap().to_vec();
            sent.headers.push(header, again);
            (sent, "repeated_header")
        }
        5 => {
            sent.map_header(header, |value| Some(value[..value.len() - 2].to_vec()));
            (sent, "unreadable_signature")
        }
        6 => {
            // A little over the tolerance, or far over it.
            let age = 301_000 + random.below(10) as i64 * 86_400_000;
            (genuine.send(keys, Timestamp(now.0 - age)), "stale_timestamp")
        }
        _ => {
            let lead = 301_000 + random.below(10) as i64 * 86_400_000;
            (genuine.send(keys, Timestamp(now.0 + lead)), "future_timestamp")
        }
    }
}
