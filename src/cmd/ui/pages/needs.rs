//! What needs a person, worst first: each thing in a sentence, with the decision one click away.

use maud::{Markup, html};

use crate::cmd::output::thousands;
use crate::exit::Failure;
use crate::model::{DeadReason, HeldReason, State};
use crate::store::{JobFilter, JobRow, StoppedJobs};

use super::super::parts::{age, empty, icon, many, shown};
use super::super::request::link;
use super::super::view::View;

/// Groups whose newest job is looked at for its last word; more would make the page slow.
const LOOKED_AT: usize = 12;

/// The jobs of a handler that stand still for one reason.
pub(super) struct Group {
    pub(super) jobs: StoppedJobs,
    /// The newest of them.
    pub(super) newest: Option<JobRow>,
}

impl Group {
    /// The inbox with this group open.
    pub(super) fn link(&self) -> String {
        let StoppedJobs { handler, state, reason, .. } = &self.jobs;
        let filter = [("state", state.as_str()), ("handler", handler.as_str()), ("reason", reason)];
        link("/inbox", filter)
    }

    pub(super) fn glyph(&self) -> &'static str {
        match (self.jobs.state, self.jobs.reason.parse()) {
            (State::Dead, _) => "dead",
            (_, Ok(HeldReason::UnknownOutcome | HeldReason::Restored)) => "unknown",
            (_, Ok(HeldReason::SuspectedReplay | HeldReason::IdReused)) => "twin",
            _ => "held",
        }
    }

    fn what(&self) -> Markup {
        let StoppedJobs { handler, reason, jobs, .. } = &self.jobs;
        let jobs = many(*jobs, "job");
        if let Ok(held) = reason.parse::<HeldReason>() {
            return match held {
                HeldReason::UnknownOutcome => {
                    html! { b { (handler) } ": did " (jobs) " do their work?" }
                }
                HeldReason::SuspectedReplay | HeldReason::IdReused => {
                    html! { b { (handler) } ": " (jobs) " may be forged" }
                }
                HeldReason::HandlerGone => {
                    html! { b { (handler) } " is no longer configured; " (jobs) }
                }
                HeldReason::Restored => html! { b { (handler) } ": " (jobs) " came from a backup" },
                HeldReason::Cancelled => html! { b { (handler) } ": " (jobs) " cancelled" },
                HeldReason::ConditionFailed => {
                    html! { b { (handler) } ": the condition of " (jobs) " could not be decided" }
                }
                HeldReason::ValueRefused => {
                    html! { b { (handler) } ": " (jobs) " with a value that it does not take" }
                }
            };
        }
        match reason.parse() {
            Ok(DeadReason::Exhausted) => html! { b { (handler) } ": " (jobs) " used all attempts" },
            _ => html! { b { (handler) } ": " (jobs) ", " (shown(reason)) },
        }
    }

    /// What the newest job said last.
    pub(super) fn said(&self) -> Markup {
        let row = self.newest.as_ref();
        let detail = row.and_then(|row| row.detail.as_ref().or(row.last_detail.as_ref()));
        let event_type = row.map(|row| shown(&row.event_type));
        html! {
            @if let Some(detail) = detail { q { (shown(detail)) } }
            @if let Some(event_type) = event_type {
                @if detail.is_some() { ", for " } @else { "For " }
                (event_type) "."
            }
        }
    }
}

/// The groups of jobs that stand still, held ones first.
pub(super) async fn groups(view: &View<'_>) -> Result<Vec<Group>, Failure> {
    let mut groups = Vec::new();
    for (nth, jobs) in view.screen.stuck.iter().enumerate() {
        let filter = JobFilter {
            state: Some(jobs.state),
            handler: Some(jobs.handler.clone()),
            reason: Some(jobs.reason.clone()),
            limit: Some(1),
            ..JobFilter::default()
        };
        let newest = match nth < LOOKED_AT {
            true => view.app.ask(filter).await?.rows.into_iter().next(),
            false => None,
        };
        groups.push(Group { jobs: jobs.clone(), newest });
    }
    Ok(groups)
}

/// The card of the overview.
pub(super) async fn card(view: &View<'_>) -> Result<Markup, Failure> {
    let groups = groups(view).await?;
    let (held, dead): (Vec<_>, Vec<_>) =
        groups.iter().partition(|group| group.jobs.state == State::Held);
    let worse = worse(view);
    Ok(html! {
        section.card.needs aria-labelledby="needs" data-part="needs" {
            header { h2 #needs { "Needs a person" } span.end.small.faint { "worst first" } }
            @if worse.is_empty() && groups.is_empty() {
                (empty("ok", "Nothing waits for you."))
            }
            @if !worse.is_empty() {
                h3 { "Getting worse" }
                ul { @for need in &worse { (need) } }
            }
            @if !held.is_empty() {
                h3 { "Waiting for your decision" }
                ul { @for group in held { (line(view, group, "warn", "Decide")) } }
            }
            @if !dead.is_empty() {
                h3 { "Given up" }
                ul { @for group in dead { (line(view, group, "bad", "Review")) } }
            }
        }
    })
}

fn line(view: &View<'_>, group: &Group, class: &str, word: &str) -> Markup {
    let since = age(group.jobs.oldest_at, view.screen.now);
    need(class, group.glyph(), &group.what(), &since, &group.said(), &group.link(), word)
}

fn need(
    class: &str,
    glyph: &str,
    what: &Markup,
    since: &str,
    why: &Markup,
    to: &str,
    word: &str,
) -> Markup {
    html! {
        li class=(class) {
            (icon(glyph))
            div.body {
                div.what { span { (what) } span.age { (since) } }
                div.why { (why) }
            }
            div.do { a.btn.small href=(to) { (word) } }
        }
    }
}

/// Handlers and runners that cannot run, and sources whose deliveries are refused.
fn worse(view: &View<'_>) -> Vec<Markup> {
    let now = view.screen.now;
    let mut all = Vec::new();
    for broken in &view.screen.broken {
        let why = html! {
            q { (shown(&broken.cause)) } " since " (age(broken.since, now))
            ". Its jobs wait and lose no attempts; it tries again by itself."
        };
        let what = html! { b { (broken.handler) } " cannot run" };
        let to = format!("/handlers#{}", broken.handler);
        all.push(need("bad", "plug", &what, &age(broken.since, now), &why, &to, "Open"));
    }
    for runner in view.screen.runners.iter().flatten().filter(|runner| !runner.connected) {
        let why = runner.why.as_deref().unwrap_or("not connected yet");
        let what = html! { "Runner " b { (runner.name) } " is not connected" };
        all.push(need(
            "bad",
            "plug",
            &what,
            "",
            &html! { q { (shown(why)) } },
            "/handlers",
            "Open",
        ));
    }
    for line in &view.screen.sources {
        let (Some(sentence), Some(failed)) = (line.refusing(), &line.last_failure) else {
            continue;
        };
        let what = html! { "Deliveries of " b { (line.source) } " are refused" };
        let why = html! {
            (shown(&sentence)) ". "
            @if line.quarantined > 0 { (thousands(line.quarantined)) " kept: fix the secret, reload, accept them." }
        };
        let to = link("/quarantine", [("source", line.source.as_str())]);
        all.push(need("bad", "quarantine", &what, &age(failed.at, now), &why, &to, "Review"));
    }
    all
}
