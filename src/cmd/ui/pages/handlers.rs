//! Handlers, worst first: what each wants and runs, whether it can, and what waits.

use std::time::Duration;

use crate::admin::GetTraffic;
use crate::config::{Action, Handler};
use crate::limits::COUNTED_READY;
use crate::model::{Name, Outcome, State};
use crate::store::Backlog;
use crate::traffic::{HandlerSeen, RecentTraffic};

use super::super::parts::*;
use super::super::view::View;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/handlers", "Handlers");
    let recent = view.ask(GetTraffic {}).await?;
    let screen = &view.screen;
    let mut names: Vec<&Name> = view.config.handlers.iter().map(|own| &own.name).collect();
    names.extend(screen.stuck.iter().map(|stuck| &stuck.handler));
    names.extend(screen.paused.iter().map(|paused| &paused.handler));
    names.sort_by_key(|name| (status(view, name).0, *name));
    names.dedup();
    let about = format!(
        "{} configured · {} paused · {} cannot run",
        view.config.handlers.len(),
        screen.paused.len(),
        screen.broken.len()
    );
    Ok(html! {
        (view.head(html! {
            span.small { (about) }
            (change("/change/reload", "", "replay", "Reload configuration…"))
        }))
        div data-part="handlers" {
            @for broken in &screen.broken {
                (banner("bad", "plug", html! {
                    b { (broken.handler) } " cannot run: " (shown(&broken.cause)) ", since " (age(broken.since, screen.now))
                    ". Its jobs wait and lose no attempts."
                }))
            }
            section.card aria-label="Handlers" { table.handlers {
                thead { tr { th { "Handler" } th { "State" } th.opt { "Last 24 hours" } th.opt { "Attempts since the start" } th.opt { "Condition" } th { "Needs you" } th.r { span.hide { "Action" } } } }
                tbody { @for name in names { (row(view, name, &recent)) } }
            } }
        }
    })
}

/// Its place in the list, and what it is said to be.
fn status(view: &View<'_>, name: &Name) -> (u8, Markup) {
    let screen = &view.screen;
    let is_paused = screen.paused.iter().any(|paused| paused.handler == *name);
    if screen.broken.iter().any(|broken| broken.handler == *name) {
        (0, html! { span.tag.bad { "cannot run" } })
    } else if is_paused {
        (1, html! { span.tag.warn { "paused" } })
    } else if view.config.handler(name).is_none() {
        (2, html! { span.tag.warn { "not configured" } })
    } else {
        (3, state(State::Succeeded, "active"))
    }
}

fn row(view: &View<'_>, name: &Name, recent: &RecentTraffic) -> Markup {
    let screen = &view.screen;
    let own = view.config.handler(name);
    let jobs = |backlogs: &[Backlog]| {
        backlogs.iter().find(|one| one.handler == *name).map_or(0, |one| one.jobs)
    };
    let waits = jobs(&screen.ready) + jobs(&screen.waiting);
    let paused = screen.paused.iter().find(|paused| paused.handler == *name);
    let seen = screen.handlers.get(name);
    let slots = recent.handlers.get(name).into_iter().flatten();
    let slots = slots.map(|slot| (slot.at, [slot.succeeded, slot.other, slot.failed]));
    let of = |what: &str| link(&format!("/change/{what}"), [("handler", name.as_str())]);
    html! {
        tr id=(name) {
            td.clip {
                b { (name) }
                @if let Some(own) = own {
                    " " span.small { (own.sources.iter().map(|source| source.value.as_str()).collect::<Vec<_>>().join(", ")) }
                    div.small { (own.patterns().collect::<Vec<_>>().join(", ")) }
                    div.small { (action(own)) }
                }
            }
            td {
                (status(view, name).1)
                div.small.num.opt {
                    @if let Some(own) = own { (jobs(&screen.running)) " of " (own.concurrency) " running" }
                    @if waits > 0 { ", " (thousands(waits)) @if jobs(&screen.ready) >= COUNTED_READY.unsigned_abs() { "+" } " waiting" }
                    @if let Some(paused) = paused { ", since " (age(paused.since, screen.now)) }
                }
            }
            td.opt { (bars(recent, "Attempts of the last day: succeeded, unknown or cancelled, failed", slots)) }
            td.opt.num { @match seen { Some(seen) if !seen.outcomes.is_empty() => { (attempts(seen)) } _ => { span.small { "none" } } } }
            td.opt.small { @match own.and_then(Handler::condition) {
                Some(condition) => {
                    @for table in &condition.tables { div { @for (nth, line) in table.iter().enumerate() { @if nth > 0 { " and " } code { (shown(&line.to_string())) } } } }
                    @for (decision, number) in seen.iter().flat_map(|seen| &seen.decided) { div { (decision) ": " (thousands(*number)) } }
                }
                None => { "every event" }
            } }
            td { span.jobs { @for stuck in screen.stuck.iter().filter(|stuck| stuck.handler == *name) {
                @let query = [("state", stuck.state.as_str()), ("handler", name.as_str()), ("reason", &stuck.reason)];
                a href=(link("/inbox", query)) { (state(stuck.state, format!("{} {}", thousands(stuck.jobs), stuck.state))) }
            } } }
            td.r {
                @if paused.is_some() { (change(&of("resume"), "", "play", "Resume…")) }
                @else { (change(&of("pause"), "quiet", "pause", "Pause…")) }
            }
        }
    }
}

fn attempts(seen: &HandlerSeen) -> Markup {
    let succeeded = Outcome::Succeeded.as_str();
    let others = seen.outcomes.iter().filter(|(outcome, _)| *outcome != succeeded);
    let within = |millis: Option<u64>| match millis {
        None => "over an hour".to_owned(),
        Some(millis @ ..1_000) => format!("{millis} ms"),
        Some(millis) => span(Duration::from_millis(millis)),
    };
    html! {
        (thousands(seen.outcomes.get(succeeded).copied().unwrap_or(0))) " of " (thousands(seen.outcomes.values().sum())) " succeeded"
        div.small { @for (outcome, number) in others { (thousands(*number)) " " (outcome) " " } }
        div.small { "half within " (within(seen.half_within)) ", 95 % within " (within(seen.most_within)) }
    }
}

fn action(own: &Handler) -> String {
    match &own.action {
        Action::Command(command) => format!("command {}", shown(&command.argv.value.join(" "))),
        Action::Forward(forward) => format!("forward {}", shown(&forward.target.to_string())),
    }
}
