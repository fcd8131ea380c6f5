//! The overview: is it serving, what needs a person, what runs, what came.

use maud::{Markup, html};

use crate::admin::ReadOutput;
use crate::cmd::output::{size, span, thousands};
use crate::cmd::status::Verdict;
use crate::exit::Failure;
use crate::model::State;
use crate::runner::message::Stream;
use crate::store::{Backlog, JobFilter, JobRow, OutputExcerpt};

use super::super::parts::{age, event_link, icon, many, sentence_case, shown, source, time};
use super::super::view::View;
use super::needs;

/// Running attempts that are shown.
const RUNNING: usize = 5;

/// Of each one so many lines.
const LINES: usize = 3;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/", "Overview");
    let needs = needs::card(view).await?;
    let running = running(view).await?;
    Ok(html! {
        (view.frame.head(&html! {}))
        (verdict(view))
        div.cols {
            (needs)
            div.stack { (running) (sources(view)) (machine(view)) }
        }
    })
}

fn verdict(view: &View<'_>) -> Markup {
    let screen = &view.screen;
    let (class, glyph, word) = match screen.verdict {
        Verdict::Well if screen.notes.is_empty() => ("say well", "ok", "All is well."),
        Verdict::Well => ("say well", "ok", "Serving."),
        Verdict::NeedsAPerson => ("say", "held", "Serving. Something needs a person."),
        Verdict::NotServing => ("say bad", "dead", "Not serving."),
    };
    let why: Vec<&str> = screen.why.iter().chain(&screen.notes).map(String::as_str).collect();
    let last = screen.sources.iter().filter_map(|line| line.last_good_at).max();
    let sum = |of: fn(&crate::cmd::status::SourceLine) -> u64| -> u64 {
        screen.sources.iter().map(of).sum()
    };
    let facts = [
        ("accepted", sum(|line| line.accepted)),
        ("repeated", sum(|line| line.duplicates)),
        ("refused", sum(|line| line.refused)),
    ];
    html! {
        section.card.verdict aria-label="Status" data-part="verdict" {
            div class=(class) {
                (icon(glyph))
                div {
                    strong { (word) }
                    @if !why.is_empty() { div.muted { (sentence_case(&shown(&why.join("; ")))) "." } }
                    @if screen.verdict != Verdict::NotServing {
                        span.muted {
                            @match last {
                                Some(at) => { "Last good delivery " (age(at, screen.now)) " ago. " }
                                None => { "No delivery yet. " code { (view.app.command("send SOURCE TYPE")) } " sends a test. " }
                            }
                            "Nothing that waits below is lost."
                        }
                    }
                }
            }
            dl.facts { @for (word, number) in facts { div { dt { (word) } dd { (thousands(number)) } } } }
        }
    }
}

async fn running(view: &View<'_>) -> Result<Markup, Failure> {
    let all: u64 = view.screen.running.iter().map(|backlog| backlog.jobs).sum();
    let filter =
        JobFilter { state: Some(State::Running), limit: Some(RUNNING), ..JobFilter::default() };
    let rows = if all > 0 { view.app.ask(filter).await?.rows } else { Vec::new() };
    let mut shown = Vec::new();
    for row in rows {
        shown.push((last_lines(view, &row).await, row));
    }
    Ok(html! {
        section.card aria-labelledby="running" data-part="running" {
            header { h2 #running { "Running" } span.end.small.faint { (many(all, "attempt")) } }
            @for (lines, row) in &shown {
                div.pad {
                    div.line {
                        span.what { a href=(event_link(&row.source, row.event_id.as_str())) { (row.handler) } }
                        span.small.muted { (super::super::parts::shown(&row.event_type)) " · attempt " (row.attempt) }
                        span.when { (age(row.stopped_at.unwrap_or(row.created_at), view.screen.now)) }
                    }
                    @if !lines.is_empty() {
                        pre.term.wrap tabindex="0" aria-label=(format!("Last output of {}", row.handler)) {
                            @for line in lines { span { (line) } }
                        }
                    }
                }
            }
            @if shown.is_empty() { p.pad.muted.small { "Nothing runs now." } }
        }
    })
}

/// The last lines that a running attempt has printed; none where that cannot be asked.
async fn last_lines(view: &View<'_>, row: &JobRow) -> Vec<String> {
    let peek = ReadOutput { job: row.job, attempt: row.attempt, stream: Stream::Stdout };
    let output = view.app.ask(peek).await.ok().and_then(|answer| answer.output);
    output.map(|output| tail(&output, LINES)).unwrap_or_default()
}

/// The last lines of an output.
fn tail(output: &OutputExcerpt, lines: usize) -> Vec<String> {
    let part = if output.tail.is_empty() { &output.head } else { &output.tail };
    let text = String::from_utf8_lossy(part);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| shown(line)).collect()
}

fn sources(view: &View<'_>) -> Markup {
    html! {
        section.card aria-labelledby="sources" data-part="sources" {
            header { h2 #sources { "Sources" } }
            table {
                thead { tr { th { "Source" } th { "Last" } th.r { "Age" } th.r.opt { "Accepted" } } }
                tbody {
                    @for line in &view.screen.sources {
                        @let refused = line.refusing().is_some();
                        @let at = line.last_failure.as_ref().filter(|_| refused).map(|failed| failed.at).or(line.last_good_at);
                        tr {
                            td { a.row href=(format!("/sources#{}", line.source)) { (source(&line.source)) } }
                            td {
                                @if refused { span.tag.bad { "refused" } }
                                @else { span.faint { (if at.is_some() { "accepted" } else { "–" }) } }
                            }
                            td.r.faint { @if let Some(at) = at { (age(at, view.screen.now)) } }
                            td.r.num.opt { (thousands(line.accepted)) }
                        }
                    }
                }
            }
        }
    }
}

fn machine(view: &View<'_>) -> Markup {
    let screen = &view.screen;
    let sum = |backlogs: &[Backlog]| thousands(backlogs.iter().map(|one| one.jobs).sum());
    html! {
        section.card aria-labelledby="machine" data-part="machine" {
            header { h2 #machine { "Machine" } }
            dl.kv.pad {
                dt { "Queue" }
                dd.num { (sum(&screen.running)) " running · " (sum(&screen.ready)) " ready · " (sum(&screen.waiting)) " waiting" }
                @for paused in &screen.paused {
                    dt { "Paused" }
                    dd { a.link href=(format!("/handlers#{}", paused.handler)) { (paused.handler) } " since " (time(paused.since, screen.now)) }
                }
                @for runner in screen.runners.iter().flatten() {
                    dt { "Runner" }
                    dd {
                        (runner.name) ": "
                        @match (runner.connected, runner.room) {
                            (true, Some(room)) => { "connected, " (room.saturating_sub(runner.running)) " places free" }
                            (true, None) => { "being stopped" }
                            (false, _) => { "not connected" }
                        }
                    }
                }
                @if let Some(disk) = &screen.disk {
                    dt { "Disk" }
                    dd.num { (disk.free_bytes.map_or("an unknown amount".to_owned(), size)) " free; store " (size(disk.database_bytes)) }
                }
                @if let Some(oldest) = &screen.oldest_ready {
                    dt { "Oldest ready" }
                    dd { (span(screen.now.since(oldest.since))) ", of " (oldest.handler) }
                }
                @for unknown in &screen.unknown_paths {
                    dt { "Unknown path" }
                    dd {
                        code { (shown(&unknown.path)) } " " (many(unknown.requests, "time"))
                        @if let Some(near) = &unknown.nearest { ": is it " code { (near) } "?" }
                    }
                }
            }
        }
    }
}
