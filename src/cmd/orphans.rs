//! For `hooklatch config check`: finds jobs of handlers that the configuration does not have.

use std::path::Path;

use crate::admin::ListHandlers;
use crate::config::Config;
use crate::document::{Problem, nearest};
use crate::exit::{Exit, Failure};
use crate::model::Name;

use super::store::ask_of;

/// One warning for each handler that is gone and has jobs left. A missing store has no jobs; a store that cannot
/// be asked is another warning.
pub(super) fn find(path: &Path, config: &Config) -> Vec<Problem> {
    let handlers = match ask_of(config, ListHandlers {}) {
        Ok(list) => list.handlers,
        Err(failure) if failure.exit == Exit::NotFound => return Vec::new(),
        Err(failure) => return vec![unasked(path, &failure)],
    };
    let known: Vec<&Name> = config.handlers.iter().map(|handler| &handler.name).collect();
    let gone = handlers.iter().filter(|row| row.unfinished_jobs > 0);
    let gone = gone.filter(|row| !known.contains(&&row.handler));
    gone.map(|row| orphaned(path, &known, &row.handler, row.unfinished_jobs)).collect()
}

fn orphaned(path: &Path, known: &[&Name], handler: &Name, jobs: u64) -> Problem {
    let (jobs, are) =
        if jobs == 1 { ("1 job".to_owned(), "is") } else { (format!("{jobs} jobs"), "are") };
    let message = format!(
        "{jobs} of handler '{handler}', which is not configured, {are} not finished and will be held"
    );
    let look = format!("hooklatch jobs --handler {handler}");
    let help = match nearest(handler.as_str(), known.iter().map(|name| name.as_str())) {
        Some(near) => format!("is '{near}' its new name? jobs stay with the old one; see `{look}`"),
        None => format!("add [handlers.{handler}] again until they are finished, or see `{look}`"),
    };
    whole(path, message, help)
}

fn unasked(path: &Path, failure: &Failure) -> Problem {
    let message = "the store could not be asked for jobs of handlers that are gone".to_owned();
    whole(path, message, failure.message.clone())
}

pub(super) fn whole(path: &Path, message: String, help: String) -> Problem {
    let file = path.display().to_string();
    Problem { file, line: 0, column: 0, key: String::new(), message, help: Some(help) }
}
