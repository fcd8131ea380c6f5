//! Jobs that stand still by their cause, and what else needs a person: each in a sentence, worst first.

use crate::model::{DeadReason, HeldReason, State};
use crate::store::{JobFilter, JobRow, StoppedJobs};

use super::super::parts::*;
use super::super::view::View;

/// Causes whose newest job is looked at for its last word; more would make the page slow.
const LOOKED_AT: usize = 12;

/// The jobs of a handler that stand still for one reason.
pub(super) struct Cause {
    pub(super) jobs: StoppedJobs,
    newest: Option<JobRow>,
}

impl Cause {
    /// What filters its jobs: in the address of the inbox and of changes.
    pub(super) fn query(&self) -> [(&str, &str); 3] {
        let StoppedJobs { handler, state, reason, .. } = &self.jobs;
        [("state", state.as_str()), ("handler", handler.as_str()), ("reason", reason)]
    }

    /// An item of a list.
    pub(super) fn item(&self, view: &View<'_>, right: &Markup) -> Markup {
        let reason = &self.jobs.reason;
        let (glyph, text) = match reason.parse() {
            Ok(HeldReason::UnknownOutcome) => ("unknown", "is the work of {} done?"),
            Ok(HeldReason::SuspectedReplay | HeldReason::IdReused) => ("twin", "{} may be forged"),
            Ok(HeldReason::HandlerGone) => ("held", "not configured any more; {}"),
            Ok(HeldReason::Restored) => ("unknown", "{} came from a backup"),
            Ok(HeldReason::Cancelled) => ("held", "{} cancelled"),
            Ok(HeldReason::ConditionFailed) => ("held", "the condition of {} cannot be decided"),
            Ok(HeldReason::ValueRefused) => ("held", "{} with a value that it does not take"),
            Err(_) if *reason == DeadReason::Exhausted.as_str() => ("dead", "{} used all attempts"),
            Err(_) => ("dead", "{} dead"),
        };
        let is_named = glyph != "dead" || text != "{} dead";
        let class = if self.jobs.state == State::Dead { "bad" } else { "warn" };
        let what = text.replace("{}", &many(self.jobs.jobs, "job"));
        let row = self.newest.as_ref();
        let detail = row.and_then(|row| row.detail.as_ref().or(row.last_detail.as_ref()));
        let what =
            html! { b { (self.jobs.handler) } ": " (what) @if !is_named { ", " (shown(reason)) } };
        let right = html! { span.when { (age(self.jobs.oldest_at, view.screen.now)) } (right) };
        let why = html! {
            @if let Some(detail) = detail { q { (shown(detail)) } " " }
            @if let Some(row) = row { "The newest is of " (shown(&row.event_type)) "." }
        };
        item(class, glyph, what, right, why)
    }
}

/// Held ones first.
pub(super) async fn causes(view: &View<'_>) -> Result<Vec<Cause>, Failure> {
    let mut causes = Vec::new();
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
        causes.push(Cause { jobs: jobs.clone(), newest });
    }
    Ok(causes)
}

/// Handlers and runners that cannot run, and sources whose deliveries are refused.
pub(super) fn worse(view: &View<'_>) -> Vec<Markup> {
    let screen = &view.screen;
    let since = |at| html! { span.when { (age(at, screen.now)) } };
    let open = |to: &str| html! { a.btn.small href=(to) { "Open" } };
    let broken = screen.broken.iter().map(|broken| {
        let what = html! { b { (broken.handler) } " cannot run" };
        let why = html! { q { (shown(&broken.cause)) } " Its jobs wait and lose no attempts; it tries again by itself." };
        let right = html! { (since(broken.since)) (open(&format!("/handlers#{}", broken.handler))) };
        item("bad", "plug", what, right, why)
    });
    let away = screen.runners.iter().flatten().filter(|runner| !runner.connected).map(|runner| {
        let what = html! { "Runner " b { (runner.name) } " is not connected" };
        let why = html! { q { (shown(runner.why.as_deref().unwrap_or("not connected yet"))) } };
        item("bad", "plug", what, "", why)
    });
    let refusing = screen.sources.iter().filter_map(|line| {
        let (sentence, failed) = (line.refusing()?, line.last_failure.as_ref()?);
        let what = html! { "Deliveries of " b { (line.source) } " are refused" };
        let why = html! {
            (sentence_case(&sentence))
            @if line.quarantined > 0 { " " (thousands(line.quarantined)) " are kept: fix the secret, reload, accept them." }
        };
        let to = link("/quarantine", [("source", line.source.as_str())]);
        Some(item("bad", "quarantine", what, html! { (since(failed.at)) (open(&to)) }, why))
    });
    broken.chain(away).chain(refusing).collect()
}
