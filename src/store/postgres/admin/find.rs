//! FIND: the event or job that an operator means by an id or by its beginning, and how much of an id is
//! enough. Every look is a range of an index.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{EventId, JobId};
use crate::store::border::{Error, IdKind, IdMatch, IdQuery, LEAST_CHARS};
use crate::store::codec;
use crate::store::decide::ids::{FoundId, NAMED, short_lengths, uuids};

use super::super::columns::Columns;
use super::super::reader::Reading;
use super::handle::Admin;
use super::rows::find_job;

/// The sources that have an event, by name; of them $1 alone where that is given.
macro_rules! sources {
    () => {
        concat!(
            "(SELECT value AS source FROM (",
            super::rows::next_values!("source", "event", "true"),
            ") every WHERE $1::text IS NULL OR value = $1) s"
        )
    };
}
pub(super) use sources;

/// Whether a source has an event with the id $2.
const EVENT: &str = concat!(
    "SELECT true FROM ",
    sources!(),
    " CROSS JOIN LATERAL (SELECT FROM event WHERE source = s.source AND event_id = $2 LIMIT 1) e LIMIT 1"
);

/// $3 event ids of each source that begin with $2. The highest character of an id is `~`, and what follows it ends the
/// range.
const EVENT_IDS: &str = concat!(
    "SELECT e.event_id FROM ",
    sources!(),
    " CROSS JOIN LATERAL (SELECT DISTINCT event_id FROM event WHERE source = s.source AND event_id >= $2
        AND event_id < $2 || chr(127) ORDER BY event_id LIMIT $3) e"
);

const JOB_IDS: &str = "SELECT id FROM job WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT $3";

/// The ids next to each of $2: those that share the longest beginning with it are among them. $3 and $4 are the first
/// and the last job id with as much of its beginning as a job id can have. $5, $6: events, jobs.
const NEIGHBOURS: &str = concat!(
    "SELECT own.id, near.id AS near
    FROM unnest($2::text[], $3::uuid[], $4::uuid[]) own (id, first, last)
    CROSS JOIN LATERAL (
        SELECT e.id FROM ",
    sources!(),
    " CROSS JOIN LATERAL (
            (SELECT event_id AS id FROM event WHERE source = s.source AND event_id < own.id COLLATE \"C\"
                ORDER BY event_id DESC LIMIT 1)
            UNION ALL (SELECT event_id FROM event WHERE source = s.source AND event_id > own.id COLLATE \"C\"
                ORDER BY event_id LIMIT 1)) e WHERE $5
        UNION ALL (SELECT id::text FROM job WHERE $6 AND id <= own.last AND id::text <> own.id
            ORDER BY job.id DESC LIMIT 1)
        UNION ALL (SELECT id::text FROM job WHERE $6 AND id >= own.first AND id::text <> own.id
            ORDER BY job.id LIMIT 1)
    ) near"
);

impl Admin {
    /// The event or job that is meant. The whole id of one always means it.
    pub async fn find(&self, typed: IdQuery) -> Result<IdMatch, Error> {
        let IdQuery { kind, text, source } = &typed;
        // A source is named for events only.
        let kind = if source.is_some() { IdKind::Event } else { *kind };
        let source = source.as_ref().map(|source| source.as_str());
        let mut reading = self.look().snapshot().await?;
        if let Some(found) = exactly(&mut reading, source, kind, text).await? {
            return Ok(found);
        }
        let mut ids = Vec::new();
        // The beginning of an id is an id itself.
        if text.len() >= LEAST_CHARS && text.parse::<EventId>().is_ok() {
            let most = codec::size(NAMED + 1);
            if kind != IdKind::Job {
                let event = |row: &Row| row.word("event_id").map(FoundId::Event);
                ids = reading.all(EVENT_IDS, &[&source, text, &most], event).await?;
            }
            if let (true, Some((first, last))) = (kind != IdKind::Event, uuids(text)) {
                let job = |row: &Row| row.job_id("id").map(FoundId::Job);
                ids.extend(reading.all(JOB_IDS, &[&first, &last, &most], job).await?);
            }
        }
        match FoundId::only(ids, text, typed.kind.noun())? {
            FoundId::Event(event) => Ok(IdMatch::Event(event)),
            FoundId::Job(job) => {
                let row = find_job(&mut reading, job).await?.ok_or(Error::NoJob(job))?;
                Ok(IdMatch::Job(Box::new(row)))
            }
        }
    }

    /// How many characters of each of these ids are enough to find it among what `kind` says.
    pub async fn shorten(&self, kind: IdKind, ids: Vec<String>) -> Result<Vec<usize>, Error> {
        let mut reading = self.listing(codec::size(ids.len())).await?;
        let own: Vec<&String> = ids.iter().filter(|id| id.parse::<EventId>().is_ok()).collect();
        let bounds: Vec<(Uuid, Uuid)> = own.iter().map(|id| longest_uuids(id)).collect();
        let (first, last): (Vec<Uuid>, Vec<Uuid>) = bounds.into_iter().unzip();
        let (events, jobs) = (kind != IdKind::Job, kind != IdKind::Event);
        let of_all: Option<&str> = None;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&of_all, &own, &first, &last, &events, &jobs];
        let mut shared: std::collections::HashMap<String, usize> = Default::default();
        for row in reading.rows(NEIGHBOURS, &values).await? {
            let (id, near): (&str, &str) = (row.value("id")?, row.value("near")?);
            let equal =
                id.bytes().zip(near.bytes()).take_while(|(one, other)| one == other).count();
            let longest = shared.entry(id.to_owned()).or_default();
            *longest = equal.max(*longest);
        }
        let enough = |id: &String| {
            let shared = shared.get(id).copied().unwrap_or(0);
            short_lengths(id).find(|chars| *chars > shared).unwrap_or(id.len())
        };
        Ok(ids.iter().map(enough).collect())
    }
}

/// The first and the last UUID with as much of the beginning as a UUID can have.
fn longest_uuids(id: &str) -> (Uuid, Uuid) {
    let lengths = (1..=id.len().min(36)).rev();
    let beginnings = lengths.filter_map(|length| uuids(id.get(..length)?));
    beginnings.into_iter().next().unwrap_or((Uuid::max(), Uuid::nil()))
}

async fn exactly(
    reading: &mut Reading<'_>,
    source: Option<&str>,
    kind: IdKind,
    text: &str,
) -> Result<Option<IdMatch>, Error> {
    if kind != IdKind::Job
        && let Ok(event) = text.parse::<EventId>()
        && reading.row(EVENT, &[&source, &text]).await?.is_some()
    {
        return Ok(Some(IdMatch::Event(event)));
    }
    match text.parse::<JobId>() {
        Ok(job) if kind != IdKind::Event => {
            Ok(find_job(reading, job).await?.map(|row| IdMatch::Job(Box::new(row))))
        }
        _ => Ok(None),
    }
}
