//! Waits for the handlers of a test delivery, and prints and judges what they did.

use std::iter;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::admin::{ShowEvent, StoreClient};
use crate::config::{Config, Handler};
use crate::document::nearest;
use crate::exit::{Exit, Failure};
use crate::model::{EventId, HeldReason, State};
use crate::store::{EventDetail, JobDetail};

use super::super::output::{self, escape};
use super::super::{delivered::Delivered, jobs, show};
use super::delivery::Delivery;
use super::verdict::Verdict;

/// The pause between two requests for the event.
const POLL: Duration = Duration::from_millis(100);

/// The stored event of the delivery. Returns when none of its jobs is running or ready to run, or after the
/// time that the operator wants to wait.
pub(super) async fn wait(delivery: &Delivery<'_>, event: &EventId) -> Result<EventDetail, Failure> {
    let client = StoreClient::Remote(delivery.connect().await?);
    let end = Instant::now() + delivery.args.wait;
    let body = &delivery.event.body;
    loop {
        let source = Some(delivery.args.source.clone());
        let request = ShowEvent { source, event: event.clone(), variant: None };
        let found = client.show(request).await?;
        // Another body under the same id is another variant.
        let sent = |one: &EventDetail| one.body.as_ref().is_some_and(|kept| kept[..] == body[..]);
        let nth = found.iter().position(sent).unwrap_or(found.len().saturating_sub(1));
        let Some(detail) = found.into_iter().nth(nth) else {
            return Err(Exit::NotFound.failure(format!("no such event: {event}")));
        };
        let unsettled = |one: &JobDetail| match one.job.state {
            State::Ready => !one.job.paused,
            state => state == State::Running,
        };
        if !detail.jobs.iter().any(unsettled) || Instant::now() >= end {
            return Ok(detail);
        }
        sleep(POLL).await;
    }
}

/// Prints each job's state and what its last attempt printed.
pub(super) fn print(detail: &EventDetail, config: &Config) -> Result<(), Failure> {
    let source = &detail.event.source;
    if detail.jobs.is_empty() {
        let kind = &detail.event.event_type;
        let none = format!("none: no handler of source {source} wants {kind}");
        let others = config.takers(source).map(|handler| {
            let wants: Vec<_> = handler.patterns().collect();
            format!("{} wants {}", handler.name, wants.join(", "))
        });
        output::list("handler", iter::once(none).chain(others))?;
    }
    for one in &detail.jobs {
        let last = one.attempts.last().and_then(|last| Some((last, last.outcome?)));
        let job_state = jobs::state(&one.job);
        let state = match last {
            None => job_state,
            Some((last, outcome)) => {
                let details = escape(&last.record.detail);
                let state = match one.job.state {
                    State::Succeeded => String::new(),
                    _ => format!("; the job is {job_state}"),
                };
                format!("{}, {details}{state}", outcome.as_str())
            }
        };
        output::fact("handler", format!("{}: {state}", one.job.handler))?;
        one.attempts.last().map_or(Ok(()), show::outputs)?;
    }
    Ok(())
}

/// Whether every job of the event has succeeded.
pub(super) fn verdict(detail: &EventDetail, delivery: &Delivery<'_>) -> Verdict {
    let suffix = &delivery.suffix;
    let (event, source) = (detail.event.event_id.shell_word(), &detail.event.source);
    let look = |command: &str| format!("hooklatch {command} {event} --source {source}{suffix}");
    if detail.jobs.is_empty() {
        return unwanted(detail, delivery.config, suffix);
    }
    let rank = |one: &&JobDetail| match one.job.state {
        State::Held => 0,
        State::Dead => 1,
        State::Waiting => 2,
        State::Dropped => 3,
        State::Ready | State::Running => 4,
        State::Succeeded => 5,
    };
    let worst = detail.jobs.iter().min_by_key(rank).map(|one| &one.job);
    let Some(job) = worst.filter(|job| job.state != State::Succeeded) else {
        return Verdict::new(true, "as expected", look("show"));
    };
    let (handler, state) = (&job.handler, jobs::state(job));
    let (text, next) = match job.state {
        State::Held | State::Dead | State::Dropped => {
            let why = match job.reason.as_deref().and_then(|reason| reason.parse().ok()) {
                Some(HeldReason::SuspectedReplay) => {
                    ", since the same body came before under another id"
                }
                Some(HeldReason::IdReused) => ", since another body came before under this id",
                _ => "",
            };
            (format!("as expected: handler {handler} is {state}{why}"), look("explain"))
        }
        State::Waiting => {
            let text = format!("as expected: handler {handler} failed, and is tried again");
            (text, look("explain"))
        }
        _ if job.paused => {
            let resume = format!("hooklatch resume {handler}{suffix}");
            (format!("as expected: handler {handler} is paused"), resume)
        }
        _ => {
            let seconds = delivery.args.wait.as_secs_f64();
            let text = format!("known yet: handler {handler} is {state} after {seconds} s");
            (text, format!("{} --follow", look("show")))
        }
    };
    Verdict::new(false, format!("NOT {text}"), next)
}

/// The verdict for an event without jobs.
fn unwanted(detail: &EventDetail, config: &Config, suffix: &str) -> Verdict {
    let (source, kind) = (&detail.event.source, detail.event.event_type.as_str());
    let (kind_shown, not) = (escape(kind), "NOT as expected:");
    let delivered = Delivered::of(detail);
    let matching = config.takers(source);
    let matching: Vec<&Handler> =
        matching.filter(|handler| config.matching(handler, source, kind).is_some()).collect();
    let refuses = |handler: &&&Handler| {
        let judged = delivered.as_ref().map(|own| own.judged_by(handler, config));
        judged.is_some_and(|judged| judged.holds == Some(false))
    };
    let (text, next) = if let Some(Handler { name, .. }) = matching.iter().find(refuses) {
        let event = detail.event.event_id.shell_word();
        (
            format!("the condition of handler {name} does not hold"),
            format!("hooklatch try {name} --event {event} --source {source}{suffix}"),
        )
    } else if !matching.is_empty() {
        (
            format!("no handler wanted {kind_shown} by the configuration that the receiver has"),
            format!("hooklatch reload{suffix}"),
        )
    } else {
        let exact = config.takers(source).flat_map(Handler::patterns);
        let near = nearest(kind, exact.filter(|text| !text.contains('*'))).map(str::to_owned);
        let near = near.or_else(|| config.scheme_of(source)?.identity().nearest_type(kind));
        let near = near.filter(|near| near != kind && !near.contains('*'));
        let next = match near {
            Some(near) => format!("hooklatch send {source} {near}{suffix}: did you mean that?"),
            None => format!("name the type in a handler's events, then hooklatch reload{suffix}"),
        };
        (format!("no handler wants {kind_shown}"), next)
    };
    Verdict::new(false, format!("{not} {text}"), next)
}
