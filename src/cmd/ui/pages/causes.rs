//! Jobs that stand still by their cause, and what else needs a person: each in a sentence, worst first.

use crate::admin::ListStuck;
use crate::model::{DeadReason, HeldReason};
use crate::store::{JobFilter, StuckGroup};

use super::super::{parts::*, view::View};

/// Held or dead jobs of a handler with one reason, whose last attempts said the same.
pub(super) struct Cause {
    pub(super) group: StuckGroup,
    /// There are more than are counted.
    has_more: bool,
}

impl Cause {
    pub(super) fn state(&self) -> State {
        self.group.newest.state
    }

    /// What filters its jobs in the address of the inbox and of changes; [`filter`] reads it.
    pub(super) fn query(&self) -> [(&str, &str); 4] {
        let newest = &self.group.newest;
        let said = newest.last_detail.as_deref().unwrap_or_default();
        let reason = newest.reason.as_deref().unwrap_or_default();
        [
            ("state", newest.state.as_str()),
            ("handler", newest.handler.as_str()),
            ("reason", reason),
            ("said", said),
        ]
    }

    /// "2,000+ jobs".
    pub(super) fn count(&self) -> String {
        let plus = if self.has_more { "+ " } else { " " };
        many(self.group.jobs, "job").replacen(' ', plus, 1)
    }

    /// An item of a list. `open` is the word on the link to its jobs, where there is one.
    pub(super) fn item(&self, view: &View<'_>, open: Option<&str>) -> Markup {
        let (newest, [_, _, (_, reason), _]) = (&self.group.newest, self.query());
        let (glyph, text) = match reason.parse() {
            Ok(HeldReason::UnknownOutcome) => ("unknown", "is the work of {} done?"),
            Ok(HeldReason::SuspectedReplay | HeldReason::IdReused) => ("twin", "{} may be forged"),
            Ok(HeldReason::HandlerGone) => ("held", "not configured any more; {}"),
            Ok(HeldReason::Restored) => ("unknown", "{} may have run before the restore"),
            Ok(HeldReason::Cancelled) => ("held", "{} cancelled"),
            Ok(HeldReason::ConditionFailed) => ("held", "the condition of {} cannot be decided"),
            Ok(HeldReason::PayloadUnreadable) => ("held", "the payload of {} cannot be read"),
            Ok(HeldReason::PayloadDamaged) => ("held", "the payload of {} is damaged"),
            Ok(HeldReason::ValueRefused) => ("held", "{} with a value that it does not take"),
            Err(_) if reason == DeadReason::Exhausted.as_str() => ("dead", "{} used all attempts"),
            Err(_) => ("dead", "{} dead, REASON"),
        };
        let what = text.replace("{}", &self.count()).replace("REASON", reason);
        html! {
            @let what = html! { b { (newest.handler) } ": " (shown(&what)) };
            @let (to, oldest_at) = (link("/inbox", self.query()), self.group.oldest_at);
            @let right = html! {
                span.when { (age(oldest_at, view.screen.now)) }
                @if let Some(open) = open { a.btn.small href=(to) { (open) } }
            };
            @let class = if self.state() == State::Dead { "bad" } else { "warn" };
            (item(class, glyph, what, right, html! {
                @let said = newest.detail.as_ref().or(newest.last_detail.as_ref());
                @if let Some(said) = said { q { (shown(said)) } " " }
                "The newest is of " (shown(&newest.event_type)) "."
            }))
        }
    }
}

/// Held ones first.
pub(super) async fn causes(view: &View<'_>) -> Result<Vec<Cause>, Failure> {
    let stuck = view.ask(ListStuck {}).await?;
    let cause = |group: StuckGroup| {
        let has_more = stuck.more.contains(&group.newest.state);
        Cause { group, has_more }
    };
    Ok(stuck.groups.into_iter().map(cause).collect())
}

/// The jobs that the address names.
pub(super) fn filter(view: &View<'_>) -> Result<JobFilter, Failure> {
    Ok(JobFilter {
        state: view.asked.read("state")?,
        handler: view.asked.read("handler")?,
        reason: view.asked.read("reason")?,
        last_detail: view.asked.exactly("said"),
        ..JobFilter::default()
    })
}

/// Handlers and runners that cannot run, and sources whose deliveries are refused.
pub(super) fn worse(view: &View<'_>) -> Markup {
    let screen = &view.screen;
    let right = |since, to: String| {
        html! { span.when { (age(since, screen.now)) } a.btn.small href=(to) { "Open" } }
    };
    html! {
        @for broken in &screen.broken {
            @let what = html! { b { (broken.handler) } " cannot run" };
            @let right = right(broken.since, format!("/handlers#{}", broken.handler));
            (item("bad", "plug", what, right, html! {
                q { (shown(&broken.cause)) } " Its jobs wait and lose no attempts; it tries again by itself."
            }))
        }
        @for runner in screen.runners.iter().flatten().filter(|runner| !runner.connected) {
            @let what = html! { "Runner " b { (runner.name) } " is not connected" };
            @let why = runner.why.as_deref().unwrap_or("not connected yet");
            (item("bad", "plug", what, "", html! { q { (shown(why)) } }))
        }
        @for node in &screen.awaited {
            @let what = html! { (shown(&sentence_case(&node.to_string()))) };
            (item("bad", "plug", what, "", html! { "Nothing is replayed meanwhile: " (shown(&node.help())) "." }))
        }
        @for node in screen.nodes.iter().filter(|node| node.is_silent() && node.running > 0) {
            @let what = html! { "Node " b { (shown(&node.name)) } " is silent" };
            @let right = html! { span.when { (age(node.seen_at, screen.now)) } };
            (item("bad", "plug", what, right, html! {
                (many(node.running, "attempt")) " of it may run. They go on when it is back; if its machine is gone, declare it lost: "
                code { (view.app.command(&format!("node lost {}", node.name))) }
            }))
        }
        @for line in &screen.sources { @if let (Some(sentence), Some(failed)) = (line.refusing(), &line.last_failure) {
            @let what = html! { "Deliveries of " b { (line.source) } " are refused" };
            @let right = right(failed.at, format!("/quarantine?source={}", line.source));
            (item("bad", "quarantine", what, right, html! {
                (sentence_case(&sentence))
                @if line.quarantined > 0 { " " (thousands(line.quarantined)) " are kept: fix the secret, reload, accept them." }
            }))
        } }
    }
}
