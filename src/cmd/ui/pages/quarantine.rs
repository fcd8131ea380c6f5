//! The quarantine: deliveries that failed verification, by source and reason. What they claim is unproven.

use std::collections::BTreeMap;

use crate::cmd::quarantine::left_out;
use crate::store::{QuarantineFilter, QuarantinedRow};

use super::super::{parts::*, view::View};

/// Deliveries that are listed.
const ROWS: usize = 100;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/quarantine", "Quarantine");
    let chosen = view.asked.get("source");
    let kept = view.ask(filter(view, ROWS)?).await?;
    let mut groups: BTreeMap<_, Vec<&QuarantinedRow>> = BTreeMap::new();
    for row in &kept.deliveries {
        let group = groups.entry((&row.source, &row.reason));
        group.or_default().push(row);
    }
    let (count, all) = (kept.deliveries.len() as u64, kept.matching);
    let of_source = chosen.map(|name| ("source", name));
    Ok(html! {
        (view.head(html! {
            span.small { (thousands(all)) " kept" ", " (size(kept.bytes)) }
            @if all > 0 {
                (change(&link("/change/accept", of_source), "primary", "shield", "Verify again…"))
                (change(&link("/change/forget", of_source), "quiet danger", "dropped", "Forget…"))
            }
        }))
        section.card aria-label="Failed deliveries" data-part="kept" {
            @if let Some(name) = chosen { div.filters { a.chip href="/quarantine" { (shown(name)) (icon("x")) } } }
            @if count == 0 { (empty("succeeded", "No delivery that failed verification is kept.")) }
            @for ((name, reason), rows) in &groups {
                @let what = html! { (source(name)) " " (shown(reason)) };
                @let rows_count = html! { span.count { (rows.len()) } };
                ul.list { (item("bad", "quarantine", what, rows_count, shown(&rows[0].detail))) }
                div.scroll tabindex="0" role="region" aria-label={(name) ", " (shown(reason))} { table {
                    thead { tr { th { "Received" } th.opt { "From" }
                        th { "Claims to be (unproven)" } th.r { "Body" } } }
                    tbody { @for row in rows { tr {
                        td.num { (time(row.received_at, view.screen.now)) }
                        td.opt.id { @if let Some(address) = &row.address { (shown(address)) } }
                        td.clip.id { @if let Some(id) = &row.unproven_event_id { (shown(id)) } }
                        td.r.num { (size(row.body_bytes)) @if !row.body_kept { " (not kept)" } }
                    } } }
                } }
            }
            @if all > count { div.pager { "The newest " (count) " of " (thousands(all)) } }
            @for (name, reasons) in &kept.left_out { @for (reason, number) in reasons {
                div.pager { (thousands(*number)) " of " (name) " were not kept: " (left_out(*reason)) }
            } }
        }
    })
}

/// The deliveries that the address means, of which `limit` are listed.
pub(super) fn filter(view: &View<'_>, limit: usize) -> Result<QuarantineFilter, Failure> {
    Ok(QuarantineFilter {
        source: view.asked.read("source")?,
        limit: Some(limit),
        ..QuarantineFilter::default()
    })
}
