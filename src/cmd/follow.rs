//! `hooklatch show --follow`: prints the output of an event's running attempts until they end.
//!
//! The runner keeps the beginning and the end of each output. This polls both and prints the new part. At the
//! attempt's end the rest comes from the store, so that everything that is kept is printed.

mod output;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::admin::{CallError, FailureKind, ReadOutput, StoreClient};
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::model::{Blob, Name, State};
use crate::runner::message::{Key, Stream};
use crate::store::{AttemptRow, IdKind, JobDetail, JobRow, OutputExcerpt};

use self::output::{Lines, News, Seen};
use super::output::{escape_lines, json_line, line, note, thousands, verbatim};
use super::{ids, jobs, show, store};

/// The time between two looks at an attempt.
const POLL: Duration = Duration::from_millis(100);

/// Follows the running attempts of the event. If there are none, says so and shows the event.
pub(super) fn run(args: &cli::Show) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    store::with_client(&config, async |client| follow(client, args).await)
}

async fn follow(client: &StoreClient, args: &cli::Show) -> Result<Exit, Failure> {
    let mut target = ids::target(client, IdKind::Any, args.source.as_ref(), &args.event).await?;
    if let Some(typed) = &args.job {
        target.job = Some(ids::job(client, typed).await?.job);
    }
    let found = show::find(client, &target).await?;
    let jobs = || found.iter().flat_map(|event| &event.jobs);
    if jobs().next().is_none()
        && let Some(job) = target.job
    {
        return Err(Exit::NotFound.failure(format!("event {} has no job {job}", args.event)));
    }
    let running = jobs().filter(|one| one.job.state == State::Running);
    let stopped = matches!(client, StoreClient::Local(..));
    if stopped || running.clone().next().is_none() {
        if args.options.json() {
            // The last attempt of each job, in the form of a followed one.
            jobs().try_for_each(|one| Followed::new(&one.job, String::new(), true).end(one))?;
        } else {
            show::people(&found)?;
        }
        note(match stopped {
            true => {
                "no receiver runs: what its runner may still run shows once `hooklatch serve` does"
            }
            false => "nothing of this event is running",
        });
        return Ok(Exit::Ok);
    }
    // Two bodies under one id may each have an attempt of one handler.
    let (several, variants) = (running.clone().nth(1).is_some(), found.len() > 1);
    let label = |row: &JobRow| match (several, variants) {
        (false, _) => String::new(),
        (true, false) => format!("{} #{}  ", row.handler, row.attempt),
        (true, true) => format!("{} #{} {}  ", row.handler, row.attempt, row.job),
    };
    let mut all: Vec<Followed> =
        running.map(|one| Followed::new(&one.job, label(&one.job), args.options.json())).collect();
    drop(found);
    for Followed { label, key, handler, .. } in all.iter().filter(|_| !args.options.json()) {
        line(format_args!("{label}{key} of handler {handler} is running"))?;
    }
    let mut noted = false;
    loop {
        let mut any_ended = false;
        for one in all.iter_mut().filter(|one| !one.ended) {
            noted = !one.look(client, noted).await?;
            let row = store::job(client, one.key.job).await?;
            one.ended = row.state != State::Running || row.attempt != one.key.attempt;
            any_ended |= one.ended;
        }
        if any_ended {
            let found = show::find(client, &target).await?;
            for detail in found.iter().flat_map(|event| &event.jobs) {
                let ended = |one: &&mut Followed| one.ended && one.key.job == detail.job.job;
                all.iter_mut().filter(ended).try_for_each(|one| one.end(detail))?;
            }
            all.retain(|one| !one.ended);
        }
        if all.is_empty() {
            return Ok(Exit::Ok);
        }
        sleep(POLL).await;
    }
}

/// An attempt whose outputs are printed as they come.
struct Followed {
    key: Key,
    handler: Name,
    label: String,
    json: bool,
    streams: [(Stream, Seen, Lines); 2],
    ended: bool,
}

impl Followed {
    fn new(row: &JobRow, label: String, json: bool) -> Self {
        let streams = [Stream::Stdout, Stream::Stderr];
        Followed {
            key: Key { job: row.job, attempt: row.attempt },
            handler: row.handler.clone(),
            label,
            json,
            streams: streams.map(|stream| (stream, Seen::default(), Lines::default())),
            ended: false,
        }
    }

    /// Prints the output since the last look. False if the runner cannot be asked now, with a note unless it was
    /// `noted` before: the attempt goes on, and the runner will answer again.
    async fn look(&mut self, client: &StoreClient, noted: bool) -> Result<bool, Failure> {
        for nth in 0..self.streams.len() {
            let Key { job, attempt } = self.key;
            let request = ReadOutput { job, attempt, stream: self.streams[nth].0 };
            match client.call(request).await.map(|read| read.output) {
                Ok(Some(captured)) => self.print(nth, &captured)?,
                // Not begun, or about to be what the store shows.
                Ok(None) => {}
                Err(CallError::Failed(failure)) if failure.kind == FailureKind::Unavailable => {
                    if !noted {
                        note(format_args!("{failure}; waiting for it"));
                    }
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn print(&mut self, nth: usize, captured: &OutputExcerpt) -> Result<(), Failure> {
        let (_, seen, _) = &mut self.streams[nth];
        let news = seen.news(captured);
        if news.is_empty() {
            return self.rest(nth);
        }
        for news in news {
            match news {
                News::Missed(bytes) if self.json => {
                    self.value(nth, "missed_bytes", &json!(bytes))?;
                }
                News::Missed(bytes) => {
                    self.rest(nth)?;
                    self.line(nth, &format!("… {} bytes not shown", thousands(bytes)))?;
                }
                News::Bytes(bytes) if self.json => {
                    self.value(nth, "output", &json!(Blob(bytes)))?
                }
                News::Bytes(bytes) => {
                    for text in self.streams[nth].2.push(&bytes) {
                        self.line(nth, &text)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Prints the line that has no end yet.
    fn rest(&mut self, nth: usize) -> Result<(), Failure> {
        match self.streams[nth].2.rest() {
            Some(text) => self.line(nth, &text),
            None => Ok(()),
        }
    }

    fn line(&self, nth: usize, text: &str) -> Result<(), Failure> {
        let name = match self.streams[nth].0 {
            Stream::Stdout => "out",
            Stream::Stderr => "err",
        };
        verbatim(format_args!("{}{name} | {}", self.label, escape_lines(text)))
    }

    fn value(&self, nth: usize, key: &str, value: &Value) -> Result<(), Failure> {
        let Key { job, attempt } = self.key;
        let (handler, stream) = (&self.handler, self.streams[nth].0);
        json_line(&json!({
            "job": job, "handler": handler, "attempt": attempt, "stream": stream, key: value,
        }))
    }

    /// Prints the rest of the outputs, and how the attempt ended.
    fn end(&mut self, detail: &JobDetail) -> Result<(), Failure> {
        let attempt = detail.attempts.iter().find(|one| one.number == self.key.attempt);
        if let Some(AttemptRow { record, .. }) = attempt {
            for (nth, captured) in [&record.stdout, &record.stderr].into_iter().enumerate() {
                self.print(nth, captured)?;
                self.rest(nth)?;
            }
        }
        let (label, row) = (&self.label, &detail.job);
        if self.json {
            return json_line(&json!({
                "job": row.job,
                "handler": row.handler,
                "attempt": self.key.attempt,
                "outcome": attempt.and_then(|one| one.outcome),
                "detail": attempt.map(|one| &one.record.detail),
                "state": row.state,
                "reason": row.reason,
            }));
        }
        if let Some(attempt) = attempt {
            line(format_args!("{label}{}", show::summary(attempt)))?;
        }
        line(format_args!("{label}job {} is {}", row.job, jobs::state(row)))
    }
}
