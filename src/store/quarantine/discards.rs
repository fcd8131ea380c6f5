//! Counts of the deliveries that are not kept, or not for their whole time.

use std::collections::BTreeMap;

use crate::model::Name;
use crate::store::border::DiscardReason;

/// How many deliveries were not kept, by source and reason. Unproven requests cannot add sources.
pub(crate) type DiscardCounts = BTreeMap<Name, BTreeMap<DiscardReason, u64>>;

pub(crate) fn count(
    counts: &mut DiscardCounts,
    source: &Name,
    why: DiscardReason,
    deliveries: u64,
) {
    *counts.entry(source.clone()).or_default().entry(why).or_default() += deliveries;
}

pub(crate) fn add_counts(counts: &mut DiscardCounts, more: DiscardCounts) {
    for (source, reasons) in more {
        for (why, deliveries) in reasons {
            count(counts, &source, why, deliveries);
        }
    }
}
