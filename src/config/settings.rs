//! `[server]`, `[storage]` and `[limits]`: what only the main file says.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use crate::document::{At, Section, Value};
use crate::limits::{self, Limits};

use super::read::{path, ranged};
use super::shown;

/// What `[server]` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Where deliveries come in.
    pub listen: SocketAddr,
    /// Whether that is written, and not the default.
    #[serde(skip)]
    pub listen_is_set: bool,
    /// Whose word about a client's address is believed: address and prefix length in bits. Never
    /// asked by verification.
    #[serde(serialize_with = "shown::texts")]
    pub trusted_proxies: Vec<IpNet>,
}

/// Where deliveries come in when nothing is said: for a proxy on the same machine.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Where the store lies when nothing is said: systemd's `StateDirectory=hooklatch`.
const STORE: &str = "/var/lib/hooklatch/hooklatch.db";

/// The limits that are written under `[storage]`: key there, and the limit's.
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

/// The main file's own sections, defaults where it says nothing.
pub(super) struct Settings {
    pub(super) server: Server,
    /// Where metrics are read.
    pub(super) metrics: Option<SocketAddr>,
    pub(super) store_path: PathBuf,
    pub(super) limits: Limits,
    /// Where each of these stands that is written, by its dotted key.
    pub(super) places: BTreeMap<String, At>,
}

/// Reads them; without a root (its file is broken) all are defaults.
pub(super) fn read(root: Option<&Section<'_>>, folder: &Path) -> Settings {
    let mut settings = Settings {
        server: Server {
            listen: DEFAULT_LISTEN,
            listen_is_set: false,
            trusted_proxies: Vec::new(),
        },
        metrics: None,
        store_path: STORE.into(),
        limits: Limits::default(),
        places: BTreeMap::new(),
    };
    let Some(root) = root else { return settings };
    if let Some(section) = root.section("server") {
        read_server(section, &mut settings);
    }
    if let Some(section) = root.section("metrics") {
        if let Some(listen) = address(&section, "listen", "127.0.0.1:9464") {
            settings.metrics = Some(listen.value);
            settings.places.insert(METRICS_LISTEN.to_owned(), listen.at);
        }
        section.finish();
    }
    if let Some(section) = root.section("limits") {
        read_limits(section, &mut settings);
    }
    if let Some(section) = root.section("storage") {
        read_storage(section, folder, &mut settings);
    }
    settings
}

fn read_server(section: Section<'_>, settings: &mut Settings) {
    if let Some(listen) = address(&section, "listen", "127.0.0.1:8080") {
        settings.server.listen = listen.value;
        settings.server.listen_is_set = true;
        settings.places.insert(LISTEN.to_owned(), listen.at);
    }
    for proxy in section.texts("trusted_proxies").unwrap_or_default() {
        match network(&proxy.value) {
            Some(network) => settings.server.trusted_proxies.push(network),
            None => {
                let message = format!("'{}' is not an address or network", proxy.value);
                let help = "write \"10.1.2.3\" or \"10.0.0.0/8\"".to_owned();
                section.problems().push(proxy.at.problem(message, Some(help)));
            }
        }
    }
    section.finish();
}

/// A numeric address with a port, such as `example`.
fn address(section: &Section<'_>, key: &'static str, example: &str) -> Option<Value<SocketAddr>> {
    let text = section.get::<String>(key)?;
    // Not looked up: it means this machine, whatever a resolver says.
    let numeric = text.value.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    match numeric.as_ref().unwrap_or(&text.value).parse() {
        Ok(value) => Some(Value { value, at: text.at }),
        Err(_) => {
            let message = format!("'{}' is not an address with a port", text.value);
            let port = text.value.trim_start_matches([':', '*']);
            let help = match port.parse::<u16>() {
                Ok(port) => format!(
                    "write \"127.0.0.1:{port}\" for this machine alone, as behind a proxy, or \"0.0.0.0:{port}\" for every address of it"
                ),
                Err(_) => format!("write a numeric address, such as \"{example}\" or \"{IPV6}\""),
            };
            section.problems().push(text.at.problem(message, Some(help)));
            None
        }
    }
}

/// How an address of version 6 is written with its port.
const IPV6: &str = "[::1]:8080";

/// `ADDRESS` or `ADDRESS/BITS`.
fn network(text: &str) -> Option<IpNet> {
    text.parse().or_else(|_| text.parse().map(|address: IpAddr| address.into())).ok()
}

fn read_limits(section: Section<'_>, settings: &mut Settings) {
    let Settings { limits, places, .. } = settings;
    for limit in limits::TABLE {
        if RETENTION.iter().any(|(_, key)| *key == limit.key) {
            continue;
        }
        if let Some(Value { value, at }) = ranged(&section, limit.key, limit.key) {
            limits.set(limit.key, value);
            places.insert(dotted(limit.key), at);
        }
    }
    for (small, large) in ORDERED {
        let (Some(a), Some(b)) = (limits.get(small), limits.get(large)) else { continue };
        let at = places.get(&dotted(small)).or(places.get(&dotted(large)));
        if let (true, Some(at), Some(limit)) = (a > b, at, limits::limit(small)) {
            let (a, b) = (limit.unit.show(a), limit.unit.show(b));
            let message = format!("{small} ({a}) is more than {large} ({b})");
            section.problems().push(at.problem(message, None));
        }
    }
    for (key, limit) in RETENTION {
        if let Some(at) = section.place_of(limit) {
            let message = format!("this limit is written as {key} under [storage]");
            section.problems().push(at.problem(message, None));
        }
    }
    section.finish();
}

/// Limits of which the first may not be more than the second.
const ORDERED: [(&str, &str); 4] = [
    ("backoff_base_millis", "backoff_max_millis"),
    ("handler_backoff_base_millis", "handler_backoff_max_millis"),
    ("small_body_bytes", "small_bodies_in_flight_bytes"),
    ("body_default_bytes", "bodies_in_flight_bytes"),
];

fn read_storage(section: Section<'_>, folder: &Path, settings: &mut Settings) {
    if let Some(path) = path(&section, "path", folder) {
        settings.store_path = path;
        let at = section.place_of("path");
        settings.places.extend(at.map(|at| (STORE_PATH.to_owned(), at)));
    }
    for (key, limit) in RETENTION {
        if let Some(Value { value, at }) = ranged(&section, key, limit) {
            settings.limits.set(limit, value);
            settings.places.insert(dotted(limit), at);
        }
    }
    let (keep_payloads, keep_ids) =
        (settings.limits.keep_payloads_millis, settings.limits.keep_ids_millis);
    let [ids, payloads] = [KEEP_IDS, "storage.keep_payloads"].map(|key| settings.places.get(key));
    if let (true, Some(at)) = (keep_ids < keep_payloads, ids.or(payloads)) {
        let show = |millis| limits::Unit::Millis.show(millis);
        let (ids, payloads) = (show(keep_ids), show(keep_payloads));
        let message = format!("keep_ids ({ids}) is shorter than keep_payloads ({payloads})");
        let help = "an event whose id is forgotten would run again when it is re-sent, while its payload is still kept; raise keep_ids";
        section.problems().push(at.problem(message, Some(help.to_owned())));
    }
    section.finish();
}

/// A limit in force.
#[derive(Debug, Serialize)]
pub struct LimitRow {
    /// The key in the configuration, with its table.
    pub key: String,
    pub value: String,
    pub default: String,
    pub least: String,
    pub most: String,
    /// Why there is such a limit.
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

pub(super) fn all_limits<S: Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    limit_rows(limits).serialize(serializer)
}
