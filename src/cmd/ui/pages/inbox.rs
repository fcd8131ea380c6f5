//! The inbox: held and dead jobs by their cause; an open cause job by job, with what may be done.

use crate::cmd::settle_advice::advice;
use crate::model::State;
use crate::store::JobRow;

use super::super::parts::*;
use super::super::view::View;
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
        html! {
            @let of = all.iter().filter(|cause| state.is_none_or(|state| cause.state() == state));
            @let is_current = asked.get("state") == state.map(State::as_str) && !is_open;
            a href=(link("/inbox", state.map(|state| ("state", state.as_str())))) aria-current=[is_current.then_some("page")] {
                (word) " " span.count { (thousands(of.map(|cause| cause.group.jobs).sum())) }
            }
        }
    };
    let review = |cause: &Cause| {
        html! { @if !is_open { a.btn.small href=(link("/inbox", cause.query())) { "Review" } } }
    };
    Ok(html! {
        (view.head(""))
        div.inbox[is_open] {
            section.card aria-label="Jobs that need a person" {
                div.filters data-part="tabs-of-inbox" {
                    nav.tabs aria-label="State" { (tab("All", None)) (tab("Held", Some(State::Held))) (tab("Dead", Some(State::Dead))) }
                    @if let Some(cause) = open {
                        a.chip href="/inbox" { span.hide { "Leave the group " } (cause.query()[1].1) ": " (shown(cause.query()[2].1)) (icon("x")) }
                    }
                }
                div data-part="causes" {
                    @if listed.is_empty() { (empty("succeeded", "Nothing waits for you here.")) }
                    ul.list { @for cause in &listed { (cause.item(view, &review(cause))) } }
                    @if let Some(page) = &rows { (table(view, &page.rows)) (pager(view, page, "job")) }
                }
            }
            @if let Some(cause) = open { (panel(cause)) }
        }
    })
}

/// The jobs of an open cause. The boxes belong to the form of the panel.
fn table(view: &View<'_>, rows: &[JobRow]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Jobs" { table data-rows {
            thead { tr {
                th { input type="checkbox" data-all form="chosen" aria-label="Choose all that are shown"; }
                th { "Type" } th.opt { "Event" } th.opt { "Attempts" } th.opt { "Last word" } th.r { "Received" }
            } }
            tbody { @for row in rows {
                @let id = row.event_id.as_str();
                tr {
                    td { input type="checkbox" name="job" form="chosen" value={(row.job) "." (row.attempt)} aria-label={(shown(&row.event_type)) " " (short(id))}; }
                    td.clip {
                        a.row href=(event_link(&row.source, id)) { (shown(&row.event_type)) }
                        span.sub { (short(id)) " · attempt " (row.attempt) }
                    }
                    td.opt.id { (short(id)) }
                    td.opt.muted { (row.attempt) }
                    td.opt.muted { @if let Some(detail) = &row.last_detail { (shown(detail)) } }
                    td.r.faint.num { (time(row.created_at, view.screen.now)) }
                }
            } }
        } }
    }
}

/// What may be done with the jobs of a cause.
fn panel(cause: &Cause) -> Markup {
    let [state, handler, reason, _] = cause.query();
    let (verbs, jobs) = (cause.query(), cause.count());
    let to =
        |what, one: Option<(&'static str, &'static str)>| link(what, verbs.into_iter().chain(one));
    html! {
        aside.card.panel aria-labelledby="panel" data-part="panel" {
            header { h2 #panel { (jobs) " of " (handler.1) } }
            p.pad { (sentence_case(advice(reason.1))) }
            footer {
                (change(&to("/change/replay", Some(("one", "1"))), "primary", "replay", "Replay one first, then decide"))
                (change(&to("/change/replay", None), "", "replay", format!("Replay {jobs}…")))
                (change(&to("/change/drop", None), "quiet danger", "dropped", format!("Drop {jobs}…")))
                form #chosen action="/change/replay" {
                    input type="hidden" name="state" value=(state.1);
                    button.btn.small data-key="replay" { (icon("replay")) "Replay the chosen…" }
                    button.btn.small.quiet.danger data-key="drop" formaction="/change/drop" { (icon("dropped")) "Drop the chosen…" }
                }
            }
        }
    }
}
