//! For `hooklatch config check`: finds jobs of handlers that the configuration does not have.

use std::path::Path;

use crate::admin::ListHandlers;
use crate::config::Config;
use crate::document::{Fault, Problem, nearest};
use crate::exit::Exit;
use crate::model::Name;

use super::output::count;
use super::store::ask_of;

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
    let gone = gone.filter(|row| row.unfinished_jobs > 0);
    gone.map(|row| orphaned(path, config, &row.handler, row.unfinished_jobs)).collect()
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
