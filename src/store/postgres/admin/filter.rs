//! The filters of listings as conditions, each of which costs nothing where it is not given.

use tokio_postgres::types::ToSql;

use crate::model::{Name, State};
use crate::store::border::{EventFilter, JobFilter};

pub(super) type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;

/// What a filter of events asks for: source $4, type $5, time $6, handler $7, state $8. Jobs that were removed with the
/// payload have lost their handler. In a WHERE, the state would lead to the index of that state.
macro_rules! event_filters {
    () => {
        " WHERE ($4::text IS NULL OR e.source = $4) AND ($5::text IS NULL OR e.type LIKE $5)
            AND ($6::bigint IS NULL OR e.received_at >= $6)
            AND (($7::text IS NULL AND $8::text IS NULL)
                OR (SELECT bool_or($8 IS NULL OR j.state = $8) FROM job j
                    WHERE j.event = e.row AND ($7 IS NULL OR j.handler = $7))
                OR ($7 IS NULL AND $8 = 'succeeded' AND e.removed_succeeded > 0)
                OR ($7 IS NULL AND $8 = 'dropped' AND e.removed_dropped > 0)) "
    };
}
pub(super) use event_filters;

/// What a filter of jobs asks for: handler $5, reason $6, last text $7, time $8, source $9, type $10, state $11.
macro_rules! job_filters {
    () => {
        " WHERE ($5::text IS NULL OR j.handler = $5) AND ($6::text IS NULL OR j.reason = $6)
            AND ($7::text IS NULL OR coalesce(a.detail, '') = $7) AND ($8::bigint IS NULL OR j.created_at >= $8)
            AND ($9::text IS NULL OR e.source = $9) AND ($10::text IS NULL OR e.type LIKE $10)
            AND ($11::text IS NULL OR j.state = $11) "
    };
}
pub(super) use job_filters;

/// The values of [`event_filters!`].
pub(super) struct EventValues<'a> {
    source: Option<&'a str>,
    event_type: Option<String>,
    since: Option<i64>,
    handler: Option<&'a str>,
    state: Option<&'static str>,
}

impl<'a> EventValues<'a> {
    pub(super) fn of(filter: &'a EventFilter) -> Self {
        EventValues {
            source: filter.source.as_ref().map(Name::as_str),
            event_type: filter.event_type.as_deref().map(like),
            since: filter.since.map(|at| at.0),
            handler: filter.handler.as_ref().map(Name::as_str),
            state: filter.state.map(State::as_str),
        }
    }

    pub(super) fn values(&self) -> Values<'_> {
        vec![&self.source, &self.event_type, &self.since, &self.handler, &self.state]
    }
}

/// The values of [`job_filters!`].
pub(super) struct JobValues<'a> {
    handler: Option<&'a str>,
    reason: Option<String>,
    last_detail: Option<String>,
    since: Option<i64>,
    source: Option<&'a str>,
    event_type: Option<String>,
    state: Option<&'static str>,
}

impl<'a> JobValues<'a> {
    pub(super) fn of(filter: &'a JobFilter) -> Self {
        JobValues {
            handler: filter.handler.as_ref().map(Name::as_str),
            reason: filter.reason.as_deref().map(text),
            last_detail: filter.last_detail.as_deref().map(text),
            since: filter.since.map(|at| at.0),
            source: filter.source.as_ref().map(Name::as_str),
            event_type: filter.event_type.as_deref().map(like),
            state: filter.state.map(State::as_str),
        }
    }

    pub(super) fn values(&self) -> Values<'_> {
        let [handler, source] = [&self.handler, &self.source];
        let [reason, last_detail, event_type] = [&self.reason, &self.last_detail, &self.event_type];
        vec![handler, reason, last_detail, &self.since, source, event_type, &self.state]
    }
}

/// The type text has no NUL; a detail that had one was stored so.
fn text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}

/// A pattern in which `*` stands for any run of characters, and everything else for itself.
fn like(pattern: &str) -> String {
    let mut like = String::with_capacity(pattern.len());
    for character in text(pattern).chars() {
        match character {
            '*' => like.push('%'),
            '%' | '_' | '\\' => like.extend(['\\', character]),
            other => like.push(other),
        }
    }
    like
}
