//! Events, newest first: filters in the address, pages by cursor, and the search for an id.

use crate::cli::Since;
use crate::cmd::events::{notes, type_of};
use crate::store::{EventFilter, EventRow, IdKind, IdMatch, IdQuery, Page, PageCursor};

use super::super::{app::App, parts::*, request::Request, view::View};

/// Rows on a page of a listing.
pub(super) const ROWS: usize = 50;

/// Helps with an id that no event and no job has.
pub(super) const IDS_ARE_KEPT: &str =
    "an event's id is kept for storage.keep_ids; what failed verification is in the quarantine";

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/events", "Events");
    let asked = view.asked;
    let since: Option<Since> = asked.read("since")?;
    let filter = EventFilter {
        source: asked.read("source")?,
        event_type: asked.get("type").map(str::to_owned),
        since: since.map(|since| since.seen_from(view.screen.now)),
        state: asked.read("state")?,
        handler: asked.read("handler")?,
        limit: Some(ROWS),
        before: before(view)?,
    };
    let page = view.ask(filter).await?;
    Ok(html! {
        (view.head(""))
        section.card.events aria-label="Events" {
            form.filters action="/events" aria-label="Filter" {
                @let sources = view.screen.sources.iter().map(|line| &line.source);
                @let handlers = view.config.handlers.iter().map(|own| &own.name);
                (choice("source", "Every source", asked.get("source"), sources))
                (choice("handler", "Every handler", asked.get("handler"), handlers))
                (choice("state", "Every state", asked.get("state"), State::ALL))
                input type="text" name="type" aria-label="Type" value=[asked.get("type")] placeholder="Type: invoice.*";
                input type="text" name="since" aria-label="Since" value=[asked.get("since")] placeholder="Since: 2h, 3d, a date";
                button.btn.small { (icon("search")) "Filter" }
                @if asked.target.contains('?') { a.btn.small.quiet href="/events" { "All events" } }
            }
            div data-part="rows" data-rows {
                @if page.rows.is_empty() { (empty("events", "No event is shown.")) }
                @else { table {
                    thead { tr { th.opt { "Received" } th.opt { "Source" } th { "Type" }
                        th { "Jobs" } th.opt { "Event" } th.opt { "Notes" } } }
                    tbody { @for event in &page.rows { (row(view, event)) } }
                } }
                (pager(view, &page, "event"))
            }
        }
    })
}

/// The cursor of a page of a listing. An older page does not change by itself.
pub(super) fn before(view: &mut View<'_>) -> Result<Option<PageCursor>, Failure> {
    let cursor = view.asked.get("before").map(serde_json::from_str);
    let wrong = |error| Exit::Usage.failure(format!("before: {error}"));
    let cursor = cursor.transpose().map_err(wrong)?;
    view.is_live &= cursor.is_none();
    Ok(cursor)
}

/// What a page of a listing has, how far it has looked, and the way to the next.
pub(super) fn pager<T>(view: &View<'_>, page: &Page<T>, noun: &str) -> Markup {
    html! { div.pager {
        span {
            (many(page.rows.len() as u64, noun)) " shown, newest first"
            @if let Some(back) = page.looked_back_to { "; looked back to " (said(back)) ", and there is more" }
        }
        span.end.btns {
            @let next = page.next.and_then(|next| serde_json::to_string(&next).ok());
            @let to = |before| view.asked.with("before", before);
            @if view.asked.get("before").is_some() { a.btn.small href=(to(None)) { "Newest" } }
            @if let Some(next) = &next { a.btn.small rel="next" href=(to(Some(next))) { "Older" } }
        }
    } }
}

/// The page of the event or job whose id begins with the text.
pub(super) async fn find(app: &App, asked: &Request) -> Result<String, Failure> {
    let query = IdQuery { kind: IdKind::Any, text: asked.need("id")?, source: None };
    let found = app.ask(query).await;
    match found.map_err(Failure::help_for(Exit::NotFound, IDS_ARE_KEPT))? {
        IdMatch::Event(event) => Ok(link("/event", [("id", event.as_str())])),
        IdMatch::Job(row) => {
            let to = event_link(&row.source, row.event_id.as_str());
            Ok(format!("{to}#{}", row.job))
        }
    }
}

fn row(view: &View<'_>, event: &EventRow) -> Markup {
    let id = event.event_id.as_str();
    let received = time(event.received_at, view.screen.now);
    html! { tr {
        td.num.faint.opt { (received) } td.opt { (source(&event.source)) }
        td.clip.type {
            a.row href=(event_link(&event.source, id)) { (shown(type_of(event))) }
            span.sub { (event.source) " · " (received) " · " (short(id)) }
        }
        td { span.jobs {
            @for one in &event.handlers { (state(one.state, one.handler.as_str())) }
            @if event.handlers.is_empty() { @for jobs in &event.jobs { (in_state(jobs)) } }
            @if event.jobs.is_empty() { span.faint.small { "no handler" } }
        } }
        td.id.opt { (short(id)) } td.opt.faint.small { (shown(&notes(event))) }
    } }
}
