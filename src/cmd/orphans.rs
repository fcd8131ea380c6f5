//! Finds, for `hooklatch config check`, jobs of handlers that neither the configuration nor another node has.

use std::collections::BTreeSet;
use std::path::Path;

use crate::admin::{HandlerRow, ListHandlers};
use crate::config::Config;
use crate::document::{Fault, Problem, nearest};
use crate::exit::Exit;
use crate::model::Name;

use super::output::count;
use super::store::{ask_of, nodes, with_client};

/// One warning for each handler that is gone and has jobs left. A missing store has no jobs; a store that cannot
/// be asked is another warning.
pub(super) fn find(path: &Path, config: &Config) -> Vec<Problem> {
    let handlers = match ask_of(config, ListHandlers {}) {
        Ok(list) => list.handlers,
        Err(failure) if failure.exit == Exit::NotFound => return Vec::new(),
        Err(failure) => {
            let message = "the store could not be asked for jobs of handlers that are gone";
            let fault = Fault::new(message, failure.message);
            return vec![Problem::of_file(path.display().to_string(), fault)];
        }
    };
    let gone = handlers.iter().filter(|row| config.handler(&row.handler).is_none());
    let mut gone: Vec<_> = gone.filter(|row| row.unfinished_jobs > 0).collect();
    if !gone.is_empty() {
        let elsewhere = published_elsewhere(config);
        gone.retain(|row| !elsewhere.contains(&row.handler));
    }
    let orphaned = |row: &&HandlerRow| orphaned(path, config, &row.handler, row.unfinished_jobs);
    gone.iter().map(orphaned).collect()
}

/// The handlers of the other nodes, as far as they can be asked for: their jobs are not held (N29).
fn published_elsewhere(config: &Config) -> BTreeSet<Name> {
    let nodes = with_client(config, async |client| Ok(nodes(client).await)).unwrap_or_default();
    let (own, _) = config.node_and_machine();
    let others =
        nodes.into_iter().filter(|node| own.as_ref().is_ok_and(|own| own.as_str() != node.name));
    others.flat_map(|node| node.handlers).map(|published| published.handler).collect()
}

fn orphaned(path: &Path, config: &Config, handler: &Name, jobs: u64) -> Problem {
    let (jobs, are) = (count(jobs, "job"), if jobs == 1 { "is" } else { "are" });
    let message = format!(
        "{jobs} of handler '{handler}', which is not configured, {are} not finished and will be held"
    );
    let look = format!("hooklatch jobs --handler {handler}");
    let known = config.handlers.iter().map(|handler| handler.name.as_str());
    let help = match nearest(handler.as_str(), known) {
        Some(near) => format!("is '{near}' its new name? jobs stay with the old one; see `{look}`"),
        None => format!("add [handlers.{handler}] again until they are finished, or see `{look}`"),
    };
    Problem::of_file(path.display().to_string(), Fault::new(message, help))
}
