//! What the demo sends, signed as the providers would, and what is promised of it.

use bytes::Bytes;

use super::ledger::Counts;
use crate::cmd::played::Provider;
use crate::exit::Failure;
use crate::model::{Headers, Timestamp};

/// One kind of delivery.
pub(super) struct Delivery {
    /// What it shows, for people.
    pub(super) what: &'static str,
    pub(super) source: &'static str,
    pub(super) path: &'static str,
    pub(super) event_id: &'static str,
    pub(super) headers: Headers,
    pub(super) body: Bytes,
    pub(super) repeat: Repeat,
    pub(super) promised: Counts,
}

/// How often it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Repeat {
    /// So often, one after another.
    InTurn(usize),
    /// So often, all at once.
    AtOnce(usize),
}

/// The demonstration's providers: schemes and the secrets of `examples/quickstart`.
pub(super) struct Providers {
    stripe: Provider,
    github: Provider,
    forger: Provider,
}

impl Providers {
    /// The providers with the secrets' texts.
    pub(super) fn new(stripe: &str, github: &str) -> Result<Self, Failure> {
        Ok(Providers {
            stripe: Provider::new("stripe", "/stripe", stripe)?,
            github: Provider::new("github", "/github", github)?,
            forger: Provider::new("stripe", "/stripe", "whsec_demonstration_of_a_wrong_secret")?,
        })
    }

    /// Everything that is sent, in order.
    pub(super) fn deliveries(&self, now: Timestamp) -> Result<Vec<Delivery>, Failure> {
        let hour_ago = now.before(std::time::Duration::from_secs(3600));
        let once = |handlers| Counts {
            accepted: 1,
            stored: 1,
            started: handlers,
            succeeded: handlers,
            ..Counts::default()
        };
        let refused = Counts { refused: 1, ..Counts::default() };
        Ok(vec![
            Delivery {
                repeat: Repeat::InTurn(2),
                promised: Counts { duplicate: 1, ..once(2) },
                ..stripe(
                    &self.stripe,
                    "a signed event, and a duplicate",
                    "evt_1DemoCheckout",
                    "checkout.session.completed",
                    now,
                )?
            },
            Delivery {
                repeat: Repeat::InTurn(2),
                promised: Counts { duplicate: 1, ..once(1) },
                ..github(
                    &self.github,
                    "a signed event, and a duplicate",
                    "a4f0c1de-0000-4000-8000-000000000001",
                    "push",
                    r#"{"ref":"refs/heads/main"}"#,
                    now,
                )?
            },
            Delivery {
                repeat: Repeat::AtOnce(20),
                promised: Counts { duplicate: 19, ..once(2) },
                ..stripe(
                    &self.stripe,
                    "twenty copies at once",
                    "evt_1DemoInvoice",
                    "invoice.paid",
                    now,
                )?
            },
            Delivery {
                promised: refused,
                ..stripe(
                    &self.forger,
                    "forged: signed with another secret",
                    "evt_1DemoForged",
                    "invoice.paid",
                    now,
                )?
            },
            Delivery {
                promised: refused,
                ..stripe(
                    &self.stripe,
                    "stale: signed an hour ago",
                    "evt_1DemoStale",
                    "invoice.paid",
                    hour_ago,
                )?
            },
            Delivery {
                promised: Counts { started: 2, ..once(1) },
                ..github(
                    &self.github,
                    "its handler fails once, then succeeds",
                    "a4f0c1de-0000-4000-8000-000000000002",
                    "release",
                    r#"{"action":"published"}"#,
                    now,
                )?
            },
        ])
    }
}

fn stripe(
    provider: &Provider,
    what: &'static str,
    id: &'static str,
    kind: &str,
    at: Timestamp,
) -> Result<Delivery, Failure> {
    let body = format!(
        r#"{{"id":"{id}","object":"event","type":"{kind}","created":{},"data":{{"object":{{"amount":1999}}}},"pending_webhooks":1}}"#,
        at.seconds()
    );
    delivery(provider, what, id, kind, body, at)
}

fn github(
    provider: &Provider,
    what: &'static str,
    id: &'static str,
    kind: &str,
    body: &str,
    at: Timestamp,
) -> Result<Delivery, Failure> {
    delivery(provider, what, id, kind, body.to_owned(), at)
}

fn delivery(
    provider: &Provider,
    what: &'static str,
    event_id: &'static str,
    kind: &str,
    body: String,
    at: Timestamp,
) -> Result<Delivery, Failure> {
    let body = Bytes::from(body);
    let headers = provider.signed(event_id, kind, &body, at)?;
    Ok(Delivery {
        what,
        source: provider.source,
        path: provider.path,
        event_id,
        headers,
        body,
        repeat: Repeat::InTurn(1),
        promised: Counts::default(),
    })
}
