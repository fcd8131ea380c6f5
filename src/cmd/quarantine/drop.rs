//! `quarantine drop`: deletes failed deliveries, after a count and a question.

use serde_json::json;

use crate::admin::DropQuarantine;
use crate::cli;
use crate::exit::{Exit, Failure};

use crate::cmd::{confirm, output, store};

use super::select::{deliveries, meant};

/// Counts, asks, forgets.
pub(super) fn run(args: &cli::DropKept) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let asks = !args.dry_run && !args.yes;
    if asks {
        confirm::need_terminal()?;
    }
    let (filter, matching) =
        store::with_client(&config, async |client| meant(client, &args.which).await)?;
    let all = deliveries(matching);
    if asks && matching > 0 && !confirm::confirmed(&format!("forget {all}"))? {
        return Ok(confirm::declined());
    }
    let mut dropped = 0;
    if matching > 0 && !args.dry_run {
        dropped = store::change(&config, &args.note, DropQuarantine { filter })?.dropped;
    }
    let text = match args.dry_run {
        true => format!("{all} would be forgotten"),
        false => format!("forgot {}", deliveries(dropped)),
    };
    let json = json!({ "matching": matching, "dropped": dropped, "dry_run": args.dry_run });
    output::answer(&args.options.format, json, text)
}
