//! The filters of listings as conditions, each of which costs nothing where it is not given.

use tokio_postgres::types::ToSql;

use crate::store::border::{EventFilter, JobFilter};

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
            AND ($7::text IS NULL OR coalesce(a.detail, '') = $7)
            AND ($8::bigint IS NULL OR j.created_at >= $8)
            AND ($9::text IS NULL OR e.source = $9) AND ($10::text IS NULL OR e.type LIKE $10)
            AND ($11::text IS NULL OR j.state = $11) "
    };
}
pub(super) use job_filters;

pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// The values of [`event_filters!`].
pub(super) fn event_values(filter: &EventFilter) -> [Value<'_>; 5] {
    let EventFilter { source, event_type, since, handler, state, .. } = filter;
    [source, event_type, since, handler, state]
}

/// The values of [`job_filters!`].
pub(super) fn job_values(filter: &JobFilter) -> [Value<'_>; 7] {
    let JobFilter { handler, reason, last_detail, since, source, event_type, state, .. } = filter;
    [handler, reason, last_detail, since, source, event_type, state]
}

/// The filter with texts for its statement.
pub(super) fn for_events(filter: EventFilter) -> EventFilter {
    EventFilter { event_type: filter.event_type.map(like), ..filter }
}

/// Returns a filter of jobs with texts for its statement.
pub(super) fn for_jobs(filter: JobFilter) -> JobFilter {
    let [reason, last_detail] = [filter.reason, filter.last_detail].map(|value| value.map(text));
    JobFilter { reason, last_detail, event_type: filter.event_type.map(like), ..filter }
}

/// The type text has no NUL; a detail that had one was stored so.
fn text(value: String) -> String {
    value.replace('\0', "\u{fffd}")
}

/// A pattern in which `*` stands for any run of characters, and everything else for itself.
fn like(pattern: String) -> String {
    let escaped = text(pattern).replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
    escaped.replace('*', "%")
}
