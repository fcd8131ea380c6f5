//! `hooklatch quarantine`: what failed verification, and what is made of it.

mod drop;
mod judge;

use crate::admin::StoreClient;
use crate::cli::{self, QuarantineCommand};
use crate::exit::{Exit, Failure};
use crate::store::{LeftOut, Quarantine, QuarantineFilter, QuarantinedRow};

use super::output::{self, below, cut, local, size, thousands, whole};
use super::{jobs, store};

/// Lists them, or does what the subcommand says.
pub(super) fn run(args: &cli::Quarantine) -> Result<Exit, Failure> {
    match &args.command {
        None => list(&args.file, filter(&args.which)?, &args.listing),
        Some(QuarantineCommand::Verify(args)) => judge::verify(args),
        Some(QuarantineCommand::Accept(args)) => judge::accept(args),
        Some(QuarantineCommand::Drop(args)) => drop::run(args),
    }
}

/// What was typed, as the store understands it.
fn filter(which: &cli::Kept) -> Result<QuarantineFilter, Failure> {
    Ok(QuarantineFilter {
        source: which.source.clone(),
        reason: which.reason.clone(),
        since: jobs::since(which.since)?,
        ..QuarantineFilter::default()
    })
}

/// The same filter without what is still to come, and how many it means.
async fn meant(
    client: &StoreClient,
    filter: QuarantineFilter,
) -> Result<(QuarantineFilter, u64), Failure> {
    let newest = QuarantineFilter { limit: Some(1), ..filter.clone() };
    let kept = store::call(client, newest).await?;
    let upto = Some(kept.deliveries.first().map_or(0, |newest| newest.id));
    Ok((QuarantineFilter { upto, ..filter }, kept.matching))
}

/// Lists what is kept; also for `events --rejected`.
pub(super) fn list(
    file: &cli::ConfigFile,
    filter: QuarantineFilter,
    listing: &cli::Listing,
) -> Result<Exit, Failure> {
    let filter = QuarantineFilter { limit: Some(listing.limit), ..filter };
    let kept = store::ask_of(&store::load(&file.config)?, filter)?;
    if listing.format.json {
        output::json(&kept)?;
        return Ok(Exit::Ok);
    }
    let columns = [
        whole("RECEIVED"),
        cut("SOURCE", 8),
        cut("ADDRESS", 15),
        whole("REASON"),
        whole("BODY"),
        cut("CLAIMED ID", 10),
        below("DETAIL"),
    ];
    let rows = kept.deliveries.iter().map(row).collect();
    output::listing(columns.into(), rows, listing.wide, "no failed deliveries")?;
    let suffix = output::config_suffix(&file.config);
    told(&kept, &suffix).iter().try_for_each(output::line)?;
    Ok(Exit::Ok)
}

fn row(failed: &QuarantinedRow) -> Vec<output::Field> {
    let body = match failed.body_kept {
        true => size(failed.body_bytes),
        false => "not kept".to_owned(),
    };
    vec![
        local(failed.received_at).into(),
        (&failed.source).into(),
        failed.address.as_deref().unwrap_or("unknown").into(),
        (&failed.reason).into(),
        body.into(),
        failed.unproven_event_id.as_deref().unwrap_or("").into(),
        (&failed.detail).into(),
    ]
}

/// What the rows do not say. `suffix`: what a command needs to find the configuration.
fn told(kept: &Quarantine, suffix: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let shown = kept.deliveries.len() as u64;
    if shown < kept.matching {
        let all = thousands(kept.matching);
        lines.push(format!("the newest {shown} of {all}; --limit shows more"));
    }
    for (source, reasons) in &kept.left_out {
        let one = |(why, deliveries): (&LeftOut, &u64)| {
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

fn deliveries(number: u64) -> String {
    match number {
        1 => "1 delivery".to_owned(),
        _ => format!("{} deliveries", thousands(number)),
    }
}

fn left_out(why: LeftOut) -> &'static str {
    match why {
        LeftOut::OverRate => "over the rate",
        LeftOut::Busy => "too many at once",
        LeftOut::NoSpace => "without space",
        LeftOut::Evicted => "given up for others",
        LeftOut::Expired => "too old",
    }
}
