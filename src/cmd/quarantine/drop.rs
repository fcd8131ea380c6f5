//! `quarantine drop`: forgets failed deliveries, after a count and a question.

use crate::cli;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::store::QuarantineFilter;

use crate::cmd::{confirm, output, store};

/// Counts, asks, forgets.
pub(super) fn run(args: &cli::DropKept) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let asks = !args.dry_run && !args.yes;
    if asks {
        confirm::somebody_is_there()?;
    }
    let filter = super::filter(&args.which)?;
    let newest = QuarantineFilter { limit: Some(1), ..filter.clone() };
    let kept = match store::ask_of(&config, Request::Quarantined(newest))? {
        Reply::Quarantined(kept) => kept,
        other => return Err(store::unexpected(&other)),
    };
    let matching = super::deliveries(kept.matching);
    if asks && kept.matching > 0 && !confirm::confirmed(&format!("forget {matching}"))? {
        return Err(Failure::new(Exit::No, "nothing was changed"));
    }
    let mut dropped = 0;
    if let Some(newest) = kept.deliveries.first().filter(|_| !args.dry_run) {
        let filter = QuarantineFilter { upto: Some(newest.id), ..filter };
        dropped = match store::ask_of(&config, Request::DropQuarantined(filter))? {
            Reply::DropQuarantined(dropped) => dropped,
            other => return Err(store::unexpected(&other)),
        };
    }
    if args.format.json {
        let (matching, dry_run) = (kept.matching, args.dry_run);
        let answer =
            serde_json::json!({ "matching": matching, "dropped": dropped, "dry_run": dry_run });
        output::json(&answer)?;
    } else if args.dry_run {
        output::line(format_args!("{matching} would be forgotten"))?;
    } else {
        output::line(format_args!("forgot {}", super::deliveries(dropped)))?;
    }
    Ok(Exit::Ok)
}
