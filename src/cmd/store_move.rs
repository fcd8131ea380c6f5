//! `hooklatch store move`: moves the stopped store from its file to a database.

use std::path::Path;

use serde_json::{Map, json};

use crate::cli;
use crate::clock::Clock;
use crate::config::{Environment, Reference};
use crate::document::Fault;
use crate::exit::{Exit, Failure};
use crate::store::postgres::{Node, NodeFile, Target};
use crate::store::{HeldStore, MoveError, OpenError};

use super::of_unit::of_unit;
use super::output::{self, thousands};
use super::runtime::block_on;
use super::{owner, progress, store};

/// Moves the store, and says what to do next.
pub(super) fn run(args: &cli::StoreMove) -> Result<Exit, Failure> {
    let options = &args.options;
    let config = store::load(options)?;
    store::need_file(&config)?;
    let wrong = |fault: Fault| {
        let failure = Exit::Config.failure(fault.to_string());
        match fault.help() {
            Some(help) => failure.help(help),
            None => failure,
        }
    };
    let password = match &args.password_from {
        None => None,
        Some(text) => {
            let environment = of_unit(&Environment::capture(), options.config(), "secrets");
            let reference = Reference::parse(text, Path::new("")).map_err(wrong)?;
            Some(reference.read(&environment).map_err(|error| wrong(error.into()))?)
        }
    };
    let password = password.as_ref().map(|password| password.as_str());
    let require = args.require_synchronous_standby;
    let target = Target::new(&args.to, password, args.ca.as_deref(), require)
        .map_err(|error| Exit::Config.failure(error.to_string()))?;
    let (name, machine) = config.node_and_machine();
    let (name, machine) = (name.map_err(wrong)?, machine.map_err(wrong)?);
    let settings = config.store();
    owner::assume(&settings.path)?;
    let held = HeldStore::take(&settings, Clock::system()).map_err(MoveError::from)?;
    let file =
        NodeFile::open(&settings.path).map_err(|error| Exit::Io.failure(error.to_string()))?;
    let node = Node::of_folder(&file, name.to_string(), machine);
    let bar = match options.json() {
        true => indicatif::ProgressBar::hidden(),
        false => progress::bar(0, "{pos}/{len} rows"),
    };
    let mut show = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let target = target.of_node(name.as_str());
    let moved = block_on(held.move_to(&target, &args.to, &node, &mut show))?;
    bar.finish_and_clear();
    let moved = moved?;
    let rows: Map<_, _> =
        moved.rows.iter().map(|(table, rows)| ((*table).to_owned(), json!(rows))).collect();
    let json = json!({ "store": moved.store, "to": args.to, "rows": rows });
    output::either(&options.format, &json, || {
        output::fact("store", moved.store.simple())?;
        let all: u64 = moved.rows.iter().map(|(_, rows)| rows).sum();
        output::fact(
            "moved",
            match all {
                0 => "by an earlier run".to_owned(),
                all => format!("{} rows, compared with the file", thousands(all)),
            },
        )?;
        output::fact("file", format!("{} opens no more", settings.path.display()))?;
        output::fact("next", format!("[storage] url = \"{}\"", args.to))
    })
}

impl From<MoveError> for Failure {
    fn from(error: MoveError) -> Self {
        let exit = match &error {
            MoveError::NotEmpty(_) | MoveError::Old | MoveError::OtherDatabase { .. } => {
                Exit::WrongState
            }
            _ => Exit::Unavailable,
        };
        let failure = exit.failure(error.to_string());
        match error {
            MoveError::Store(OpenError::Locked { .. }) => {
                failure.help("stop the receiver: systemctl stop hooklatch.socket hooklatch.service")
            }
            _ => failure,
        }
    }
}
