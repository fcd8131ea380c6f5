//! The overview: is it serving, what needs a person, what runs, what came.

use crate::admin::{GetTraffic, ReadOutput};
use crate::cmd::status::{Verdict, facts};
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
const ELSEWHERE: &str = "status broken held dead note source clock next";

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/", "Overview");
    let causes = causes(view).await?;
    let running = running(view).await?;
    let recent = view.ask(GetTraffic {}).await?;
    let all: u64 = view.screen.running.iter().map(|backlog| backlog.jobs).sum();
    let machine = html! {
        dl.kv.pad { @for (about, _, lines) in &facts(&view.screen) { @if !ELSEWHERE.contains(about) {
            dt { (about) } dd.num { @for line in lines { div { (shown(line)) } } }
        } } }
    };
    let deliveries = html! { div.pad {
        @let slots = recent.sources.values().flatten();
        @let counts = slots.map(|slot| (slot.at, [slot.accepted, slot.duplicates, slot.refused]));
        (bars(&recent, "Deliveries of the last day: accepted, repeated, refused", counts))
        p.legend { span.ok { "accepted" } span.warn { "repeated" } span.bad { "refused" } }
    } };
    Ok(html! {
        (view.head(""))
        (verdict(view))
        div.cols {
            (card("needs", "Needs a person", "worst first", needs(view, &causes)))
            div.stack {
                (card("running", "Running", many(all, "attempt"), running))
                (card("deliveries", "Deliveries", "24 hours, a bar for 15 minutes", deliveries))
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
    let why = [&screen.why[..], &screen.notes].concat().join("; ");
    html! {
        section.card.verdict aria-label="Status" data-part="verdict" {
            div class={"say " (class)} {
                (icon(glyph))
                div {
                    strong { (word) }
                    @if !why.is_empty() { div.muted { (sentence_case(&why)) } }
                    @if screen.verdict != Verdict::NotServing { span.muted {
                        @match screen.sources.iter().filter_map(|line| line.last_good_at).max() {
                            Some(at) => { "Last good delivery " (age(at, screen.now)) " ago. " }
                            None => { "No delivery yet. " code { (view.app.command("send SOURCE TYPE")) } " sends a test. " }
                        }
                        "Nothing that waits below is lost."
                    } }
                }
            }
            dl.facts {
                @let sources = || screen.sources.iter();
                div { dt { "accepted" } dd { (thousands(sources().map(|line| line.accepted).sum())) } }
                div { dt { "repeated" } dd { (thousands(sources().map(|line| line.duplicates).sum())) } }
                div { dt { "refused" } dd { (thousands(sources().map(|line| line.refused).sum())) } }
            }
        }
    }
}

fn needs(view: &View<'_>, causes: &[Cause]) -> Markup {
    let of = |state, word| {
        html! { @for cause in causes.iter().filter(|cause| cause.state() == state) {
            (cause.item(view, &html! { a.btn.small href=(link("/inbox", cause.query())) { (word) } }))
        } }
    };
    let parts = [
        ("Getting worse", worse(view)),
        ("Waiting for your decision", of(State::Held, "Decide")),
        ("Given up", of(State::Dead, "Review")),
    ];
    html! {
        @if parts.iter().all(|(_, items)| items.0.is_empty()) { (empty("succeeded", "Nothing waits for you.")) }
        @for (title, items) in &parts { @if !items.0.is_empty() { h3 { (title) } ul.list { (items) } } }
    }
}

async fn running(view: &View<'_>) -> Result<Markup, Failure> {
    let (state, limit) = (Some(State::Running), Some(RUNNING));
    let filter = JobFilter { state, limit, ..<_>::default() };
    let mut parts = Vec::new();
    for row in view.ask(filter).await?.rows {
        let lines = last_lines(view, &row).await;
        parts.push(html! { div.pad {
            div.line {
                span.what { a href=(event_link(&row.source, row.event_id.as_str())) { (row.handler) } }
                span.small { (shown(&row.event_type)) " · attempt " (row.attempt) }
                span.when { (age(row.stopped_at.unwrap_or(row.created_at), view.screen.now)) }
            }
            @if !lines.is_empty() {
                pre.term tabindex="0" aria-label={"Last output of " (row.handler)} { @for line in lines { span { (line) } } }
            }
        } });
    }
    Ok(
        html! { @for part in &parts { (part) } @if parts.is_empty() { p.pad.muted { "Nothing runs now." } } },
    )
}

/// The last lines that a running attempt has printed; none where that cannot be asked.
async fn last_lines(view: &View<'_>, row: &JobRow) -> Vec<String> {
    if !view.app.may_see_payloads() {
        return Vec::new();
    }
    let (job, attempt, stream) = (row.job, row.attempt, Stream::Stdout);
    let answer = view.ask(ReadOutput { job, attempt, stream }).await;
    let output = answer.ok().and_then(|answer| answer.output);
    let output = output.unwrap_or_default();
    let mut all = lines(&output.head);
    all.extend(lines(&output.tail));
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
