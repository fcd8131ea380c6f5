//! The inbox: held and dead jobs by their cause; an open cause job by job, with what may be done.

use crate::cmd::settle_advice::advice;
use crate::store::{JobRow, Page};

use super::super::{parts::*, view::View};
use super::causes::{Cause, causes, filter};
use super::events::{before, pager};

/// Jobs of an open cause on a page.
const ROWS: usize = 100;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/inbox", "Inbox");
    let all = causes(view).await?;
    let asked = view.asked;
    let names = |name: &str, value: &str| asked.exactly(name).is_none_or(|meant| meant == value);
    let is_meant = |cause: &&Cause| cause.query().iter().all(|(name, value)| names(name, value));
    let listed: Vec<&Cause> = all.iter().filter(is_meant).collect();
    let is_open = listed.len() == 1 && asked.get("reason").is_some();
    let open = listed.first().filter(|_| is_open);
    let mut rows = None;
    if is_open {
        let mut filter = filter(view)?;
        (filter.limit, filter.before) = (Some(ROWS), before(view)?);
        rows = Some(view.ask(filter).await?);
    }
    let tab = |word, state: Option<State>| {
        let is_of = |cause: &&Cause| state.is_none_or(|state| cause.state() == state);
        let jobs = all.iter().filter(is_of).map(|cause| cause.group.jobs);
        let state = state.map(State::as_str);
        let current = (asked.get("state") == state && !is_open).then_some("page");
        html! { a href=(link("/inbox", state.map(|name| ("state", name)))) aria-current=[current] {
            (word) " " span.count { (thousands(jobs.sum())) }
        } }
    };
    Ok(html! {
        (view.head(""))
        div.inbox[is_open] {
            section.card aria-label="Jobs that need a person" {
                div.filters data-part="tabs-of-inbox" {
                    nav.tabs aria-label="State" { (tab("All", None))
                        (tab("Held", Some(State::Held))) (tab("Dead", Some(State::Dead))) }
                    @if let Some(cause) = open { a.chip href="/inbox" {
                        span.hide { "Leave the group " } (cause.query()[1].1) ": " (shown(cause.query()[2].1)) (icon("x"))
                    } }
                }
                div data-part="causes" {
                    @if listed.is_empty() { (empty("succeeded", "Nothing waits for you here.")) }
                    ul.list { @for cause in &listed { (cause.item(view, (!is_open).then_some("Review"))) } }
                    @if let Some(page) = &rows { (table(view, page)) (pager(view, page, "job")) }
                }
            }
            @if let Some(cause) = open { (panel(cause)) }
        }
    })
}

/// The jobs of an open cause. The boxes belong to the form of the panel.
fn table(view: &View<'_>, page: &Page<JobRow>) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label="Jobs" { table data-rows {
        thead { tr {
            th { input type="checkbox" data-all form="chosen" aria-label="Choose all that are shown"; }
            th { "Type" } th.opt { "Event" } th.opt { "Attempts" } th.opt { "Last word" } th.r { "Received" }
        } }
        tbody { @for row in &page.rows { tr {
            @let (id, event_type) = (row.event_id.as_str(), shown(&row.event_type));
            td { input type="checkbox" name="job" form="chosen" value={(row.job) "." (row.attempt)} aria-label={(event_type) " " (short(id))}; }
            td.clip {
                a.row href=(event_link(&row.source, id)) { (event_type) }
                span.sub { (short(id)) " · attempt " (row.attempt) }
            }
            td.opt.id { (short(id)) } td.opt.muted { (row.attempt) }
            td.opt.muted { @if let Some(detail) = &row.last_detail { (shown(detail)) } }
            td.r.faint.num { (time(row.created_at, view.screen.now)) }
        } } }
    } } }
}

/// What may be done with the jobs of a cause.
fn panel(cause: &Cause) -> Markup {
    let [(_, state), (_, handler), (_, reason), _] = cause.query();
    let (jobs, drop) = (cause.count(), link("/change/drop", cause.query()));
    let replay = |one: Option<(_, _)>| link("/change/replay", cause.query().into_iter().chain(one));
    html! { aside.card.panel aria-labelledby="panel" data-part="panel" {
        header { h2 #panel { (jobs) " of " (handler) } }
        p.pad { (sentence_case(advice(reason))) }
        footer {
            (change(&replay(Some(("one", "1"))), "primary", "replay", "Replay one first, then decide"))
            (change(&replay(None), "", "replay", format!("Replay {jobs}…")))
            (change(&drop, "quiet danger", "dropped", format!("Drop {jobs}…")))
            form #chosen action="/change/replay" {
                input type="hidden" name="state" value=(state);
                button.btn.small data-key="replay" { (icon("replay")) "Replay the chosen…" }
                button.btn.small.quiet.danger data-key="drop" formaction="/change/drop" {
                    (icon("dropped")) "Drop the chosen…"
                }
            }
        }
    } }
}
