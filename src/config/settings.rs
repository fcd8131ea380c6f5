//! Reads `[server]`, `[metrics]`, `[storage]`, `[node]`, `[limits]` and `[dashboard]`, which only the main file has.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use crate::document::{At, Fault, Section, Value};
use crate::limits::{self, Limits};

use super::dashboard::{self, Dashboard};
use super::database::{self, Database, OwnNode};
use super::read::{parse_address, path, ranged};
use super::shown;

/// The section `[server]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Where deliveries come in.
    pub listen: SocketAddr,
    /// Whether `listen` is written, rather than the default.
    #[serde(skip)]
    pub listen_is_set: bool,
    /// The proxies whose headers about a client's address are trusted. Verification does not read it.
    #[serde(serialize_with = "shown::texts")]
    pub trusted_proxies: Vec<IpNet>,
}

/// The default of `server.listen`, for a proxy on the same machine.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The default of `storage.path`: systemd's `StateDirectory=hooklatch`.
const STORE: &str = "/var/lib/hooklatch/hooklatch.db";

/// The limits that are written under `[storage]`: the key there, and the limit's.
const RETENTION: [(&str, &str); 3] = [
    ("keep_payloads", "keep_payloads_millis"),
    ("keep_ids", "keep_ids_millis"),
    ("keep_dead", "keep_dead_millis"),
];

pub(super) const LISTEN: &str = "server.listen";
pub(super) const METRICS_LISTEN: &str = "metrics.listen";
pub(super) const STORE_PATH: &str = "storage.path";
pub(super) const KEEP_IDS: &str = "storage.keep_ids";

/// The dotted key of a limit.
pub(super) fn dotted(limit: &str) -> String {
    match storage_key(limit) {
        Some(key) => format!("storage.{key}"),
        None => format!("limits.{limit}"),
    }
}

/// The key under `[storage]` of a limit that is written there.
fn storage_key(limit: &str) -> Option<&'static str> {
    RETENTION.iter().find(|(_, key)| *key == limit).map(|(key, _)| *key)
}

/// The sections that only the main file has, with their defaults.
#[derive(Serialize)]
pub(super) struct Settings {
    #[serde(flatten)]
    pub(super) server: Server,
    /// Where metrics are read, if anywhere.
    pub(super) metrics: Option<SocketAddr>,
    #[serde(rename = "store")]
    pub(super) store_path: PathBuf,
    #[serde(rename = "storage", skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<Database>,
    /// Whether `storage.url` is written, good or not.
    #[serde(skip)]
    pub(super) has_url: bool,
    #[serde(skip_serializing_if = "OwnNode::is_unset")]
    pub(super) node: OwnNode,
    #[serde(serialize_with = "serialize_limits")]
    pub(super) limits: Limits,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dashboard: Option<Dashboard>,
    /// The position of each of these settings that is written, by its dotted key.
    #[serde(skip)]
    pub(super) places: BTreeMap<String, At>,
}

/// Reads them from the main file; relative paths begin in `folder`.
pub(super) fn read(root: &Section<'_>, folder: &Path) -> Settings {
    let mut settings = Settings {
        server: Server {
            listen: DEFAULT_LISTEN,
            listen_is_set: false,
            trusted_proxies: Vec::new(),
        },
        metrics: None,
        store_path: STORE.into(),
        database: None,
        has_url: false,
        node: OwnNode::default(),
        limits: Limits::default(),
        dashboard: None,
        places: BTreeMap::new(),
    };
    if let Some(section) = root.section("server") {
        settings.read_server(section);
    }
    if let Some(section) = root.section("metrics") {
        let listen = address(&section, "listen", "127.0.0.1:9464");
        settings.metrics = settings.placed(METRICS_LISTEN, listen);
        section.finish();
    }
    if let Some(section) = root.section("limits") {
        settings.read_limits(section);
    }
    if let Some(section) = root.section("storage") {
        settings.read_storage(section, folder);
    }
    if let Some(section) = root.section("node") {
        settings.node = database::read_node(section);
    }
    if let Some(section) = root.section("dashboard") {
        let others: Vec<_> = settings.metrics.into_iter().chain([settings.server.listen]).collect();
        settings.dashboard = Some(dashboard::read(section, folder, &others));
    }
    settings
}

impl Settings {
    /// Records the position of a value, and returns the value.
    fn placed<T>(&mut self, key: &str, read: Option<Value<T>>) -> Option<T> {
        let Value { value, at } = read?;
        self.places.insert(key.to_owned(), at);
        Some(value)
    }

    fn read_server(&mut self, section: Section<'_>) {
        if let Some(listen) = self.placed(LISTEN, address(&section, "listen", "127.0.0.1:8080")) {
            self.server.listen = listen;
            self.server.listen_is_set = true;
        }
        let proxies = section.list("trusted_proxies", |text| {
            network(&text).ok_or_else(|| {
                let message = format!("'{text}' is not an address or network");
                Fault::new(message, "write \"10.1.2.3\" or \"10.0.0.0/8\"")
            })
        });
        self.server.trusted_proxies = proxies.into_iter().map(|proxy| proxy.value).collect();
        section.finish();
    }

    fn read_limits(&mut self, section: Section<'_>) {
        for limit in limits::TABLE {
            if storage_key(limit.key).is_none() {
                self.read_limit(&section, limit.key, limit.key);
            }
        }
        for (small, large) in ORDERED {
            let (Some(a), Some(b)) = (self.limits.get(small), self.limits.get(large)) else {
                continue;
            };
            let at = self.places.get(&dotted(small)).or(self.places.get(&dotted(large)));
            if let (true, Some(at), Some(limit)) = (a > b, at, limits::limit(small)) {
                let (a, b) = (limit.unit.show(a), limit.unit.show(b));
                section.report(at, format!("{small} ({a}) is more than {large} ({b})"));
            }
        }
        for (key, limit) in RETENTION {
            if let Some(at) = section.place_of(limit) {
                section.report(&at, format!("this limit is written as {key} under [storage]"));
            }
        }
        section.finish();
    }

    fn read_limit(&mut self, section: &Section<'_>, key: &'static str, limit: &'static str) {
        if let Some(value) = self.placed(&dotted(limit), ranged(section, key, limit)) {
            self.limits.set(limit, value);
        }
    }

    fn read_storage(&mut self, section: Section<'_>, folder: &Path) {
        if let Some(path) = self.placed(STORE_PATH, path(&section, "path", folder)) {
            self.store_path = path;
        }
        self.database = database::read(&section, folder);
        self.has_url = section.has("url");
        self.places.extend(section.place_of("url").map(|at| (database::URL.to_owned(), at)));
        for (key, limit) in RETENTION {
            self.read_limit(&section, key, limit);
        }
        let (ids, payloads) = (self.limits.keep_ids_millis, self.limits.keep_payloads_millis);
        let at = self.places.get(KEEP_IDS).or(self.places.get("storage.keep_payloads"));
        if let (true, Some(at)) = (ids < payloads, at) {
            let [ids, payloads] = [ids, payloads].map(|millis| limits::Unit::Millis.show(millis));
            section.reject(
                at,
                format!("keep_ids ({ids}) is shorter than keep_payloads ({payloads})"),
                "an event whose id is forgotten would run again when it is re-sent, while its payload is still kept; raise keep_ids",
            );
        }
        section.finish();
    }
}

fn address(section: &Section<'_>, key: &'static str, example: &str) -> Option<Value<SocketAddr>> {
    section.parse(key, |text: String| parse_address(&text, example))
}

/// `ADDRESS` or `ADDRESS/BITS`.
fn network(text: &str) -> Option<IpNet> {
    text.parse().or_else(|_| text.parse().map(|address: IpAddr| address.into())).ok()
}

/// Pairs of limits whose first must not exceed the second.
const ORDERED: [(&str, &str); 3] = [
    ("backoff_base_millis", "backoff_max_millis"),
    ("handler_backoff_base_millis", "handler_backoff_max_millis"),
    ("body_default_bytes", "bodies_in_flight_bytes"),
];

/// A limit in force.
#[derive(Debug, Serialize)]
pub struct LimitRow {
    /// The dotted key.
    pub key: String,
    pub value: String,
    pub default: String,
    pub least: String,
    pub most: String,
    pub reason: &'static str,
}

/// Every limit, in the order of their table.
pub(crate) fn limit_rows(limits: &Limits) -> Vec<LimitRow> {
    let row = |limit: &limits::Limit| {
        let show = |value| limit.unit.show(value);
        LimitRow {
            key: dotted(limit.key),
            value: show(limits.get(limit.key).unwrap_or(limit.default)),
            default: show(limit.default),
            least: show(*limit.range.start()),
            most: show(*limit.range.end()),
            reason: limit.reason,
        }
    };
    limits::TABLE.iter().map(row).collect()
}

fn serialize_limits<S: Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    limit_rows(limits).serialize(serializer)
}
