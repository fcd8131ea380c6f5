//! `hooklatch reload`: the running receiver and its runner take the configuration as it is now.

use std::io;
use std::path::Path;

use crate::cli;
use crate::config;
use crate::control::{self, Reloaded, Reply, Request};
use crate::exit::{Exit, Failure};
use crate::limits::Limits;
use crate::limits::fixed::Change;

use super::output;
use super::{block_on, store};

/// Asks the receiver, waits until the configuration is in force, and prints what has changed.
pub(super) fn run(args: &cli::Reload) -> Result<Exit, Failure> {
    let path = &args.file.config;
    let loaded = config::load(path);
    // The receiver reads it itself, and logs what is wrong: here only its socket is looked for.
    let (database, limits) = match &loaded {
        Ok(config) => (Some(config.store().path), config.limits().clone()),
        Err(_) => (config::store_path(path), Limits::default()),
    };
    let asked = block_on(async {
        match database.as_deref().map(control::socket_path) {
            Some(socket) => match control::connect(&socket, &limits).await {
                Ok(mut client) => Ok(client.call(&Request::Reload).await),
                Err(error) => Err(nobody(&socket, &error)),
            },
            None => Err(Failure::new(Exit::Unavailable, "no receiver is known")),
        }
    })?;
    match (asked, loaded) {
        (Ok(Ok(Reply::Reload(reloaded))), _) if args.format.json => output::json(&reloaded)?,
        (Ok(Ok(Reply::Reload(reloaded))), _) => show(&reloaded)?,
        (Ok(Ok(other)), _) => return Err(store::unexpected(&other)),
        (Ok(Err(error)), _) => return Err(store::call_failure(error)),
        // What is wrong with the configuration comes first: with it no receiver would start.
        (Err(_), Err(problems)) => return Err(store::config_failure(&problems)),
        (Err(failure), Ok(_)) => return Err(failure),
    }
    Ok(Exit::Ok)
}

fn nobody(socket: &Path, error: &io::Error) -> Failure {
    let message = format!("no receiver answers at {}: {error}", socket.display());
    let help =
        "start it: hooklatch serve (one that runs keeps its storage.path until it is restarted)";
    Failure::new(Exit::Unavailable, message).help(help)
}

fn show(reloaded: &Reloaded) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut row = |what: &str, name: &str, change: &str| {
        rows.push(vec![what.into(), name.into(), change.into()]);
    };
    let moved = |change: &Change| format!("{} → {}", change.from, change.to);
    for (kind, names) in [("source", &reloaded.sources), ("handler", &reloaded.handlers)] {
        for (name, what) in names.all() {
            row(kind, name.as_str(), what);
        }
    }
    for limit in &reloaded.limits {
        row("limit", &limit.key, &moved(limit));
    }
    for secret in &reloaded.secrets {
        let read = match (&secret.stays, secret.changed) {
            (Some(why), _) => format!("read again; {why}"),
            (None, Some(true)) => "read again: another one".to_owned(),
            (None, Some(false)) => "read again: the same".to_owned(),
            (None, None) => "read by its runner".to_owned(),
        };
        row("secret", &format!("{} of {}", secret.reference, secret.of), &read);
    }
    for runner in reloaded.runners.iter().filter(|runner| !runner.loaded) {
        row("runner", runner.name.as_str(), "not connected: reads its commands when it comes");
    }
    for needed in &reloaded.restart {
        let change =
            format!("{}: needs a restart of the {}", moved(&needed.change), needed.process);
        row("NOT YET", &needed.change.key, &change);
    }
    output::line(format_args!("{} is in force", output::escape(&reloaded.file)))?;
    output::table(&["WHAT", "NAME", "CHANGE"], rows, "nothing has changed")
}
