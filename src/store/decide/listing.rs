//! What the reading verbs make of the rows that an engine has found, and how many rows they look for.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{Limits, PAGE_LOOK_ROWS, SELECTED_JOBS};
use crate::model::{Digest, HeldReason, Name, State};
use crate::store::border::{
    Error, EventRow, HandlerJob, JobSelection, QuarantinedRow, SelectedJob, SelectedJobs,
    SelectionCursor, SourceActivity, Verb,
};

use super::key::KeyOf;

/// `list_millis` is the time for so many rows; a longer listing gets a multiple of it.
const ROWS_PER_TURN: u64 = 1_000;

/// How long a listing of at most `rows` rows may take.
pub(crate) fn list_time(limits: &Limits, rows: i64) -> Duration {
    let turns = u64::try_from(rows).unwrap_or(0).div_ceil(ROWS_PER_TURN).max(1);
    Limits::duration(limits.list_millis.saturating_mul(turns))
}

/// The most rows that a listing may return.
pub(crate) fn list_limit(limits: &Limits, asked: Option<usize>) -> i64 {
    let most = i64::try_from(limits.list_count).unwrap_or(i64::MAX);
    asked.map_or(most, |asked| i64::try_from(asked).unwrap_or(i64::MAX).min(most))
}

/// Most rows of a page. A page of 0 rows would look at 20,000 and return none.
pub(crate) fn page_limit(limits: &Limits, asked: Option<usize>) -> Result<i64, Error> {
    match list_limit(limits, asked) {
        0 => Err(Error::NoRows { most: list_limit(limits, None) }),
        limit => Ok(limit),
    }
}

/// An event with its row number and digest, for the queries that follow.
pub(crate) struct ListedEvent {
    pub(crate) row: i64,
    pub(crate) digest: Digest,
    pub(crate) event: EventRow,
}

impl ListedEvent {
    pub(crate) fn with_jobs(mut self, handlers: Vec<HandlerJob>) -> EventRow {
        for job in &handlers {
            *self.event.jobs.entry(job.state).or_default() += 1;
        }
        self.event.handlers = handlers;
        self.event
    }
}

/// The jobs of an event that were removed with its payload.
pub(crate) fn removed_jobs(succeeded: u64, dropped: u64) -> BTreeMap<State, u64> {
    let removed = [(State::Succeeded, succeeded), (State::Dropped, dropped)];
    removed.into_iter().filter(|&(_, jobs)| jobs > 0).collect()
}

/// A job that a filter of a bulk verb selects. `key` leads to the state of its event's key.
pub(crate) struct Selectable<K> {
    pub(crate) row: i64,
    pub(crate) job: SelectedJob,
    pub(crate) reason: String,
    pub(crate) key: K,
}

/// The jobs that a bulk verb means, of the next [`SELECTED_JOBS`] at most. `looked_at` jobs were looked at, up to the
/// row `last`.
pub(crate) fn select<K, E>(
    ask: &JobSelection,
    (looked_at, last): (u64, i64),
    found: Vec<Selectable<K>>,
    key_of: impl Fn(K) -> Result<KeyOf, E>,
) -> Result<SelectedJobs, E> {
    let mut selected = SelectedJobs { looked_at, ..SelectedJobs::default() };
    if found.len() == SELECTED_JOBS {
        selected.next = found.last().map(|last| SelectionCursor(last.row));
    } else if looked_at == PAGE_LOOK_ROWS.unsigned_abs() {
        selected.next = Some(SelectionCursor(last));
    }
    let guarded = ask.verb == Verb::Replay && ask.filter.reason.is_none();
    // What may be a forgery must not run because others are put back.
    let suspected = [HeldReason::SuspectedReplay, HeldReason::IdReused].map(HeldReason::as_str);
    for Selectable { job, reason, key, .. } in found {
        if guarded && suspected.contains(&reason.as_str()) {
            selected.suspected += 1;
        } else if ask.verb == Verb::Replay && !key_of(key)?.may_run() {
            selected.answered += 1;
        } else {
            selected.jobs.push(job);
        }
    }
    Ok(selected)
}

/// These sources and those with failed deliveries, by name, without their last events and matches. `failed`: the newest
/// failed delivery of a source, and how many are kept with a body.
pub(crate) fn sources(
    mut sources: Vec<Name>,
    failed: Vec<(QuarantinedRow, u64)>,
) -> Vec<SourceActivity> {
    sources.extend(failed.iter().map(|(newest, _)| newest.source.clone()));
    sources.sort();
    sources.dedup();
    let activity = |source: Name| {
        let newest = failed.iter().find(|(newest, _)| newest.source == source);
        let (failure, quarantined) = newest.cloned().unzip();
        let quarantined = quarantined.unwrap_or(0);
        SourceActivity { source, event: None, secret_matched_at: None, failure, quarantined }
    };
    sources.into_iter().map(activity).collect()
}
