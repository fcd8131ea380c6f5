//! The sources that a configuration names, and what the server serves of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::client::Proxies;
use super::health;
use crate::measure::Tally;
use crate::model::{Name, OnRedelivery, Timestamp};
use crate::payload::{Event, Pointer};
use crate::provider::Scheme;
use crate::routing::{Decisions, Routes};
use crate::store::Accept;
use crate::traffic::{CountedSource, SourceTraffic, Traffic};
use crate::verify::{self, Genuine};

/// Paths of the receiver, which a source cannot have.
pub const RESERVED_PATHS: &[&str] = &[health::ALIVE, health::READY];

/// A configured inbound endpoint, with its secrets resolved.
pub struct Source {
    pub name: Name,
    /// Compared byte for byte with the path of a request as sent.
    pub path: String,
    pub scheme: Arc<Scheme>,
    /// A delivery is genuine if any of them matches.
    pub keys: Vec<verify::Key>,
    /// The token with which the provider proves its challenges.
    pub verify_token: Option<verify::Key>,
    /// The methods of deliveries.
    pub methods: Vec<&'static str>,
    /// The URL that the provider calls, for schemes that sign it. The Host header is not trusted.
    pub public_url: Option<String>,
    pub body_limit_bytes: u64,
    /// How long a delivery may wait for its commit before it is answered with 503.
    pub accept_wait: Duration,
    /// Whether requests are refused that come through a proxy, from a web page or under a foreign host name. Only
    /// sources without signatures refuse them.
    pub refuse_proxied: bool,
    pub on_redelivery: OnRedelivery,
    pub routes: Arc<Routes>,
    /// `Some` if requests get the answer of the source's one handler; otherwise they learn only that the event is
    /// stored.
    pub reply: Option<Reply>,
}

/// How requests of a source get their handler's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub handler: Name,
    /// References to secrets, each with the caller that it belongs to. A secret that is not listed belongs to the
    /// source's only caller.
    pub callers: Vec<(String, Name)>,
    /// A header whose value separates keys, in addition to the caller's name.
    pub caller_header: Option<String>,
    /// The header in which a trusted proxy names the client's certificate, which is the caller's name.
    pub certificate_header: Option<String>,
    /// The parts of the JSON body that identify a request; if empty, the whole body.
    pub fields: Vec<Pointer>,
    /// How long the first request waits for its answer.
    pub first_wait: Duration,
    /// How long a repeat waits for the answer of the first.
    pub repeat_wait: Duration,
    /// How long a key and its answer are kept.
    pub keep: Duration,
    /// How long a stored answer is kept that reports a temporary error.
    pub keep_errors: Duration,
    /// The limit for each caller, if there is one.
    pub requests_per_minute: Option<u32>,
}

/// Every source of a configuration.
#[derive(Default)]
pub struct Sources {
    pub(super) all: Vec<Arc<Source>>,
    /// The proxies that are trusted to report their clients' addresses.
    pub(super) proxies: Proxies,
}

/// A source of a snapshot, with its statistics.
pub(super) struct ServedSource {
    pub(super) source: Arc<Source>,
    pub(super) traffic: SourceTraffic,
    /// How often each decision was made, for each handler with a condition or a key, of any source.
    decisions: Arc<BTreeMap<Name, Arc<Tally>>>,
}

impl Sources {
    /// The configuration has ensured that no two sources have the same path, and none a path of [`RESERVED_PATHS`].
    pub fn new(sources: impl IntoIterator<Item = Source>, proxies: Proxies) -> Self {
        Sources { all: sources.into_iter().map(Arc::new).collect(), proxies }
    }

    /// The sources by their paths, each with its statistics. From now on `traffic` counts for these sources only.
    pub(super) fn served(self, traffic: &Traffic) -> HashMap<String, Arc<ServedSource>> {
        let counts = traffic.set_sources(self.all.iter().map(|source| source.counted()).collect());
        let routes = self.all.iter().flat_map(|source| &source.routes.routes);
        let deciding = routes.filter(|route| route.decides()).map(|route| route.handler.clone());
        let decisions = Arc::new(traffic.set_deciding(deciding));
        let served = |(source, traffic): (Arc<Source>, SourceTraffic)| {
            let decisions = Arc::clone(&decisions);
            (source.path.clone(), Arc::new(ServedSource { source, traffic, decisions }))
        };
        self.all.into_iter().zip(counts).map(served).collect()
    }
}

impl ServedSource {
    /// Counts the decisions about a new event.
    pub(super) fn count(&self, decisions: &Decisions) {
        for (handler, decision) in decisions.iter() {
            if let Some(counts) = self.decisions.get(handler) {
                counts.one(decision.as_str());
            }
        }
    }
}

impl Source {
    fn counted(&self) -> CountedSource {
        CountedSource {
            name: self.name.clone(),
            path: self.path.clone(),
            deadline: self.scheme.setup().delivery.deadline,
            secrets: self.keys.iter().map(|key| key.reference().to_owned()).collect(),
            answers: self.reply.is_some(),
        }
    }

    /// The answer to a challenge without a signature; `None` if the request is not one.
    pub(super) fn challenge(&self, challenge: verify::Challenge<'_>) -> Option<verify::Answered> {
        let (scheme, token) = (&self.scheme, self.verify_token.as_ref());
        verify::challenge(scheme, &self.keys, token, challenge)
    }

    /// Every method that the source answers, for `Allow`.
    pub(super) fn allowed(&self) -> String {
        let mut all = self.methods.clone();
        for method in self.scheme.challenge().methods() {
            if !all.contains(&method) {
                all.push(method);
            }
        }
        all.join(", ")
    }

    /// Verifies a delivery. Returns what the store gets of each of its events, and what their handlers' conditions came
    /// to; or the answer to a signed challenge. Any of `keys` may match. `own_id` is for a sender that gives no id.
    pub(super) fn verify(
        &self,
        keys: &[verify::Key],
        request: verify::Request<'_>,
        received_at: Timestamp,
        own_id: Option<&str>,
    ) -> Result<Genuine<Vec<(Accept, Decisions)>>, verify::Rejection> {
        let judged = verify::judge(&self.scheme, keys, request, received_at, own_id)?;
        let (events, left_out) = match judged {
            Genuine::Event(events, left_out) => (events, left_out),
            Genuine::Challenge(answered) => return Ok(Genuine::Challenge(answered)),
        };
        let accept = |delivery: verify::Verified| {
            let (jobs, decisions) = self.routes.jobs(&Event {
                id: delivery.event_id().as_str(),
                event_type: delivery.event_type().as_str(),
                headers: delivery.headers(),
                body: delivery.body(),
                form_field: self.routes.form_field.as_deref(),
                inflated_bytes: self.routes.inflated_bytes,
            });
            let (source, on_redelivery) = (self.name.clone(), self.on_redelivery);
            (Accept { source, received_at, delivery, jobs, on_redelivery }, decisions)
        };
        Ok(Genuine::Event(events.into_iter().map(accept).collect(), left_out))
    }

    /// The URL that the provider signed, if its scheme signs one: the configured URL with the request's query.
    pub(super) fn signed_url(&self, path: &str, query: Option<&str>) -> Option<String> {
        let configured = self.public_url.as_deref().filter(|_| self.scheme.proof().covers_url())?;
        Some(public_url(configured, path, query))
    }
}

/// The URL that a provider called, with the request's query. It is the `configured` one, or, if that has no path, the
/// proxy has kept the path of the request.
pub(crate) fn public_url(configured: &str, path: &str, query: Option<&str>) -> String {
    let mut url = configured.split(['?', '#']).next().unwrap_or(configured).to_owned();
    let authority = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    if authority.find('/').is_none_or(|at| at + 1 == authority.len()) {
        url.truncate(url.trim_end_matches('/').len());
        url.push_str(path);
    }
    if let Some(query) = query {
        url.push('?');
        url.push_str(query);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_url_is_the_configured_url_with_the_query_of_the_request() {
        let cases = [
            ("https://example.com/in", Some("a=%2F"), "https://example.com/in?a=%2F"),
            ("https://example.com/in?old=1", None, "https://example.com/in"),
            ("https://example.com", None, "https://example.com/hooks/x"),
            ("https://example.com/", Some(""), "https://example.com/hooks/x?"),
            ("https://example.com/in/", None, "https://example.com/in/"),
        ];
        for (configured, query, wanted) in cases {
            assert_eq!(public_url(configured, "/hooks/x", query), wanted);
        }
    }
}
