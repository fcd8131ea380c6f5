//! Events, newest first: filters in the address, pages by cursor, and the search for an id.

use maud::{Markup, html};

use crate::cli::Since;
use crate::cmd::events::type_of;
use crate::exit::{Exit, Failure};
use crate::model::{EventId, State};
use crate::store::{EventFilter, EventRow, IdKind, IdMatch, IdQuery, PageCursor};

use super::super::parts::{
    empty, event_link, icon, many, notes, short, shown, source, state, time,
};
use super::super::view::{Content, View};

/// Events on a page.
const ROWS: usize = 50;

pub(super) async fn show(view: &mut View<'_>) -> Result<Content, Failure> {
    view.at("/events", "Events");
    if let Some(id) = view.asked.get("id") {
        return find(view, id).await;
    }
    let asked = view.asked;
    let since: Option<Since> = asked.read("since")?;
    let filter = EventFilter {
        source: asked.read("source")?,
        event_type: asked.get("type").map(str::to_owned),
        since: since.map(|since| since.seen_from(view.screen.now)),
        state: asked.read::<State>("state")?,
        handler: None,
        limit: Some(ROWS),
        before: cursor(view)?,
    };
    let is_first = filter.before.is_none();
    if !is_first {
        // An older page does not change by itself.
        view.frame.live = None;
    }
    let page = view.app.ask(filter).await?;
    let next = page.next.as_ref().map(|next| serde_json::to_string(next).unwrap_or_default());
    Ok(html! {
        (view.frame.head(&html! {}))
        section.card.events aria-label="Events" {
            (filters(view))
            div data-part="rows" data-rows {
                @if page.rows.is_empty() {
                    @match (&next, page.looked_back_to) {
                        (Some(_), Some(back)) => (empty("search", &format!("Nothing found back to {back}. There is more to look at."))),
                        _ => (empty("events", "No event is stored that fits.")),
                    }
                } @else {
                    table {
                        thead { tr {
                            th.opt { "Received" } th.opt { "Source" } th { "Type" } th { "Jobs" } th.opt { "Event" } th.opt { "Notes" }
                        } }
                        tbody { @for event in &page.rows { (row(view, event)) } }
                    }
                }
                div.pager {
                    span {
                        (many(page.rows.len() as u64, "event")) " shown"
                        @if let Some(back) = page.looked_back_to { ", looked back to " (time(back, view.screen.now)) }
                    }
                    span.end.btns {
                        @if !is_first { a.btn.small href=(asked.with("before", None)) { "Newest" } }
                        @if let Some(next) = &next { a.btn.small rel="next" href=(asked.with("before", Some(next))) { "Older" } }
                    }
                }
            }
        }
    }
    .into())
}

/// The place of a page in a listing.
pub(super) fn cursor(view: &View<'_>) -> Result<Option<PageCursor>, Failure> {
    let read = |text: &str| {
        serde_json::from_str(text).map_err(|error| Exit::Usage.failure(format!("before: {error}")))
    };
    view.asked.get("before").map(read).transpose()
}

/// Leads to the event or job that begins with the text.
async fn find(view: &mut View<'_>, text: &str) -> Result<Content, Failure> {
    view.frame.live = None;
    let query = IdQuery { kind: IdKind::Any, text: text.to_owned(), source: None };
    match view.app.ask(query).await {
        Ok(IdMatch::Job(row)) => {
            let to = event_link(&row.source, row.event_id.as_str());
            Ok(Content::To(format!("{to}#{}", row.job)))
        }
        Ok(IdMatch::Event(event)) => Ok(Content::To(of_any_source(&event))),
        Err(failure) if failure.exit != Exit::NotFound => Err(failure),
        Err(_) => {
            let kept = view.frame.kept;
            Ok(html! {
                (view.frame.head(&html! {}))
                section.card aria-label="Search" {
                    (empty("search", &format!("No event and no job begins with {}.", shown(text))))
                    @if kept > 0 {
                        p.empty { "What failed verification is not stored as an event: " a.link href="/quarantine" { "look in the quarantine" } "." }
                    }
                }
            }
            .into())
        }
    }
}

fn of_any_source(event: &EventId) -> String {
    super::super::request::link("/event", [("id", event.as_str())])
}

fn filters(view: &View<'_>) -> Markup {
    let asked = view.asked;
    let (by_source, by_state) = (asked.get("source"), asked.get("state"));
    let by_type = asked.get("type").unwrap_or_default();
    let since = asked.get("since").unwrap_or_default();
    html! {
        form.filters action="/events" aria-label="Filter" {
            label.hide for="fs" { "Source" }
            select #fs name="source" {
                option value="" { "Every source" }
                @for line in &view.screen.sources {
                    option value=(line.source) selected[by_source == Some(line.source.as_str())] { (line.source) }
                }
            }
            label.hide for="ft" { "State of a job" }
            select #ft name="state" {
                option value="" { "Every state" }
                @for state in State::ALL {
                    option value=(state) selected[by_state == Some(state.as_str())] { (state) }
                }
            }
            label.hide for="fy" { "Type" }
            input #fy type="text" name="type" value=(by_type) placeholder="Type: invoice.*";
            label.hide for="fd" { "Since" }
            input #fd type="text" name="since" value=(since) placeholder="Since: 2h, 3d, a date";
            button.btn.small { (icon("search")) "Filter" }
            @if asked.target.contains('?') { a.btn.small.quiet href="/events" { "All events" } }
        }
    }
}

fn row(view: &View<'_>, event: &EventRow) -> Markup {
    let id = event.event_id.as_str();
    html! {
        tr {
            td.num.faint.opt { (time(event.received_at, view.screen.now)) }
            td.opt { (source(&event.source)) }
            td.clip.type {
                a.row href=(event_link(&event.source, id)) { (shown(type_of(event))) }
                span.sub { (event.source) " · " (time(event.received_at, view.screen.now)) " · " (short(id)) }
            }
            td { span.jobs {
                @for (of, number) in &event.jobs { (state(*of, &format!("{number} {of}"))) }
                @if event.jobs.is_empty() { span.faint.small { "no handler" } }
            } }
            td.id.opt { (short(id)) }
            td.opt.faint.small { (notes(event)) }
        }
    }
}
