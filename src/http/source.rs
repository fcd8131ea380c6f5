//! The sources that a configuration names, and what the server serves of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::client::Proxies;
use super::health;
use crate::model::{Name, OnRedelivery, Timestamp};
use crate::payload::Event;
use crate::payload::Pointer;
use crate::provider::Scheme;
use crate::routing::{Decisions, Route, Routes};
use crate::store::Accept;
use crate::traffic::{ConditionTraffic, Place, SourceTraffic, Traffic};
use crate::verify::{self, Verified};

/// Paths of the receiver, which a source cannot have.
pub const RESERVED_PATHS: &[&str] = &[health::ALIVE, health::READY];

/// A configured inbound endpoint, with its secrets resolved.
pub struct Source {
    pub name: Name,
    /// Compared byte for byte with the path of a request as sent.
    pub path: String,
    pub scheme: Arc<Scheme>,
    /// Any of them may match.
    pub keys: Vec<verify::Key>,
    /// The URL that the provider calls, for schemes that sign it. The Host header is not trusted.
    pub public_url: Option<String>,
    pub body_limit_bytes: u64,
    /// How long a delivery may wait for its commit before it is answered with 503.
    pub accept_wait: Duration,
    /// Whether requests through a proxy are refused: for sources without signatures.
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
    /// The caller that each secret's reference belongs to. Another reference belongs to the only caller.
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
    /// How long an error that may pass is kept.
    pub keep_errors: Duration,
    /// Per caller; `None` without a bound.
    pub requests_per_minute: Option<u32>,
}

/// Every source of a configuration; no two have the same path.
#[derive(Default)]
pub struct Sources {
    pub(super) all: Vec<Arc<Source>>,
    proxies: Proxies,
}

/// The sources of a snapshot by their paths, with their statistics.
#[derive(Default)]
pub(super) struct ServedSources {
    by_path: HashMap<String, Arc<ServedSource>>,
    proxies: Proxies,
}

pub(super) struct ServedSource {
    pub(super) source: Arc<Source>,
    pub(super) traffic: SourceTraffic,
    /// Those of every source's handlers.
    conditions: Arc<[ConditionTraffic]>,
}

/// Two sources cannot share a path, nor use one of [`RESERVED_PATHS`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path '{path}' of source '{name}' is taken")]
pub struct PathTaken {
    /// The source that came second.
    pub name: Name,
    pub path: String,
}

impl Sources {
    /// # Errors
    /// Two sources have the same path, or one has a path of the receiver.
    pub fn new(sources: impl IntoIterator<Item = Source>) -> Result<Self, PathTaken> {
        let all: Vec<_> = sources.into_iter().map(Arc::new).collect();
        let mut taken: HashSet<&str> = RESERVED_PATHS.iter().copied().collect();
        if let Some(second) = all.iter().find(|source| !taken.insert(&source.path)) {
            return Err(PathTaken { name: second.name.clone(), path: second.path.clone() });
        }
        Ok(Sources { all, proxies: Proxies::new() })
    }

    /// Trusts these proxies to report their clients' addresses.
    pub fn with_proxies(self, proxies: Proxies) -> Self {
        Sources { proxies, ..self }
    }

    /// From now on `traffic` counts for these sources and no others.
    pub(super) fn counted_by(self, traffic: &Traffic) -> ServedSources {
        let Sources { all, proxies } = self;
        let counts = traffic.set_sources(all.iter().map(|source| source.place()).collect());
        let routes = all.iter().flat_map(|source| &source.routes.routes);
        let deciding =
            routes.filter(|route: &&Route| route.decides()).map(|route| route.handler.clone());
        let conditions: Arc<[_]> = traffic.set_conditions(deciding.collect()).into();
        let served = |(source, traffic): (Arc<Source>, SourceTraffic)| {
            let conditions = Arc::clone(&conditions);
            (source.path.clone(), Arc::new(ServedSource { source, traffic, conditions }))
        };
        ServedSources { by_path: all.into_iter().zip(counts).map(served).collect(), proxies }
    }
}

impl ServedSources {
    pub(super) fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    pub(super) fn has_secret(&self, source: &Name, secret: &verify::Key) -> bool {
        let of = self.by_path.values().map(|own| &own.source).filter(|own| own.name == *source);
        of.flat_map(|own| &own.keys).any(|key| key.is_same(secret))
    }

    pub(super) fn at(&self, path: &str) -> Option<&Arc<ServedSource>> {
        self.by_path.get(path)
    }
}

impl ServedSource {
    /// Counts the decisions about a new event.
    pub(super) fn decided(&self, decisions: &Decisions) {
        for (handler, decision) in decisions.iter() {
            let own = self.conditions.iter().find(|own| own.handler() == handler);
            if let Some(own) = own {
                own.decided(*decision);
            }
        }
    }
}

impl Source {
    fn place(&self) -> Place {
        Place {
            name: self.name.clone(),
            path: self.path.clone(),
            deadline: self.scheme.deadline(),
            secrets: self.keys.iter().map(|key| key.reference().to_owned()).collect(),
            answers: self.reply.is_some(),
        }
    }

    /// What the store gets of a genuine delivery, and what its handlers' conditions came to.
    pub(super) fn accept(&self, delivery: Verified, received_at: Timestamp) -> (Accept, Decisions) {
        let event = Event {
            id: delivery.event_id().as_str(),
            event_type: delivery.event_type().as_str(),
            headers: delivery.headers(),
            body: delivery.body(),
            form_field: self.routes.form_field.as_deref(),
        };
        let (jobs, decisions) = self.routes.jobs(&event);
        let (source, on_redelivery) = (self.name.clone(), self.on_redelivery);
        (Accept { source, received_at, delivery, jobs, on_redelivery }, decisions)
    }

    /// The URL that the provider signed, if its scheme signs one: the configured URL with the request's query.
    pub(super) fn signed_url(&self, path: &str, query: Option<&str>) -> Option<String> {
        let configured = self.public_url.as_deref().filter(|_| self.scheme.signs_url())?;
        Some(public_url(configured, path, query))
    }
}

/// A configured URL without a path means that the proxy keeps the path of the request.
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
