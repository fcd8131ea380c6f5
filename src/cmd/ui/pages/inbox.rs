//! The inbox: held and dead jobs by handler and reason; an open group job by job, with what may be done.

use maud::{Markup, html};

use crate::cmd::settle_advice::advice;
use crate::exit::Failure;
use crate::model::{Name, State};
use crate::store::{JobFilter, JobRow};

use super::super::parts::{
    age, change, empty, event_link, icon, many, sentence_case, short, shown, state, time,
};
use super::super::request::link;
use super::super::view::View;
use super::needs::{Group, groups};

/// Jobs of an open group on a page.
const ROWS: usize = 100;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/inbox", "Inbox");
    let all = groups(view).await?;
    let open = Open::read(view)?;
    let listed: Vec<&Group> = all
        .iter()
        .filter(|group| {
            view.asked.get("state").is_none_or(|state| state == group.jobs.state.as_str())
        })
        .filter(|group| open.as_ref().is_none_or(|open| open.is(group)))
        .collect();
    let count = |state: State| -> u64 {
        all.iter().filter(|group| group.jobs.state == state).map(|group| group.jobs.jobs).sum()
    };
    let tabs = [
        ("All", None, count(State::Held) + count(State::Dead)),
        ("Held", Some(State::Held), count(State::Held)),
        ("Dead", Some(State::Dead), count(State::Dead)),
    ];
    let rows = match &open {
        Some(open) => Some(view.app.ask(open.filter(view)?).await?),
        None => None,
    };
    let chosen = view.asked.get("state");
    Ok(html! {
        (view.frame.head(&html! {}))
        div.inbox[open.is_some()] {
            section.card aria-label="Jobs that need a person" {
                div.filters data-part="tabs-of-inbox" {
                    nav.tabs aria-label="State" {
                        @for (word, state, jobs) in tabs {
                            @let to = link("/inbox", state.map(|state| ("state", state.as_str())));
                            a href=(to) aria-current=[(chosen == state.map(State::as_str) && open.is_none()).then_some("page")] {
                                (word) " " span.count { (jobs) }
                            }
                        }
                    }
                    @if let Some(open) = &open {
                        a.chip.on href="/inbox" { span.hide { "Leave the group " } (open.handler) ": " (shown(&open.reason)) (icon("x")) }
                    }
                }
                div data-part="groups" {
                    @if listed.is_empty() {
                        (empty("ok", "Nothing waits for you here."))
                    }
                    @for group in &listed { (header(view, group, open.is_some())) }
                    @if let Some(page) = &rows {
                        (table(view, &page.rows))
                        div.pager {
                            span { (many(page.rows.len() as u64, "job")) " shown, newest first" }
                            @if let Some(next) = &page.next {
                                @let next = serde_json::to_string(next).unwrap_or_default();
                                span.end { a.btn.small href=(view.asked.with("before", Some(&next))) { "Older" } }
                            }
                        }
                    } @else {
                        div.pager { span { (many(listed.iter().map(|group| group.jobs.jobs).sum(), "job")) " in " (many(listed.len() as u64, "group")) } }
                    }
                }
            }
            @if let (Some(open), Some(group)) = (&open, listed.first()) { (panel(open, group)) }
        }
    })
}

/// The group that is looked into.
struct Open {
    state: State,
    handler: Name,
    reason: String,
}

impl Open {
    fn read(view: &View<'_>) -> Result<Option<Self>, Failure> {
        let asked = view.asked;
        let (Some(handler), Some(reason)) = (asked.read("handler")?, asked.get("reason")) else {
            return Ok(None);
        };
        Ok(Some(Open { state: asked.need("state")?, handler, reason: reason.to_owned() }))
    }

    fn is(&self, group: &Group) -> bool {
        let jobs = &group.jobs;
        (jobs.state, &jobs.handler, &jobs.reason) == (self.state, &self.handler, &self.reason)
    }

    fn filter(&self, view: &View<'_>) -> Result<JobFilter, Failure> {
        Ok(JobFilter {
            state: Some(self.state),
            handler: Some(self.handler.clone()),
            reason: Some(self.reason.clone()),
            limit: Some(ROWS),
            before: super::events::cursor(view)?,
            ..JobFilter::default()
        })
    }

    /// The change of all of them.
    fn change(&self, what: &str, one: bool) -> String {
        let query = [
            ("state", self.state.as_str()),
            ("handler", self.handler.as_str()),
            ("reason", &self.reason),
        ];
        link(&format!("/change/{what}"), query.into_iter().chain(one.then_some(("one", "1"))))
    }
}

fn header(view: &View<'_>, group: &Group, is_open: bool) -> Markup {
    let jobs = &group.jobs;
    html! {
        section.group[true].open[is_open] {
            header {
                span.check {}
                div {
                    div.what {
                        (state(jobs.state, jobs.state.as_str())) (jobs.handler)
                        span.muted { (shown(&jobs.reason)) } " " span.count { (jobs.jobs) }
                    }
                    div.why { (group.said()) " The oldest came " (age(jobs.oldest_at, view.screen.now)) " ago." }
                }
                div.end.btns { @if !is_open { a.btn.small href=(group.link()) { "Review" } } }
            }
        }
    }
}

/// The jobs of an open group. The boxes belong to the form of the panel.
fn table(view: &View<'_>, rows: &[JobRow]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Jobs" { table data-rows {
            thead { tr {
                th { span.check { input type="checkbox" data-all form="chosen" aria-label="Choose all that are shown"; } }
                th { "Type" } th.opt { "Event" } th.opt { "Attempts" } th.opt { "Last word" } th.r { "Received" }
            } }
            tbody { @for row in rows {
                @let id = row.event_id.as_str();
                tr {
                    td { span.check {
                        input type="checkbox" name="job" form="chosen" value=(format!("{}.{}", row.job, row.attempt))
                            aria-label=(format!("{} {}", shown(&row.event_type), short(id)));
                    } }
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

/// What may be done with the group.
fn panel(open: &Open, group: &Group) -> Markup {
    let jobs = group.jobs.jobs;
    html! {
        aside.card.panel aria-labelledby="panel" data-part="panel" {
            header { h2 #panel { (many(jobs, "job")) " of " (open.handler) } }
            div.pad { p { (sentence_case(advice(&open.reason))) "." } }
            footer {
                (change(&open.change("replay", true), "primary", "replay", "Replay one first, then decide"))
                (change(&open.change("replay", false), "", "replay", &format!("Replay all {jobs}…")))
                (change(&open.change("drop", false), "quiet danger", "dropped", &format!("Drop all {jobs}…")))
                form #chosen action="/change/replay" {
                    input type="hidden" name="state" value=(open.state);
                    button.btn.small data-key="replay" { (icon("replay")) "Replay the chosen…" }
                    button.btn.small.quiet.danger data-key="drop" formaction="/change/drop" { (icon("dropped")) "Drop the chosen…" }
                }
            }
        }
    }
}
