//! Reads what a store on PostgreSQL needs: the database of `[storage]`, `[node]`, and which nodes run a handler.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::document::{Fault, Section, Value};
use crate::model::Name;
use crate::store::postgres::check_address;

use super::read::{parsed, path, ranged, size};
use super::secrets::Reference;

pub(super) const URL: &str = "storage.url";

/// The keys that decide which database it is, and as whom it is reached.
pub(super) const KEYS: [&str; 4] =
    [URL, "storage.password", "storage.ca", "storage.require_synchronous_standby"];

/// The help for a key that is only for PostgreSQL.
const NEEDS_URL: &str = "remove it, or name the database: storage.url = \"postgresql://...\"";

/// Longest identity of a machine, in bytes.
pub(super) const MACHINE_BYTES: u64 = 256;

/// The keys of `[storage]` for a store on PostgreSQL.
#[derive(Serialize)]
pub struct Database {
    /// The address, without a password.
    pub(super) url: Value<String>,
    /// Whether it leaves this machine in clear text.
    #[serde(skip)]
    pub(super) is_open: bool,
    pub(super) password: Option<Value<Reference>>,
    pub(super) ca: Option<Value<PathBuf>>,
    pub(super) require_synchronous_standby: bool,
}

/// The section `[node]`.
#[derive(Default, Serialize)]
pub struct OwnNode {
    pub(super) name: Option<Value<Name>>,
    pub(super) machine: Option<String>,
}

impl OwnNode {
    pub(super) fn is_unset(&self) -> bool {
        self.name.is_none() && self.machine.is_none()
    }
}

/// Which nodes run a handler's jobs.
#[derive(PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Most attempts at once on all nodes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster_concurrency: Option<usize>,
    /// Empty for all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Value<Name>>,
}

impl Spread {
    /// Whether this node runs the handler's jobs. A receiver without a database has no name, and runs all.
    pub(super) fn runs_at(&self, node: Option<&Name>) -> bool {
        self.nodes.is_empty()
            || node.is_none_or(|own| self.nodes.iter().any(|node| node.value == *own))
    }
}

/// Reads the keys of `[storage]`; `None` without a good `url`.
pub(super) fn read(section: &Section<'_>, folder: &Path) -> Option<Database> {
    if !section.has("url") {
        for key in ["password", "ca", "require_synchronous_standby"] {
            section.refuse(key, "is only for a store on PostgreSQL", NEEDS_URL);
        }
    }
    let url = section.parse("url", |text: String| match check_address(&text) {
        Ok(is_open) => Ok((text, is_open)),
        Err(error) => Err(Fault::new(error.to_string(), error.help())),
    });
    let password = section.parse("password", |text: String| Reference::parse(&text, folder));
    let ca = path(section, "ca", folder);
    let require_synchronous_standby =
        section.value("require_synchronous_standby").unwrap_or_default();
    let Value { value: (url, is_open), at } = url?;
    let url = Value { value: url, at };
    Some(Database { url, is_open, password, ca, require_synchronous_standby })
}

/// Reads `[node]`.
pub(super) fn read_node(section: Section<'_>) -> OwnNode {
    let name = parsed(&section, "name");
    let machine = section.parse("machine", |text: String| match identity(text.as_bytes()) {
        Some(machine) => Ok(machine),
        None => Err(Fault::new(
            format!("a machine's identity has 1 to {MACHINE_BYTES} visible ASCII characters"),
            "write what no other machine has, such as its serial number",
        )),
    });
    section.finish();
    OwnNode { name, machine: machine.map(|machine| machine.value) }
}

/// Reads a handler's keys.
pub(super) fn read_spread(section: &Section<'_>, has_url: bool) -> Spread {
    if !has_url {
        for key in ["cluster_concurrency", "nodes"] {
            section.refuse(key, "is only for a store on PostgreSQL", NEEDS_URL);
        }
    }
    let most = ranged(section, "cluster_concurrency", "command_concurrency_count");
    let texts = section.texts("nodes");
    if texts.as_ref().is_some_and(Vec::is_empty) {
        section.refuse("nodes", "no node runs this handler", "name one, or remove the key");
    }
    let name = |text: Value<String>| {
        let parse = |text: String| text.parse::<Name>().map_err(|wrong| wrong.to_string());
        text.convert(section.problems(), parse)
    };
    let nodes = texts.into_iter().flatten().filter_map(name).collect();
    Spread { cluster_concurrency: most.map(|most| size(most.value)), nodes }
}

/// What can be a machine's identity.
pub(super) fn identity(bytes: &[u8]) -> Option<String> {
    let is_good = (1..=MACHINE_BYTES).contains(&(bytes.len() as u64))
        && bytes.iter().all(|b| b.is_ascii_graphic());
    is_good.then(|| String::from_utf8_lossy(bytes).into_owned())
}
