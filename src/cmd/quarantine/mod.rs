//! `hooklatch quarantine`: lists deliveries that failed verification, verifies them again, or deletes them.

mod drop;
mod judge;
mod select;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::admin::{GetStatus, StoreClient};
use crate::cli::{self, QuarantineCommand};
use crate::exit::{Exit, Failure};
use crate::model::Name;
use crate::store::{DiscardReason, Quarantine, QuarantineFilter, QuarantinedRow};
use crate::traffic::TooLarge;

use super::output::{self, below, cut, local, size, thousands, whole};
use super::store;
use select::{deliveries, filter};

/// The word for a body over the limit.
const TOO_LARGE: &str = "too_large";

const HOUR: Duration = Duration::from_secs(60 * 60);

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
    let listed = store::with_client(&store::load(&listing.options)?, async |client| {
        let unproven_too_large = too_large(client, &filter).await;
        Ok(Listed { kept: client.call(filter).await?, unproven_too_large })
    })?;
    output::either(&listing.options.format, &listed, || print(&listed, listing))
}

/// The kept deliveries, and how many were not kept because their body was over the limit.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    kept: Quarantine,
    /// The bodies over the limit, by source; empty without a running receiver.
    unproven_too_large: BTreeMap<Name, Vec<TooLarge>>,
}

/// The bodies over the limit of the sources that `filter` means. Only a receiver counts them.
async fn too_large(
    client: &StoreClient,
    filter: &QuarantineFilter,
) -> BTreeMap<Name, Vec<TooLarge>> {
    if filter.reason.as_ref().is_some_and(|reason| reason != TOO_LARGE) {
        return BTreeMap::new();
    }
    let status = client.call(GetStatus { sources: Vec::new() }).await.ok();
    let sources = status.and_then(|status| status.receiver).map(|own| own.traffic.sources);
    let sources = sources.into_iter().flatten();
    let sources = sources.filter(|(name, _)| filter.source.as_ref().is_none_or(|own| own == name));
    let rows = sources.map(|(name, seen)| {
        let is_later = |row: &TooLarge| filter.since.is_none_or(|since| row.at.after(HOUR) > since);
        (name, seen.unproven_too_large.into_iter().filter(is_later).collect::<Vec<_>>())
    });
    rows.filter(|(_, rows)| !rows.is_empty()).collect()
}

fn print(listed: &Listed, listing: &cli::Listing) -> Result<(), Failure> {
    let Listed { kept, unproven_too_large } = listed;
    let rows = kept.deliveries.iter().map(row).collect();
    output::listing(rows, listing.wide, "no failed deliveries")?;
    let notes = notes(kept, &listing.options.suffix()).into_iter();
    let too_large = unproven_too_large.iter().flat_map(|(source, rows)| {
        let head = format!("over max_body of {source}, and not kept:");
        let rows = super::status::too_large(rows).into_iter();
        std::iter::once(head).chain(rows.map(|row| format!("  {row}")))
    });
    notes.chain(too_large).try_for_each(output::line)
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
