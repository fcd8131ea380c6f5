//! The front door: HTTP/1.1 in, exactly one answer per delivery out.
//!
//! For `serve`, which builds [`Sources`], starts a [`Server`] and stops it. What must stay true: a
//! 2xx is sent only after `store.accept` has returned, and a handler's answer only once it is committed; nothing unproven is parsed here; every byte held
//! of a request is accounted for in [`budget`]; the outside learns nothing of why a signature failed; and a
//! delivery that was read to its end is stored whatever its client does next.

mod again;
mod body;
mod budget;
pub(crate) mod chunks;
mod client;
pub(crate) mod connection;
mod eviction;
mod files;
mod health;
mod keyed;
mod problem;
mod rate;
mod receive;
mod reply;
mod server;
mod snapshot;
mod sums;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Name, OnRedelivery};
use crate::pattern::Pattern;
use crate::provider::Scheme;
use crate::provider::place::Pointer;
use crate::traffic::{Place, SourceTraffic, Traffic};
use crate::verify;

pub use budget::largest_body_bytes;
pub use client::Proxies;
pub use files::raise_file_limit;
pub(crate) use receive::{declared, public_url};
pub use server::Server;

/// Paths that belong to the receiver itself, so that no source can have them.
pub const RESERVED_PATHS: &[&str] = &[health::ALIVE, health::READY];

/// A configured inbound endpoint, with its secrets resolved.
pub struct Source {
    /// What it is called in logs, listings and the store.
    pub name: Name,
    /// Its exact path, compared byte for byte with the request's as sent.
    pub path: String,
    /// How its provider signs.
    pub scheme: Arc<Scheme>,
    /// Its secrets; any may match.
    pub keys: Vec<verify::Key>,
    /// The URL as the provider knows it, for schemes that sign it; Host is never believed.
    pub public_url: Option<String>,
    /// The largest body taken.
    pub body_limit_bytes: u64,
    /// How long a delivery may wait for its commit before it is told 503.
    pub accept_wait: Duration,
    /// Whether requests that came through a proxy are refused: sources that take events from anybody.
    pub refuse_proxied: bool,
    /// What a duplicate delivery does to its event's dead letters.
    pub on_redelivery: OnRedelivery,
    /// The handlers and the types they want.
    pub routes: Vec<Route>,
    /// Its requests are answered with what its one handler answers; none where a delivery is told only
    /// that it is stored.
    pub reply: Option<Reply>,
}

/// How a source's requests get their handler's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub handler: Name,
    /// Whose secret each reference is. A reference that is not here is the source's only caller's.
    pub callers: Vec<(String, Name)>,
    /// A header whose value keeps keys apart, beside the caller's name.
    pub caller_header: Option<String>,
    /// The header in which a trusted proxy names the client's certificate; it is the caller's name.
    pub certificate_header: Option<String>,
    /// What of the JSON body makes a request this one and no other; where empty, all of it.
    pub fields: Vec<Pointer>,
    /// How long the first request waits for its answer.
    pub first_wait: Duration,
    /// How long a repeat waits for the answer of the first.
    pub repeat_wait: Duration,
    /// How long a key and its answer are kept.
    pub keep: Duration,
    /// How long an answer is kept that says "not now".
    pub keep_errors: Duration,
    /// Requests of one caller in a minute; none where they are not bounded.
    pub requests_per_minute: Option<u32>,
}

/// A handler and the event types it wants from one source.
#[derive(Debug, Clone)]
pub struct Route {
    pub handler: Name,
    /// Its patterns; one match is enough.
    pub patterns: Vec<Pattern>,
}

/// Every source by its path: one snapshot of the configuration.
#[derive(Default)]
pub struct Sources {
    by_path: HashMap<String, Arc<Source>>,
    /// Whose word about a client's address is believed.
    proxies: Proxies,
}

/// The sources of a snapshot that is served, each with what is seen of it.
#[derive(Default)]
struct ServedSources {
    by_path: HashMap<String, Arc<ServedSource>>,
    proxies: Proxies,
}

struct ServedSource {
    source: Arc<Source>,
    traffic: SourceTraffic,
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
    /// The sources by path. Fails where two share one, or where one is the receiver's own.
    pub fn new(sources: impl IntoIterator<Item = Source>) -> Result<Self, PathTaken> {
        let mut by_path = HashMap::new();
        for source in sources {
            let path = source.path.clone();
            let name = source.name.clone();
            let reserved = RESERVED_PATHS.contains(&path.as_str());
            if reserved || by_path.insert(path.clone(), Arc::new(source)).is_some() {
                return Err(PathTaken { name, path });
            }
        }
        Ok(Sources { by_path, proxies: Proxies::new() })
    }

    /// The same, which believes these about their clients' addresses.
    pub fn with_proxies(self, proxies: Proxies) -> Self {
        Sources { proxies, ..self }
    }

    /// The same as they are served: `traffic` counts for these from now on, and for no others.
    fn counted_by(self, traffic: &Traffic) -> ServedSources {
        let Sources { by_path, proxies } = self;
        let (paths, sources): (Vec<_>, Vec<_>) = by_path.into_iter().unzip();
        let counts = traffic.set_sources(sources.iter().map(|source| source.place()).collect());
        let served = |(source, traffic)| Arc::new(ServedSource { source, traffic });
        let served = sources.into_iter().zip(counts).map(served);
        ServedSources { by_path: paths.into_iter().zip(served).collect(), proxies }
    }
}

impl ServedSources {
    fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    fn has_secret(&self, source: &Name, secret: &verify::Key) -> bool {
        let of = self.by_path.values().map(|own| &own.source).filter(|own| own.name == *source);
        of.flat_map(|own| &own.keys).any(|key| key.is_same(secret))
    }

    fn at(&self, path: &str) -> Option<&Arc<ServedSource>> {
        self.by_path.get(path)
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

    /// The handlers that want an event of this type.
    fn handlers(&self, event_type: &str) -> Vec<Name> {
        self.routes
            .iter()
            .filter(|route| route.patterns.iter().any(|pattern| pattern.matches(event_type)))
            .map(|route| route.handler.clone())
            .collect()
    }
}
