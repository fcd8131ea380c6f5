//! SHOW: everything about the events with an id.

use std::collections::HashMap;

use crate::model::{Blob, Digest, EventId, Name};
use crate::store::border::{Error, EventDetail, EventRow, JobDetail, JobRow, KeyRow};
use crate::store::codec;
use crate::store::columns::{FromRow, Numbered, from_row, unreadable};
use crate::store::decide::listing::ListedEvent;

use super::super::reader::Reading;
use super::find::sources;
use super::handle::Admin;
use super::rows::{event_columns, job_columns, job_joins, with_jobs};

/// An event's variants, the first one first, of source $1 or of all. By the unique (source, id, variant), which cannot
/// find an id without its source.
const EVENTS: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM ",
    sources!(),
    " JOIN event e ON e.source = s.source AND e.event_id = $2 ORDER BY e.source, e.variant"
);

/// The payload of event $1, without its body unless $2; no row once retention has deleted it.
const PAYLOAD: &str = "
    SELECT p.headers, CASE WHEN $2 THEN p.body END AS body, e.body_bytes FROM payload p JOIN event e ON e.row = p.event
    WHERE p.event = $1";

/// The jobs of event $1, in the order of their making.
const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM job j",
    job_joins!(),
    "WHERE j.event = $1 ORDER BY j.row"
);

/// The attempts of the jobs $1, each with the newest report that came after it was settled, under whichever key the job
/// had then.
const ATTEMPTS: &str = "
    SELECT a.*, a.job AS row, l.outcome AS late_outcome, l.detail AS late_detail, l.received_at
    FROM attempt a LEFT JOIN LATERAL (
        SELECT l.* FROM (SELECT id FROM job WHERE row = a.job
            UNION ALL SELECT id FROM former_key WHERE job = a.job) k
        JOIN late_end l ON l.job = k.id AND l.attempt = a.number
        ORDER BY l.received_at DESC LIMIT 1) l ON true
    WHERE a.job = ANY ($1) ORDER BY a.job, a.number";

/// All that the jobs ever had but their present ones; two are never replaced after the same attempt at the same moment,
/// and keys are in the order of their making.
const FORMER_KEYS: &str = "
    SELECT job AS row, id AS key, attempt, replaced_at FROM former_key WHERE job = ANY ($1)
    ORDER BY attempt, id";

/// The oldest events other than $3 with the body of digest $2: the first one, and of those that repeat it the oldest
/// of 1,000. None where the guard does not look at $3.
const TWINS: &str = "
    SELECT event_id, type AS event_type, received_at FROM (
        (SELECT * FROM event WHERE source = $1 AND digest = $2 AND guarded AND NOT repeated)
        UNION ALL (SELECT * FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated
            LIMIT 1000)) same
    WHERE row <> $3 AND (SELECT guarded FROM event WHERE row = $3) ORDER BY row LIMIT 5";

/// The changes of the history since time $1, and in the last $2 milliseconds, in the order in which they came. Of most it
/// is not known how long before them the last commit was that is left.
pub(super) const RESTORES: &str = "
    SELECT from_store, coalesce(made_at, restored_at) AS made_at, restored_at, held, lost FROM restored
    WHERE coalesce(made_at, restored_at) >= $1
        AND ($2::bigint IS NULL OR restored_at >= now_ms() - $2) ORDER BY row";

/// The idempotency key of event $1 with its answer, by the primary key.
const KEY: &str = "SELECT * FROM answer WHERE event = $1";

/// Headers as HTTP writes them, and the body under zstd with its size.
#[derive(Default)]
struct Packed {
    headers: Option<Vec<u8>>,
    body: Option<Vec<u8>>,
    body_bytes: Option<u64>,
}

impl Packed {
    /// Also returns whether the body is not there because it is damaged.
    async fn open(self) -> Result<(Vec<(String, String)>, Option<Blob>, bool), Error> {
        let headers = codec::header_lines(&self.headers.unwrap_or_default());
        let Some((body, bytes)) = self.body.zip(self.body_bytes) else {
            return Ok((headers, None, false));
        };
        let body = codec::decompress(body, usize::try_from(bytes).unwrap_or(usize::MAX)).await;
        let body = codec::if_whole(body).map_err(|error| unreadable("body", error))?;
        let damaged = body.is_none();
        Ok((headers, body, damaged))
    }
}

from_row! {
    Packed { headers, body, body_bytes }
}

impl Admin {
    /// Everything about the events with this id (several: variants, or several sources), but the bodies of other
    /// variants than the one that is given.
    pub async fn show(
        &self,
        source: Option<Name>,
        event: EventId,
        variant: Option<u32>,
    ) -> Result<Vec<EventDetail>, Error> {
        let mut reading = self.look().snapshot(None).await?;
        let found: Vec<ListedEvent> = reading.all(EVENTS, &[&source, &event]).await?;
        let rows: Vec<_> = found.iter().map(|listed| (listed.row, listed.digest)).collect();
        let events = with_jobs(&mut reading, found).await?;
        let mut shown = Vec::with_capacity(events.len());
        for (event, key) in events.into_iter().zip(rows) {
            shown.push(detail(&mut reading, event, key, variant).await?);
        }
        Ok(shown)
    }
}

async fn detail(
    reading: &mut Reading<'_>,
    event: EventRow,
    (row, digest): (i64, Digest),
    variant: Option<u32>,
) -> Result<EventDetail, Error> {
    let is_wanted = variant.is_none_or(|variant| variant == event.variant);
    let payload: Option<Packed> = reading.one(PAYLOAD, &[&row, &is_wanted]).await?;
    let (headers, body, damaged) = payload.unwrap_or_default().open().await?;
    let key = match reading.rows(KEY, &[&row]).await?.first() {
        Some(row) => {
            let (headers, body, damaged) = Packed::from_row(row)?.open().await?;
            Some(KeyRow { headers, body, damaged, ..KeyRow::from_row(row)? })
        }
        None => None,
    };
    Ok(EventDetail {
        digest: digest.to_string(),
        headers,
        body,
        damaged,
        jobs: jobs(reading, row).await?,
        twins: reading.all(TWINS, &[&event.source, &digest, &row]).await?,
        restores: reading.all(RESTORES, &[&event.received_at, &None::<i64>]).await?,
        key,
        event,
    })
}

async fn jobs(reading: &mut Reading<'_>, event: i64) -> Result<Vec<JobDetail>, Error> {
    let jobs: Vec<Numbered<JobRow>> = reading.all(JOBS, &[&event]).await?;
    let rows: Vec<i64> = jobs.iter().map(|job| job.row).collect();
    let mut attempts: HashMap<i64, _> = reading.by_row(ATTEMPTS, &[&rows]).await?;
    let mut former_keys: HashMap<i64, _> = reading.by_row(FORMER_KEYS, &[&rows]).await?;
    let detail = |Numbered { row, of: job }| JobDetail {
        job,
        attempts: attempts.remove(&row).unwrap_or_default(),
        former_keys: former_keys.remove(&row).unwrap_or_default(),
    };
    Ok(jobs.into_iter().map(detail).collect())
}
