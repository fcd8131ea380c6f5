//! `hooklatch pause` and `hooklatch resume`: stop a handler's jobs from starting, and start them again.

use serde_json::json;

use crate::admin::{HandlerRow, ListHandlers, PauseHandler, ResumeHandler};
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::model::Name;
use crate::store::PausedRow;

use super::output::{self, local, words_of};
use super::store;

/// Pauses a handler of the configuration, or lists those that are paused.
pub(super) fn pause(args: &cli::Pause) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let Some(handler) = &args.handler else {
        let handlers = store::ask_of(&config, ListHandlers {})?.handlers.into_iter();
        let paused = |HandlerRow { handler, paused_since, .. }| {
            Some(PausedRow { handler, since: paused_since? })
        };
        let rows: Vec<PausedRow> = handlers.filter_map(paused).collect();
        let row = |paused: &PausedRow| {
            let since = local(paused.since);
            vec![words_of("HANDLER", &paused.handler), words_of("PAUSED SINCE", since)]
        };
        let format = &args.options.format;
        return output::rows(format, &rows, row, false, "nothing is paused");
    };
    // A misspelt name would be paused, and the intended handler would go on. A file with a mistake may define it.
    if config.mistakes().is_empty() && config.handler(handler).is_none() {
        return Err(store::no_handler(&config, handler));
    }
    let changed =
        store::change(&config, &args.note, PauseHandler { handler: handler.clone() })?.changed;
    report(handler, true, changed, &args.options.format)
}

/// Lets a paused handler run again, even if the configuration no longer has it.
pub(super) fn resume(args: &cli::Resume) -> Result<Exit, Failure> {
    let (config, handler) = (store::load(&args.options)?, &args.handler);
    let changed =
        store::change(&config, &args.note, ResumeHandler { handler: handler.clone() })?.changed;
    let whole = config.mistakes().is_empty();
    if !changed && whole && config.handler(handler).is_none() {
        return Err(store::no_handler(&config, handler));
    }
    report(handler, false, changed, &args.options.format)
}

/// A repeat is not a failure: the handler is as it should be.
fn report(
    handler: &Name,
    paused: bool,
    changed: bool,
    format: &cli::Format,
) -> Result<Exit, Failure> {
    let json = json!({ "handler": handler, "paused": paused, "changed": changed });
    let text = match (paused, changed) {
        (true, true) => "is paused; what runs goes on",
        (true, false) => "was paused already",
        (false, true) => "runs again",
        (false, false) => "was not paused",
    };
    output::answer(format, json, format_args!("handler {handler} {text}"))
}
