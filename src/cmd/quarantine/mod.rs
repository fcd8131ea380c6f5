//! `hooklatch quarantine`: lists deliveries that failed verification, verifies them again, or deletes them.

mod drop;
mod judge;
mod select;

use crate::cli::{self, QuarantineCommand};
use crate::exit::{Exit, Failure};
use crate::store::{DiscardReason, Quarantine, QuarantineFilter, QuarantinedRow};

use super::output::{self, below, cut, local, size, thousands, whole};
use super::store;
use select::{deliveries, filter};

/// Lists failed deliveries, or runs the subcommand.
pub(super) fn run(args: &cli::Quarantine) -> Result<Exit, Failure> {
    match &args.command {
        None => list(filter(&args.which)?, &args.listing),
        Some(QuarantineCommand::Verify(args)) => judge::verify(args),
        Some(QuarantineCommand::Accept(args)) => judge::accept(args),
        Some(QuarantineCommand::Drop(args)) => drop::run(args),
    }
}

/// Lists failed deliveries; also for `events --rejected`.
pub(super) fn list(filter: QuarantineFilter, listing: &cli::Listing) -> Result<Exit, Failure> {
    let filter = QuarantineFilter { limit: Some(listing.limit), ..filter };
    let kept = store::ask_of(&store::load(&listing.options)?, filter)?;
    output::either(&listing.options.format, &kept, || print(&kept, listing))
}

fn print(kept: &Quarantine, listing: &cli::Listing) -> Result<(), Failure> {
    let rows = kept.deliveries.iter().map(row).collect();
    output::listing(rows, listing.wide, "no failed deliveries")?;
    notes(kept, &listing.options.suffix()).iter().try_for_each(output::line)
}

fn row(failed: &QuarantinedRow) -> Vec<output::Cell> {
    let body = match failed.body_kept {
        true => size(failed.body_bytes),
        false => "not kept".to_owned(),
    };
    vec![
        whole("RECEIVED", local(failed.received_at)),
        cut("SOURCE", 8, &failed.source),
        cut("ADDRESS", 15, failed.address.as_deref().unwrap_or("unknown")),
        whole("REASON", &failed.reason),
        whole("BODY", body),
        cut("CLAIMED ID", 10, failed.unproven_event_id.as_deref().unwrap_or("")),
        below("DETAIL", &failed.detail),
    ]
}

/// What the rows do not say. `suffix` is the `--config` option for printed commands.
fn notes(kept: &Quarantine, suffix: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let shown = kept.deliveries.len() as u64;
    if shown < kept.matching {
        let all = thousands(kept.matching);
        lines.push(format!("the newest {shown} of {all}; --limit shows more"));
    }
    for (source, reasons) in &kept.left_out {
        let one = |(why, deliveries): (&DiscardReason, &u64)| {
            format!("{} {}", thousands(*deliveries), left_out(*why))
        };
        let reasons: Vec<String> = reasons.iter().map(one).collect();
        lines.push(format!("not kept of {source}: {}", reasons.join(", ")));
    }
    if kept.deliveries.iter().any(|failed| failed.body_kept) {
        lines.push(format!(
            "{} kept; once the secret is right: hooklatch quarantine verify{suffix}",
            deliveries(kept.matching)
        ));
    }
    lines
}

pub(super) fn left_out(why: DiscardReason) -> &'static str {
    match why {
        DiscardReason::OverRate => "over the rate",
        DiscardReason::Busy => "too many at once",
        DiscardReason::NoSpace => "without space",
        DiscardReason::Evicted => "given up for others",
        DiscardReason::Expired => "too old",
    }
}
