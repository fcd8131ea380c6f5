//! The quarantine: deliveries that failed verification, by source and reason. What they claim is unproven.

use std::collections::BTreeMap;

use crate::cmd::quarantine::left_out;
use crate::store::{QuarantineFilter, QuarantinedRow};

use super::super::parts::*;
use super::super::view::View;

/// Deliveries that are listed.
const ROWS: usize = 100;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/quarantine", "Quarantine");
    let chosen = view.asked.get("source");
    let filter = QuarantineFilter {
        source: view.asked.read("source")?,
        limit: Some(ROWS),
        ..QuarantineFilter::default()
    };
    let kept = view.ask(filter).await?;
    let mut groups: BTreeMap<_, Vec<&QuarantinedRow>> = BTreeMap::new();
    for row in &kept.deliveries {
        groups.entry((&row.source, &row.reason)).or_default().push(row);
    }
    let of_source = chosen.map(|name| ("source", name));
    Ok(html! {
        (view.head(html! {
            span.small { (thousands(kept.matching)) " kept" ", " (size(kept.bytes)) }
            @if kept.matching > 0 {
                (change(&link("/change/accept", of_source), "primary", "shield", "Verify again…"))
                (change(&link("/change/forget", of_source), "quiet danger", "dropped", "Forget…"))
            }
        }))
        section.card aria-label="Failed deliveries" data-part="kept" {
            @if let Some(name) = chosen { div.filters { a.chip href="/quarantine" { (shown(name)) (icon("x")) } } }
            @if kept.deliveries.is_empty() { (empty("succeeded", "No delivery that failed verification is kept.")) }
            @for ((name, reason), rows) in &groups {
                ul.list { (item("bad", "quarantine", html! { (source(name)) " " (shown(reason)) }, html! { span.count { (rows.len()) } }, shown(&rows[0].detail))) }
                div.scroll tabindex="0" role="region" aria-label={(name) ", " (shown(reason))} { table {
                    thead { tr { th { "Received" } th.opt { "From" } th { "Claims to be (unproven)" } th.r { "Body" } } }
                    tbody { @for row in rows { tr {
                        td.num { (time(row.received_at, view.screen.now)) }
                        td.opt.id { (row.address.as_deref().map(shown).unwrap_or_default()) }
                        td.clip.id { (row.unproven_event_id.as_deref().map(shown).unwrap_or_default()) }
                        td.r.num { (size(row.body_bytes)) @if !row.body_kept { " (not kept)" } }
                    } } }
                } }
            }
            @if kept.matching > kept.deliveries.len() as u64 {
                div.pager { "The newest " (kept.deliveries.len()) " of " (thousands(kept.matching)) }
            }
            @for (name, reasons) in &kept.left_out { @for (reason, number) in reasons {
                div.pager { (thousands(*number)) " of " (name) " were not kept: " (left_out(*reason)) }
            } }
        }
    })
}
