//! The audit list: who changed what, when, by which program, and why.

use maud::{Markup, html};

use crate::cmd::audit::{said, subject, who};
use crate::cmd::ids::Short;
use crate::cmd::output::thousands;
use crate::exit::Failure;
use crate::model::AuditVerb;
use crate::store::AuditFilter;

use super::super::parts::{empty, icon, many, shell, shown, time};
use super::super::view::View;
use super::events::cursor;

/// Changes on a page.
const ROWS: usize = 50;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/audit", "Audit");
    let verb: Option<AuditVerb> = view.asked.read("verb")?;
    let before = cursor(view)?;
    let filter = AuditFilter { verb, since: None, limit: Some(ROWS), before };
    let page = view.app.ask(filter).await?;
    let next = page.next.as_ref().map(|next| serde_json::to_string(next).unwrap_or_default());
    let view = &*view;
    Ok(html! {
        (view.frame.head(&html! {}))
        div.stack {
            section.card aria-label="Changes" {
                form.filters action="/audit" aria-label="Filter" {
                    label.hide for="fv" { "Change" }
                    select #fv name="verb" {
                        option value="" { "Every change" }
                        @for known in AuditVerb::ALL {
                            option value=(known) selected[verb == Some(*known)] { (known) }
                        }
                    }
                    button.btn.small { (icon("search")) "Filter" }
                }
                div data-part="changes" {
                    @if page.rows.is_empty() { (empty("audit", "Nothing was changed.")) }
                    @else { div.scroll tabindex="0" role="region" aria-label="Changes" { table {
                        thead { tr { th { "Time" } th { "Who" } th { "Change" } th.opt { "Of" } th.r.opt { "How many" } th { "Reason" } } }
                        tbody { @for row in &page.rows { tr {
                            td.num { (time(row.at, view.screen.now)) }
                            td { (shown(&who(row))) span.sub { "by " (row.via) } }
                            td { (row.verb) }
                            td.opt { (shown(&subject(&row.subject, &Short::default()))) }
                            td.r.num.opt { (thousands(row.count)) }
                            td.clip { (shown(&said(row))) }
                        } } }
                    } } }
                    div.pager {
                        span { (many(page.rows.len() as u64, "change")) " shown, newest first" }
                        @if let Some(next) = &next { span.end { a.btn.small href=(view.asked.with("before", Some(next))) { "Older" } } }
                    }
                }
            }
            (shell(&[view.app.command("audit"), view.app.command("audit --json")]))
        }
    })
}
