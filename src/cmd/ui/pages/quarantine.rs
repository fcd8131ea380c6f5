//! The quarantine: deliveries that failed verification, by source and reason. What they claim is unproven.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::cmd::output::{size, thousands};
use crate::cmd::quarantine::left_out;
use crate::exit::Failure;
use crate::model::Name;
use crate::store::{QuarantineFilter, QuarantinedRow};

use super::super::parts::{change, empty, icon, shown, time};
use super::super::request::link;
use super::super::view::View;

/// Deliveries that are listed; the groups count all that the listing has.
const ROWS: usize = 100;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/quarantine", "Quarantine");
    let source: Option<Name> = view.asked.read("source")?;
    let filter = QuarantineFilter {
        source: source.clone(),
        reason: view.asked.get("reason").map(str::to_owned),
        limit: Some(ROWS),
        ..QuarantineFilter::default()
    };
    let kept = view.app.ask(filter).await?;
    let mut groups: BTreeMap<(&Name, &str), Vec<&QuarantinedRow>> = BTreeMap::new();
    for row in &kept.deliveries {
        groups.entry((&row.source, &row.reason)).or_default().push(row);
    }
    let view = &*view;
    let of_source = source.as_ref().map(|name| ("source", name.as_str()));
    Ok(html! {
        (view.frame.head(&html! {
            span.muted.small { (thousands(kept.matching)) " kept" ", " (size(kept.bytes)) }
            @if kept.matching > 0 {
                (change(&link("/change/accept", of_source), "primary", "shield", "Verify again…"))
                (change(&link("/change/forget", of_source), "quiet danger", "dropped", "Forget…"))
            }
        }))
        section.card aria-label="Failed deliveries" data-part="kept" {
            @if let Some(source) = &source {
                div.filters { a.chip.on href="/quarantine" { (source) (icon("x")) } }
            }
            @if kept.deliveries.is_empty() { (empty("ok", "No delivery that failed verification is kept.")) }
            @for ((source, reason), rows) in &groups { (group(view, source, reason, rows)) }
            @if kept.matching > kept.deliveries.len() as u64 {
                div.pager { span { "The newest " (kept.deliveries.len()) " of " (thousands(kept.matching)) } }
            }
            @for (source, reasons) in &kept.left_out { @for (reason, number) in reasons {
                div.pager { span { (thousands(*number)) " of " (source) " were not kept: " (left_out(*reason)) } }
            } }
        }
    })
}

fn group(view: &View<'_>, source: &Name, reason: &str, rows: &[&QuarantinedRow]) -> Markup {
    html! {
        section.group.open {
            header {
                span.check {}
                div {
                    div.what { (super::super::parts::source(source)) span.tag.bad { (shown(reason)) } span.count { (rows.len()) } }
                    @if let Some(row) = rows.first() { div.why { (shown(&row.detail)) } }
                }
                div.end.btns {}
            }
            div.scroll tabindex="0" role="region" aria-label=(format!("{source}, {reason}")) { table {
                thead { tr { th { "Received" } th.opt { "From" } th { "Claims to be (unproven)" } th.r { "Body" } } }
                tbody { @for row in rows { tr {
                    td.num { (time(row.received_at, view.screen.now)) }
                    td.opt.id { (row.address.as_deref().map(shown).unwrap_or_default()) }
                    td.clip.id { (row.unproven_event_id.as_deref().map(shown).unwrap_or_default()) }
                    td.r.num { (size(row.body_bytes)) @if !row.body_kept { " (not kept)" } }
                } } }
            } }
        }
    }
}
