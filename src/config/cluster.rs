//! What the configuration says of a store on PostgreSQL, put together: the node that this machine is.

use std::path::Path;

use crate::document::{Fault, Problem, Problems, Value};
use crate::model::Name;
use crate::store::postgres::{ClusterNode, Target};

use super::configuration::Config;
use super::database::{MACHINE_BYTES, OwnNode, URL, identity};
use super::environment::Environment;
use super::files::read_regular;
use super::secrets::Reference;
use super::settings::{Settings, dotted};

/// Limits of SQLite's files, which PostgreSQL has settings of its own for.
const SQLITE_LIMITS: &str = "log_bytes disk_floor_bytes ballast_bytes";

/// Names the machine, unless `node.machine` does (machine-id(5)).
const MACHINE_ID: &str = "/etc/machine-id";

/// What a receiver reads at its start only, by key.
pub(super) fn read_at_start(settings: &Settings) -> [(&'static str, String); 5] {
    let (database, node) = (settings.database.as_ref(), &settings.node);
    let ca = database.and_then(|database| database.ca.as_ref());
    let require = database.map(|database| database.require_synchronous_standby.to_string());
    [
        (URL, database.map(|database| database.url.value.clone())),
        ("storage.ca", ca.map(|ca| ca.value.display().to_string())),
        ("storage.require_synchronous_standby", require),
        ("node.name", node.name.as_ref().map(|name| name.value.to_string())),
        ("node.machine", node.machine.clone()),
    ]
    .map(|(key, text)| (key, text.unwrap_or_else(|| "none".to_owned())))
}

/// Checks that no setting is of SQLite's files alone.
pub(super) fn check(settings: &Settings, problems: &Problems) {
    for limit in SQLITE_LIMITS.split(' ').filter(|_| settings.has_url) {
        if let Some(at) = settings.places.get(&dotted(limit)) {
            let message = "is a limit of SQLite's files, and the store is on PostgreSQL";
            problems.reject(at, message, "remove it");
        }
    }
}

impl Config {
    /// Whether the store is on PostgreSQL.
    pub fn has_database(&self) -> bool {
        self.settings.has_url
    }

    /// How the database of `storage.url` is reached; `None` without that key. An `Err` has every secret and file that
    /// cannot be read.
    pub fn database(&self, environment: &Environment) -> Result<Option<Target>, Vec<Problem>> {
        let problems = Problems::new();
        let target = self.read_target(environment, &problems);
        problems.none_or(target)
    }

    /// The node that this machine is; `None` without `storage.url`. An `Err` is as that of [`Config::database`].
    pub fn cluster_node(
        &self,
        environment: &Environment,
    ) -> Result<Option<ClusterNode>, Vec<Problem>> {
        let problems = Problems::new();
        let node = self.read_node(environment, &problems);
        problems.none_or(node)
    }

    pub(super) fn read_node(
        &self,
        environment: &Environment,
        problems: &Problems,
    ) -> Option<ClusterNode> {
        let database = self.settings.database.as_ref()?;
        let report = |fault| problems.report(&database.url.at, fault);
        let (name, machine) = self.node_and_machine();
        let target = self.read_target(environment, problems);
        let (name, machine) = (name.map_err(report).ok(), machine.map_err(report).ok());
        let name = name?;
        Some(ClusterNode { target: target?.of_node(name.as_str()), name, machine: machine? })
    }

    /// What `[node]` says, or else the machine itself.
    pub fn node_and_machine(&self) -> (Result<Name, Fault>, Result<String, Fault>) {
        let OwnNode { name, machine } = &self.settings.node;
        let name = name.as_ref().map_or_else(host_name, |name| Ok(name.value.clone()));
        (name, machine.clone().map_or_else(machine_id, Ok))
    }

    fn read_target(&self, environment: &Environment, problems: &Problems) -> Option<Target> {
        let database = self.settings.database.as_ref()?;
        let ca = database.ca.as_ref();
        let read = |Value { value: reference, at }: &Value<Reference>| {
            reference.read(environment).map_err(|error| problems.report(at, error))
        };
        let password = database.password.as_ref().map(read).transpose();
        // Without the password too, so that what else is wrong is reported with it.
        let target = Target::new(
            &database.url.value,
            password.as_ref().ok().and_then(|read| read.as_ref()).map(|read| read.as_str()),
            ca.map(|ca| ca.value.as_path()),
            database.require_synchronous_standby,
        );
        let at = ca.map_or(&database.url.at, |ca| &ca.at);
        let target = target.map_err(|error| problems.report(at, error.to_string())).ok();
        password.ok().and(target)
    }
}

fn host_name() -> Result<Name, Fault> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    host.parse().map_err(|_| {
        let message = format!("the host's name '{host}' cannot be a node's name");
        Fault::new(message, "give the node one: [node] name = \"a\"")
    })
}

fn machine_id() -> Result<String, Fault> {
    let bytes = read_regular(Path::new(MACHINE_ID), MACHINE_BYTES);
    let machine = bytes.ok().and_then(|bytes| identity(bytes.trim_ascii()));
    // Until the first boot has made one, the file says "uninitialized".
    let machine = machine.filter(|machine| machine.len() == 32);
    machine.ok_or_else(|| {
        let message = format!("{MACHINE_ID} does not name this machine");
        Fault::new(message, "run systemd-machine-id-setup, or write what no other machine has: [node] machine = \"...\"")
    })
}
