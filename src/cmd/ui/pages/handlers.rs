//! Handlers, worst first: what each wants and runs, whether it can, and what waits.

use std::time::Duration;

use maud::{Markup, html};

use crate::cmd::output::{span, thousands};
use crate::config::{Action, Handler};
use crate::exit::Failure;
use crate::model::{Broken, Name, Outcome, State, Timestamp};
use crate::store::Backlog;

use super::super::parts::{age, banner, change, shown, state};
use super::super::request::link;
use super::super::view::View;

/// What is known of a handler.
struct Row<'a> {
    name: &'a Name,
    /// None where the configuration has it no more.
    own: Option<&'a Handler>,
    paused: Option<Timestamp>,
    broken: Option<&'a Broken>,
}

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/handlers", "Handlers");
    let view = &*view;
    let rows = rows(view);
    let paused = rows.iter().filter(|row| row.paused.is_some()).count();
    let about = format!(
        "{} configured · {paused} paused · {} cannot run",
        view.config.handlers.len(),
        view.screen.broken.len()
    );
    Ok(html! {
        (view.frame.head(&html! {
            span.muted.small { (about) }
            (change("/change/reload", "", "replay", "Reload configuration…"))
        }))
        div data-part="handlers" {
            @for broken in &view.screen.broken {
                (banner("bad", "plug", &html! {
                    b { (broken.handler) } " cannot run: " (shown(&broken.cause)) ", since " (age(broken.since, view.screen.now))
                    ". Its jobs wait and lose no attempts."
                }))
            }
            section.card aria-label="Handlers" { table.handlers {
                thead { tr { th { "Handler" } th.opt { "State" } th.opt { "Attempts" } th.opt { "When" } th { "Needs you" } th.r { span.hide { "Action" } } } }
                tbody { @for row in &rows { (line(view, row)) } }
            } }
        }
    })
}

/// Those that cannot run first, then those that are paused.
fn rows<'a>(view: &'a View<'_>) -> Vec<Row<'a>> {
    let screen = &view.screen;
    let mut names: Vec<&Name> = view.config.handlers.iter().map(|own| &own.name).collect();
    let stuck = screen.stuck.iter().map(|stuck| &stuck.handler);
    for name in stuck.chain(screen.paused.iter().map(|paused| &paused.handler)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |name| Row {
        name,
        own: view.config.handler(name),
        paused: screen
            .paused
            .iter()
            .find(|paused| paused.handler == *name)
            .map(|paused| paused.since),
        broken: screen.broken.iter().find(|broken| broken.handler == *name),
    };
    let mut rows: Vec<Row<'_>> = names.into_iter().map(row).collect();
    rows.sort_by_key(|row| (row.broken.is_none(), row.paused.is_none(), row.own.is_some()));
    rows
}

fn line(view: &View<'_>, row: &Row<'_>) -> Markup {
    let Row { name, own, paused, .. } = row;
    let jobs = |backlogs: &[Backlog]| {
        backlogs.iter().find(|one| one.handler == **name).map_or(0, |one| one.jobs)
    };
    let screen = &view.screen;
    let (ready, waiting, running) =
        (jobs(&screen.ready), jobs(&screen.waiting), jobs(&screen.running));
    let query = [("handler", name.as_str())];
    html! {
        tr id=(name) {
            td.clip {
                span.name { (name) @if let Some(own) = own { span.faint.small { (sources(own)) } } }
                @if let Some(own) = own {
                    span.sub2 { (own.patterns().collect::<Vec<_>>().join(", ")) }
                    span.sub2.opt { (action(own)) }
                } @else { span.sub2 { "The configuration has it no more." } }
                span.only-m.jobs { (status(row)) }
            }
            td.opt {
                (status(row))
                span.sub2.num {
                    @if let Some(own) = own { (running) " of " (own.concurrency) " running" }
                    @if ready + waiting > 0 { ", " (thousands(ready)) " ready, " (thousands(waiting)) " waiting" }
                }
                @if let Some(since) = paused { span.sub2 { "paused " (age(*since, screen.now)) } }
            }
            td.opt.num { (attempts(view, name)) }
            td.opt { @if let Some(condition) = own.and_then(Handler::condition) {
                @for table in &condition.tables {
                    span.sub2 { @for (nth, line) in table.iter().enumerate() { @if nth > 0 { " and " } code { (shown(&line.to_string())) } } }
                }
                (decided(view, name))
            } @else { span.faint { "every event" } } }
            td { span.jobs { @for stuck in screen.stuck.iter().filter(|stuck| stuck.handler == **name) {
                a href=(link("/inbox", [("state", stuck.state.as_str()), ("handler", name.as_str()), ("reason", &stuck.reason)])) {
                    (state(stuck.state, &format!("{} {}", stuck.jobs, stuck.state)))
                }
            } } }
            td.r {
                @if paused.is_some() { (change(&link("/change/resume", query), "", "play", "Resume…")) }
                @else { (change(&link("/change/pause", query), "quiet", "pause", "Pause…")) }
            }
        }
    }
}

/// What its attempts came to since the receiver's start.
fn attempts(view: &View<'_>, name: &Name) -> Markup {
    let Some(seen) = view.screen.handlers.get(name).filter(|seen| !seen.outcomes.is_empty()) else {
        return html! { span.faint { "none yet" } };
    };
    let succeeded = Outcome::Succeeded.as_str();
    let all: u64 = seen.outcomes.values().sum();
    let others = seen.outcomes.iter().filter(|(outcome, _)| *outcome != succeeded);
    let within = |millis: Option<u64>| match millis {
        None => "over an hour".to_owned(),
        Some(millis @ ..1_000) => format!("{millis} ms"),
        Some(millis) => span(Duration::from_millis(millis)),
    };
    html! {
        (thousands(seen.outcomes.get(succeeded).copied().unwrap_or(0))) " of " (thousands(all)) " succeeded"
        @for (outcome, number) in others { span.sub2 { (thousands(*number)) " " (outcome) } }
        span.sub2 { "half within " (within(seen.half_within)) ", 95 % within " (within(seen.most_within)) }
    }
}

/// How often its condition held since the receiver's start.
fn decided(view: &View<'_>, name: &Name) -> Markup {
    let decided = view.screen.handlers.get(name).map(|seen| &seen.decided);
    html! {
        @for (decision, number) in decided.into_iter().flatten() { span.sub2 { (decision) ": " (thousands(*number)) } }
    }
}

fn status(row: &Row<'_>) -> Markup {
    html! {
        @if row.broken.is_some() { span.tag.bad { "cannot run" } }
        @else if row.paused.is_some() { span.tag.warn { "paused" } }
        @else if row.own.is_none() { span.tag.warn { "gone" } }
        @else { (state(State::Succeeded, "active")) }
    }
}

fn sources(own: &Handler) -> String {
    own.sources.iter().map(|source| source.value.as_str()).collect::<Vec<_>>().join(", ")
}

fn action(own: &Handler) -> String {
    match &own.action {
        Action::Command(command) => format!("command {}", shown(&command.argv.value.join(" "))),
        Action::Forward(forward) => format!("forward {}", shown(&forward.target.to_string())),
    }
}
