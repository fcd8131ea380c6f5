//! `hooklatch show`: everything about one event, or about one job of it.

use std::io::Write;

use crate::admin::{CallError, StoreClient};
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::model::EventId;
use crate::store::{AttemptRow, EventDetail, IdKind, JobDetail, KeyRow, OutputExcerpt};

use super::ids::{self, Target};
use super::output::{self, escape, escape_lines, local, outcome_style, size};
use super::{events, jobs, store};

/// What is said of an event whose body cannot be got back.
const DAMAGED: &str =
    "the stored payload, of which no job starts; a later delivery of the event may mend it";

/// What is said of an event whose body is kept, and could not be read.
const UNREAD: &str = "the stored body, which cannot be read now";

/// Shows the event with its jobs and attempts, or with the one job that was named; or its raw body alone. The answer is no
/// where a body is damaged. One that cannot be read now is left out.
pub(super) fn run(args: &cli::Show) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let (found, unread) = store::with_client(&config, async |client| {
        let target = ids::target(client, IdKind::Any, args.source.as_ref(), &args.event).await?;
        find_now(client, &target).await
    })?;
    if args.body {
        return unread.map_or_else(|| body(&found, args), |why| Err(why.into()));
    }
    if let Some(why) = &unread {
        output::note(format_args!("a body is left out: {why}"));
    }
    let of_answer = |one: &EventDetail| one.key.as_ref().is_some_and(|key| key.damaged);
    let damaged = found.iter().any(|one| one.damaged || of_answer(one));
    let shown = output::either(&args.options.format, &found, || people(&found))?;
    Ok(match damaged {
        true => Exit::No,
        false if unread.is_some() => Exit::Unavailable,
        false => shown,
    })
}

/// The events that are meant, without other jobs than the one that was named.
pub(super) async fn find(
    client: &StoreClient,
    target: &Target,
) -> Result<Vec<EventDetail>, Failure> {
    let (found, unread) = find_now(client, target).await?;
    unread.map_or(Ok(found), |why| Err(why.into()))
}

/// Like [`find`], but without the bodies that cannot be read now, and why.
async fn find_now(
    client: &StoreClient,
    target: &Target,
) -> Result<(Vec<EventDetail>, Option<CallError>), Failure> {
    let (mut found, unread) = ids::shown(client, target).await?;
    if let Some(job) = target.job {
        found.iter_mut().for_each(|event| event.jobs.retain(|one| one.job.job == job));
    }
    Ok((found, unread))
}

/// Whether the event's body is kept, and could not be read.
pub(super) fn is_unread(detail: &EventDetail) -> bool {
    detail.event.payload_kept && detail.body.is_none() && !detail.damaged
}

/// Prints events for people.
pub(super) fn people(found: &[EventDetail]) -> Result<(), Failure> {
    for (nth, detail) in found.iter().enumerate() {
        if nth > 0 {
            output::line("")?;
        }
        event(detail)?;
    }
    Ok(())
}

/// The one event that is meant where the typed id must name one.
pub(super) fn only<'f>(
    found: &'f [EventDetail],
    typed: &EventId,
) -> Result<&'f EventDetail, Failure> {
    match found {
        [only] => Ok(only),
        _ => Err(Exit::WrongState
            .failure(format!("{} events have this id", found.len()))
            .help(format!("hooklatch show {typed} lists them; --source names one"))),
    }
}

/// The event is there, and its payload is not.
pub(super) fn payload_gone() -> Failure {
    Exit::NotFound
        .failure("the payload of this event has been deleted")
        .help("storage.keep_payloads says how long payloads are kept")
}

/// Why an event has no body.
pub(super) fn without_body(detail: &EventDetail) -> Failure {
    match detail.damaged {
        true => Exit::WrongState
            .failure("the stored payload of this event is damaged")
            .help("let it be sent again; `hooklatch doctor --deep` compares all payloads"),
        false => payload_gone(),
    }
}

fn body(found: &[EventDetail], args: &cli::Show) -> Result<Exit, Failure> {
    let event = only(found, &args.event)?;
    let bytes = event.body.as_ref().ok_or_else(|| without_body(event))?;
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(Exit::Ok)
}

fn event(detail: &EventDetail) -> Result<(), Failure> {
    let event = &detail.event;
    output::fact("event", escape(event.event_id.as_str()))?;
    output::fact("source", &event.source)?;
    output::fact("type", escape(events::type_of(event)))?;
    output::fact("received", local(event.received_at))?;
    output::list("again", event.last_duplicate_at.map(local))?;
    output::fact("body", size(event.body_bytes))?;
    output::fact("digest", &detail.digest)?;
    output::list("damaged", detail.damaged.then_some(DAMAGED))?;
    output::list("unread", is_unread(detail).then_some(UNREAD))?;
    output::list("notes", Some(events::notes(event)).filter(|notes| !notes.is_empty()))?;
    for restored in &detail.restores {
        let lost = "what its jobs did in between is not known";
        output::fact("restored", format_args!("{}: {lost}", restored.event(local)))?;
    }
    for (name, value) in &detail.headers {
        output::fact("header", format_args!("{}: {}", escape(name), escape(value)))?;
    }
    detail.key.iter().try_for_each(key)?;
    match (detail.jobs.is_empty(), event.jobs.is_empty()) {
        (false, _) => {}
        (true, true) => output::fact("jobs", "none: no handler wants it")?,
        (true, false) => {
            let jobs = events::jobs(event);
            output::fact("jobs", format_args!("removed with the payload: {jobs}"))?;
        }
    }
    detail.jobs.iter().try_for_each(job)
}

/// A request's key, and what its caller was answered.
fn key(row: &KeyRow) -> Result<(), Failure> {
    let caller = match row.caller.as_str() {
        "" => String::new(),
        caller => format!("of caller {}, ", escape(caller)),
    };
    let until = local(row.expires_at);
    output::fact("key", format_args!("{caller}kept until {until}, request {}", row.request))?;
    let (Some(status), Some(at)) = (row.status, row.answered_at) else {
        return output::fact("answer", "none yet");
    };
    let body = row.body.as_deref().unwrap_or_default();
    let bytes = match &row.body {
        _ if row.damaged => "its body is damaged".to_owned(),
        None => "its body cannot be read now".to_owned(),
        Some(body) => size(body.len() as u64),
    };
    let forgotten = row.error_until.map(|until| format!(", forgotten {}", local(until)));
    let forgotten = forgotten.unwrap_or_default();
    output::fact("answer", format_args!("{status}, {}, {bytes}{forgotten}", local(at)))?;
    output::list("", row.headers.iter().map(|(name, value)| format!("{name}: {value}")))?;
    printed("          | ", body)
}

/// Prints bytes from outside, each line behind `begin`.
fn printed(begin: &str, bytes: &[u8]) -> Result<(), Failure> {
    let text = escape_lines(&String::from_utf8_lossy(bytes));
    text.lines().try_for_each(|line| output::verbatim(format_args!("{begin}{line}")))
}

fn job(detail: &JobDetail) -> Result<(), Failure> {
    let row = &detail.job;
    output::line("")?;
    let (style, state) = (output::state_style(row.state), jobs::state(row));
    output::line(format_args!("job {}  {}  {style}{state}{style:#}", row.job, row.handler))?;
    for former in &detail.former_keys {
        let (key, at) = (former.key, local(former.replaced_at));
        output::line(format_args!("  key was {key} up to attempt {}, until {at}", former.attempt))?;
    }
    detail.attempts.iter().try_for_each(attempt)
}

fn attempt(row: &AttemptRow) -> Result<(), Failure> {
    output::line(format_args!("  {}", summary(row)))?;
    if let Some(usage) = &row.record.usage {
        let (cpu, memory) = (usage.cpu_millis as f64 / 1000.0, size(usage.memory_bytes));
        output::line(format_args!("    used {cpu:.2} s of CPU time, {memory} of memory"))?;
    }
    if let Some(late) = &row.late_end {
        let (at, said) = (local(late.received_at), escape(&late.detail));
        output::line(format_args!("    reported late, which changed nothing: {}", late.outcome))?;
        output::line(format_args!("      {at}  {said}"))?;
    }
    outputs(row)
}

/// What an attempt has printed, as far as it is kept.
pub(super) fn outputs(row: &AttemptRow) -> Result<(), Failure> {
    stream("out", &row.record.stdout)?;
    stream("err", &row.record.stderr)
}

/// An attempt on one line.
pub(super) fn summary(row: &AttemptRow) -> String {
    let style = outcome_style(row.outcome);
    let outcome = row.outcome.map_or("running", |outcome| outcome.as_str());
    let took = row.finished_at.map_or(String::new(), |end| {
        format!(" after {:.1} s", end.since(row.started_at).as_secs_f64())
    });
    let said = escape(&row.record.detail);
    let number = row.number;
    let start = local(row.started_at);
    format!("attempt {number}  {start}  {style}{outcome}{style:#}{took}  {said}")
}

fn stream(name: &str, captured: &OutputExcerpt) -> Result<(), Failure> {
    let OutputExcerpt { head, tail, total } = captured;
    let missing = total.saturating_sub((head.len() + tail.len()) as u64);
    let begin = format!("    {name} | ");
    printed(&begin, head)?;
    if missing > 0 {
        output::line(format_args!("{begin}… {} not kept …", size(missing)))?;
    }
    printed(&begin, tail)
}
