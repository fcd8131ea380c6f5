//! Handlers, worst first: what each wants and runs, whether it can, and what waits.

use std::time::Duration;

use crate::admin::GetTraffic;
use crate::config::{Action, Handler};
use crate::limits::COUNTED_READY;
use crate::model::Outcome;
use crate::store::Backlog;
use crate::traffic::{HandlerSeen, RecentTraffic};

use super::super::{parts::*, view::View};

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/handlers", "Handlers");
    let recent = view.ask(GetTraffic {}).await?;
    let screen = &view.screen;
    let mut names: Vec<&Name> = view.config.handlers.iter().map(|own| &own.name).collect();
    names.extend(screen.stuck.iter().map(|stuck| &stuck.handler));
    names.extend(screen.paused.iter().map(|paused| &paused.handler));
    names.sort_by_key(|name| (status(view, name).0, *name));
    names.dedup();
    Ok(html! {
        (view.head(html! {
            span.small {
                (view.config.handlers.len()) " configured · " (screen.paused.len()) " paused · "
                (screen.broken.len()) " cannot run"
            }
            (change("/change/reload", "", "replay", "Reload configuration…"))
        }))
        div data-part="handlers" {
            @for broken in &screen.broken {
                (banner("bad", "plug", html! {
                    b { (broken.handler) } " cannot run: " (shown(&broken.cause)) ", since "
                    (age(broken.since, screen.now)) ". Its jobs wait and lose no attempts."
                }))
            }
            section.card aria-label="Handlers" { table.handlers {
                thead { tr { th { "Handler" } th { "State" } th.opt { "Last 24 hours" }
                    th.opt { "Attempts since the start" } th.opt { "Condition" } th { "Needs you" }
                    th.r { span.hide { "Action" } } } }
                tbody { @for name in names { (row(view, name, &recent)) } }
            } }
        }
    })
}

/// Its place in the list, and what it is said to be.
fn status(view: &View<'_>, name: &Name) -> (u8, Markup) {
    let screen = &view.screen;
    if screen.broken.iter().any(|broken| broken.handler == *name) {
        (0, html! { span.tag.bad { "cannot run" } })
    } else if screen.paused.iter().any(|paused| paused.handler == *name) {
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
        let of_it = backlogs.iter().filter(|one| one.handler == *name);
        of_it.map(|one| one.jobs).sum::<u64>()
    };
    let waits = jobs(&screen.ready) + jobs(&screen.waiting);
    let has_more = jobs(&screen.ready) >= COUNTED_READY.unsigned_abs();
    let paused = screen.paused.iter().find(|paused| paused.handler == *name);
    let seen = screen.handlers.get(name);
    let slots = recent.handlers.get(name).into_iter().flatten();
    let slots = slots.map(|slot| (slot.at, [slot.succeeded, slot.other, slot.failed]));
    let of = |what: &str| link(&format!("/change/{what}"), [("handler", name.as_str())]);
    html! { tr id=(name) {
        td.clip { b { (name) } @if let Some(own) = own {
            @let sources: Vec<_> = own.sources.iter().map(|source| source.value.as_str()).collect();
            " " span.small { (sources.join(", ")) }
            div.small { (own.patterns().collect::<Vec<_>>().join(", ")) }
            div.small { @match &own.action {
                Action::Command(command) => { "command " (shown(&command.argv.value.join(" "))) }
                Action::Forward(forward) => { "forward " (shown(&forward.target.to_string())) }
            } }
        } }
        td { (status(view, name).1) div.small.num.opt {
            @if let Some(own) = own { (jobs(&screen.running)) " of " (own.concurrency) " running" }
            @if waits > 0 { ", " (thousands(waits)) @if has_more { "+" } " waiting" }
            @if let Some(paused) = paused { ", since " (age(paused.since, screen.now)) }
        } }
        td.opt { (bars(recent, "Attempts of the last day: succeeded, unknown or cancelled, failed", slots)) }
        td.opt.num { @match seen.filter(|seen| !seen.outcomes.is_empty()) {
            Some(seen) => { (attempts(seen)) }
            None => { span.small { "none" } }
        } }
        td.opt.small { @match own.and_then(Handler::condition) {
            Some(condition) => {
                @for all in &condition.tables { div { @for (nth, line) in all.iter().enumerate() {
                    @if nth > 0 { " and " } code { (shown(&line.to_string())) }
                } } }
                @for (decision, number) in seen.iter().flat_map(|seen| &seen.decided) {
                    div { (decision) ": " (thousands(*number)) }
                }
            }
            None => { "every event" }
        } }
        td { span.jobs { @for stuck in screen.stuck.iter().filter(|stuck| stuck.handler == *name) {
            @let (state_word, reason) = (stuck.state.as_str(), stuck.reason.as_str());
            @let query = [("state", state_word), ("handler", name.as_str()), ("reason", reason)];
            a href=(link("/inbox", query)) { (in_state((&stuck.state, &stuck.jobs))) }
        } } }
        td.r {
            @if paused.is_some() { (change(&of("resume"), "", "play", "Resume…")) }
            @else { (change(&of("pause"), "quiet", "pause", "Pause…")) }
        }
    } }
}

fn attempts(seen: &HandlerSeen) -> Markup {
    let succeeded = Outcome::Succeeded.as_str();
    let within = |millis: Option<u64>| match millis {
        None => "over an hour".to_owned(),
        Some(millis @ ..1_000) => format!("{millis} ms"),
        Some(millis) => span(Duration::from_millis(millis)),
    };
    html! {
        (thousands(seen.outcomes.get(succeeded).copied().unwrap_or(0))) " of "
        (thousands(seen.outcomes.values().sum())) " succeeded"
        div.small { @for (outcome, number) in &seen.outcomes {
            @if outcome != succeeded { (thousands(*number)) " " (outcome) " " }
        } }
        div.small { "half within " (within(seen.half_within)) ", 95 % within " (within(seen.most_within)) }
    }
}
