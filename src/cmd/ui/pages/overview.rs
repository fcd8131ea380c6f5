//! The overview: is it serving, what needs a person, what runs, what came.

use crate::admin::GetTraffic;
use crate::cmd::status::{SourceLine, Verdict, facts};
use crate::runner::message::Stream;
use crate::store::JobFilter;

use super::super::{parts::*, view::View};
use super::causes::{Cause, causes, worse};
use super::event::{lines, printed};

/// Running attempts that are shown, and the last lines of each.
const RUNNING: usize = 5;
const LINES: usize = 3;

/// Facts of `status` that other cards of this page show.
const ELSEWHERE: &str = "status broken held dead note source node clock next";

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/", "Overview");
    let causes = causes(view).await?;
    let running = running(view).await?;
    let recent = view.ask(GetTraffic {}).await?;
    let all: u64 = view.screen.running.iter().map(|backlog| backlog.jobs).sum();
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
                @if !view.screen.nodes.is_empty() { (card("nodes", "Nodes", "", nodes(view))) }
                (card("machine", "Machine", "", html! { dl.kv.pad {
                    @for (fact, _, lines) in &facts(&view.screen) { @if !ELSEWHERE.contains(fact) {
                        dt { (fact) } dd.num { @for line in lines { div { (shown(line)) } } }
                    } }
                } }))
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
    let sum = |count: fn(&SourceLine) -> u64| thousands(screen.sources.iter().map(count).sum());
    html! { section.card.verdict aria-label="Status" data-part="verdict" {
        div class={"say " (class)} { (icon(glyph)) div {
            strong { (word) }
            @if !why.is_empty() { div.muted { (sentence_case(&why)) } }
            @if screen.verdict != Verdict::NotServing { span.muted {
                @match screen.sources.iter().filter_map(|line| line.last_good_at).max() {
                    Some(at) => { "Last good delivery " (age(at, screen.now)) " ago. " }
                    None => { "No delivery yet. " code { (view.app.command("send SOURCE TYPE")) } " sends a test. " }
                }
                "Nothing that waits below is lost."
            } }
        } }
        dl.facts {
            div { dt { "accepted" } dd { (sum(|line| line.accepted)) } }
            div { dt { "repeated" } dd { (sum(|line| line.duplicates)) } }
            div { dt { "refused" } dd { (sum(|line| line.refused)) } }
        }
    } }
}

fn needs(view: &View<'_>, causes: &[Cause]) -> Markup {
    let of = |state, open| {
        let causes = causes.iter().filter(|cause| cause.state() == state);
        html! { @for cause in causes { (cause.item(view, Some(open))) } }
    };
    let mut parts = vec![
        ("Getting worse", worse(view)),
        ("Waiting for your decision", of(State::Held, "Decide")),
        ("Given up", of(State::Dead, "Review")),
    ];
    parts.retain(|(_, items)| !items.0.is_empty());
    html! {
        @if parts.is_empty() { (empty("succeeded", "Nothing waits for you.")) }
        @for (title, items) in &parts { h3 { (title) } ul.list { (items) } }
    }
}

async fn running(view: &View<'_>) -> Result<Markup, Failure> {
    let filter = JobFilter { state: Some(State::Running), limit: Some(RUNNING), ..<_>::default() };
    let mut parts = Vec::new();
    for row in view.ask(filter).await?.rows {
        let lines = lines(&printed(view, &row, Stream::Stdout).await);
        let to = event_link(&row.source, row.event_id.as_str());
        parts.push(html! { div.pad {
            div.line {
                span.what { a href=(to) { (row.handler) } }
                span.small { (shown(&row.event_type)) " · attempt " (row.attempt) }
                span.when { (age(row.stopped_at.unwrap_or(row.created_at), view.screen.now)) }
            }
            @if !lines.is_empty() { pre.term tabindex="0" aria-label={"Last output of " (row.handler)} {
                @for line in &lines[lines.len().saturating_sub(LINES)..] { span { (line) } }
            } }
        } });
    }
    let none = html! { @if parts.is_empty() { p.pad.muted { "Nothing runs now." } } };
    Ok(html! { @for part in &parts { (part) } (none) })
}

fn sources(view: &View<'_>) -> Markup {
    html! { table {
        thead { tr { th { "Source" } th { "Last" } th.r { "Age" } th.r.opt { "Accepted" } } }
        tbody { @for line in &view.screen.sources { tr {
            @let refused = line.last_failure.as_ref().filter(|_| line.refusing().is_some());
            @let at = refused.map(|failed| failed.at).or(line.last_good_at);
            td { a.row href={"/sources#" (line.source)} { (source(&line.source)) } }
            td {
                @if refused.is_some() { span.tag.bad { "refused" } }
                @else { span.faint { (if at.is_some() { "accepted" } else { "–" }) } }
            }
            td.r.faint { @if let Some(at) = at { (age(at, view.screen.now)) } }
            td.r.num.opt { (thousands(line.accepted)) }
        } } }
    } }
}

/// The machines on one database.
fn nodes(view: &View<'_>) -> Markup {
    html! { table {
        thead { tr { th { "Node" } th { "State" } th.r { "Running" } th.r { "Seen" } th.opt { "Version" } } }
        tbody { @for node in &view.screen.nodes { tr {
            td { b { (shown(&node.name)) } }
            @let state = node.condition();
            td { span class=(if state == "connected" { "faint" } else { "tag bad" }) { (state) } }
            td.r.num { (thousands(node.running)) }
            td.r.faint { (age(node.seen_at, view.screen.now)) }
            td.opt.faint { (shown(&node.version)) }
        } } }
    } }
}
