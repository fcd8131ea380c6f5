//! The audit list: who changed what, when, by which program, and why.

use crate::cmd::audit::{said, subject, who};
use crate::cmd::ids::Short;
use crate::model::AuditVerb;
use crate::store::AuditFilter;

use super::super::{parts::*, view::View};
use super::events::{ROWS, before, pager};

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/audit", "Audit");
    let verb: Option<AuditVerb> = view.asked.read("verb")?;
    let filter = AuditFilter { verb, since: None, limit: Some(ROWS), before: before(view)? };
    let page = view.ask(filter).await?;
    Ok(html! {
        (view.head(""))
        div.stack {
            section.card aria-label="Changes" {
                form.filters action="/audit" aria-label="Filter" {
                    (choice("verb", "Every change", view.asked.get("verb"), AuditVerb::ALL))
                    button.btn.small { (icon("search")) "Filter" }
                }
                div data-part="changes" {
                    @if page.rows.is_empty() { (empty("audit", "Nothing was changed.")) }
                    @else { div.scroll tabindex="0" role="region" aria-label="Changes" { table {
                        thead { tr { th { "Time" } th { "Who" } th { "Change" } th.opt { "Of" }
                            th.r.opt { "How many" } th { "Reason" } } }
                        tbody { @for row in &page.rows { tr {
                            td.num { (time(row.at, view.screen.now)) }
                            td { (shown(&who(row))) " by " (row.via) } td { (row.verb) }
                            td.opt { (shown(&subject(&row.subject, &Short::default()))) }
                            td.r.num.opt { (thousands(row.count)) } td.clip { (shown(&said(row))) }
                        } } }
                    } } }
                    (pager(view, &page, "change"))
                }
            }
            (shell(["audit", "audit --json"].map(|typed| view.app.command(typed))))
        }
    })
}
