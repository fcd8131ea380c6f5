//! Which failed deliveries a command is about, and how many.

use crate::admin::StoreClient;
use crate::cli;
use crate::exit::Failure;
use crate::store::QuarantineFilter;

use crate::cmd::jobs;
use crate::cmd::output::thousands;

/// The typed filter for the store.
pub(super) fn filter(which: &cli::Kept) -> Result<QuarantineFilter, Failure> {
    Ok(QuarantineFilter {
        source: which.source.clone(),
        reason: which.reason.clone(),
        since: jobs::since(which.since)?,
        ..QuarantineFilter::default()
    })
}

/// The filter without deliveries that arrive later, and how many match it.
pub(super) async fn meant(
    client: &StoreClient,
    which: &cli::Kept,
) -> Result<(QuarantineFilter, u64), Failure> {
    let filter = filter(which)?;
    let newest = QuarantineFilter { limit: Some(1), ..filter.clone() };
    let kept = client.call(newest).await?;
    let upto = Some(kept.deliveries.first().map_or(0, |newest| newest.id));
    Ok((QuarantineFilter { upto, ..filter }, kept.matching))
}

pub(super) fn deliveries(number: u64) -> String {
    match number {
        1 => "1 delivery".to_owned(),
        _ => format!("{} deliveries", thousands(number)),
    }
}
