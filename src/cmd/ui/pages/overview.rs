//! The overview: is it serving, what needs a person, what runs, what came.

use crate::admin::{GetTraffic, ReadOutput};
use crate::cmd::status::{SourceLine, Verdict, facts};
use crate::model::State;
use crate::runner::message::Stream;
use crate::store::{JobFilter, JobRow};

use super::super::parts::*;
use super::super::view::View;
use super::causes::{Cause, causes, worse};
use super::event::lines;

/// Running attempts that are shown, and the last lines of each.
const RUNNING: usize = 5;
const LINES: usize = 3;

/// Facts of `status` that other cards of this page show.
const ELSEWHERE: &[&str] = &["status", "broken", "held", "dead", "note", "source", "clock", "next"];

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/", "Overview");
    let causes = causes(view).await?;
    let running = running(view).await?;
    let recent = view.app.ask(GetTraffic {}).await?;
    let slots = recent.sources.values().flatten();
    let counts = slots.map(|slot| (slot.at, [slot.accepted, slot.duplicates, slot.refused]));
    let deliveries =
        bars(&recent, "Deliveries of the last day: accepted, repeated, refused", counts);
    let all: u64 = view.screen.running.iter().map(|backlog| backlog.jobs).sum();
    let machine = facts(&view.screen);
    let machine = machine.iter().filter(|(about, ..)| !ELSEWHERE.contains(about));
    let machine = html! {
        dl.kv.pad { @for (about, _, lines) in machine {
            dt { (about) } dd.num { @for line in lines { div { (shown(line)) } } }
        } }
    };
    Ok(html! {
        (view.head(""))
        (verdict(view))
        div.cols {
            (card("needs", "Needs a person", "worst first", needs(view, &causes)))
            div.stack {
                (card("running", "Running", many(all, "attempt"), running))
                (card("deliveries", "Deliveries", "the last 24 hours, a bar for 15 minutes", html! {
                    div.pad { (deliveries) p.legend { span.ok { "accepted" } span.warn { "repeated" } span.bad { "refused" } } }
                }))
                (card("sources", "Sources", "", sources(view)))
                (card("machine", "Machine", "", machine))
            }
        }
    })
}

fn verdict(view: &View<'_>) -> Markup {
    let screen = &view.screen;
    let (class, glyph, word) = match screen.verdict {
        Verdict::Well if screen.notes.is_empty() => ("well", "succeeded", "All is well."),
        Verdict::Well => ("well", "succeeded", "Serving."),
        Verdict::NeedsAPerson => ("", "held", "Serving. Something needs a person."),
        Verdict::NotServing => ("bad", "dead", "Not serving."),
    };
    let why: Vec<&str> = screen.why.iter().chain(&screen.notes).map(String::as_str).collect();
    let sum = |of: fn(&SourceLine) -> u64| screen.sources.iter().map(of).sum();
    let facts = [
        ("accepted", sum(|line| line.accepted)),
        ("repeated", sum(|line| line.duplicates)),
        ("refused", sum(|line| line.refused)),
    ];
    html! {
        section.card.verdict aria-label="Status" data-part="verdict" {
            div class={"say " (class)} {
                (icon(glyph))
                div {
                    strong { (word) }
                    @if !why.is_empty() { div.muted { (sentence_case(&why.join("; "))) } }
                    @if screen.verdict != Verdict::NotServing { span.muted {
                        @match screen.sources.iter().filter_map(|line| line.last_good_at).max() {
                            Some(at) => { "Last good delivery " (age(at, screen.now)) " ago. " }
                            None => { "No delivery yet. " code { (view.app.command("send SOURCE TYPE")) } " sends a test. " }
                        }
                        "Nothing that waits below is lost."
                    } }
                }
            }
            dl.facts { @for (word, number) in facts { div { dt { (word) } dd { (thousands(number)) } } } }
        }
    }
}

fn needs(view: &View<'_>, causes: &[Cause]) -> Markup {
    let worse = worse(view);
    let of = |state, word: &str| -> Vec<Markup> {
        let of_state = causes.iter().filter(|cause| cause.state() == state);
        let item = |cause: &Cause| {
            let to = link("/inbox", cause.query());
            cause.item(view, &html! { a.btn.small href=(to) { (word) } })
        };
        of_state.map(item).collect()
    };
    let parts = [
        ("Getting worse", worse),
        ("Waiting for your decision", of(State::Held, "Decide")),
        ("Given up", of(State::Dead, "Review")),
    ];
    html! {
        @if parts.iter().all(|(_, items)| items.is_empty()) { (empty("succeeded", "Nothing waits for you.")) }
        @for (title, items) in &parts { @if !items.is_empty() {
            h3 { (title) }
            ul.list { @for item in items { (item) } }
        } }
    }
}

async fn running(view: &View<'_>) -> Result<Markup, Failure> {
    let state = Some(State::Running);
    let filter = JobFilter { state, limit: Some(RUNNING), ..JobFilter::default() };
    let mut shown = Vec::new();
    for row in view.app.ask(filter).await?.rows {
        shown.push((last_lines(view, &row).await, row));
    }
    Ok(html! {
        @for (lines, row) in &shown {
            div.pad {
                div.line {
                    span.what { a href=(event_link(&row.source, row.event_id.as_str())) { (row.handler) } }
                    span.small { (super::super::parts::shown(&row.event_type)) " · attempt " (row.attempt) }
                    span.when { (age(row.stopped_at.unwrap_or(row.created_at), view.screen.now)) }
                }
                @if !lines.is_empty() {
                    pre.term tabindex="0" aria-label={"Last output of " (row.handler)} { @for line in lines { span { (line) } } }
                }
            }
        }
        @if shown.is_empty() { p.pad.muted { "Nothing runs now." } }
    })
}

/// The last lines that a running attempt has printed; none where that cannot be asked.
async fn last_lines(view: &View<'_>, row: &JobRow) -> Vec<String> {
    let peek = ReadOutput { job: row.job, attempt: row.attempt, stream: Stream::Stdout };
    let output = view.app.ask(peek).await.ok().and_then(|answer| answer.output).unwrap_or_default();
    let mut all = lines(if output.tail.is_empty() { &output.head } else { &output.tail });
    all.split_off(all.len().saturating_sub(LINES))
}

fn sources(view: &View<'_>) -> Markup {
    html! { table {
        thead { tr { th { "Source" } th { "Last" } th.r { "Age" } th.r.opt { "Accepted" } } }
        tbody { @for line in &view.screen.sources {
            @let refused = line.last_failure.as_ref().filter(|_| line.refusing().is_some());
            @let at = refused.map(|failed| failed.at).or(line.last_good_at);
            tr {
                td { a.row href={"/sources#" (line.source)} { (source(&line.source)) } }
                td {
                    @if refused.is_some() { span.tag.bad { "refused" } }
                    @else { span.faint { (if at.is_some() { "accepted" } else { "–" }) } }
                }
                td.r.faint { @if let Some(at) = at { (age(at, view.screen.now)) } }
                td.r.num.opt { (thousands(line.accepted)) }
            }
        } }
    } }
}
