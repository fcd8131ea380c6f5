//! `quarantine drop`: forgets failed deliveries, after a count and a question.

use crate::cli;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};

use crate::cmd::{confirm, output, store};

use super::{deliveries, meant};

/// Counts, asks, forgets.
pub(super) fn run(args: &cli::DropKept) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let asks = !args.dry_run && !args.yes;
    if asks {
        confirm::somebody_is_there()?;
    }
    let filter = super::filter(&args.which)?;
    let (filter, matching) = store::with_door(&config, async |door| meant(door, filter).await)?;
    let told = deliveries(matching);
    if asks && matching > 0 && !confirm::confirmed(&format!("forget {told}"))? {
        return Ok(confirm::declined());
    }
    let mut dropped = 0;
    if matching > 0 && !args.dry_run {
        let reply = store::ask_of(&config, Request::DropQuarantined(filter))?;
        dropped = store::content!(reply, Reply::DropQuarantined(dropped) => dropped)?;
    }
    if args.format.json {
        output::json(&serde_json::json!({
            "matching": matching,
            "dropped": dropped,
            "dry_run": args.dry_run,
        }))?;
    } else if args.dry_run {
        output::line(format_args!("{told} would be forgotten"))?;
    } else {
        output::line(format_args!("forgot {}", deliveries(dropped)))?;
    }
    Ok(Exit::Ok)
}
