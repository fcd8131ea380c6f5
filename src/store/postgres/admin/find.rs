//! FIND: the event or job that an operator means by an id or by its beginning, and how much of an id is
//! enough. Every look is a range of an index.

use std::collections::HashMap;

use uuid::Uuid;

use crate::model::{EventId, JobId};
use crate::store::border::{Error, IdKind, IdMatch, IdQuery, JobRow, LEAST_CHARS};
use crate::store::codec;
use crate::store::decide::ids::{FoundId, NAMED, short_lengths, uuids};

use super::filter::Value;
use super::handle::Admin;
use super::rows::find_job;

/// Source $1, or each that has an event, by name: one look at an index for each.
macro_rules! sources {
    () => {
        r#"(WITH RECURSIVE next (source) AS (
            SELECT coalesce($1::text COLLATE "C", (SELECT min(source) FROM event))
            UNION ALL SELECT (SELECT min(e.source) FROM event e WHERE e.source > next.source)
            FROM next WHERE $1 IS NULL AND next.source IS NOT NULL) SELECT source FROM next) s"#
    };
}
pub(super) use sources;

/// Whether a source has an event with the id $2.
const EVENT: &str = concat!(
    "SELECT true FROM ",
    sources!(),
    " CROSS JOIN LATERAL (SELECT FROM event WHERE source = s.source AND event_id = $2 LIMIT 1) e LIMIT 1"
);

/// $3 event ids of each source that begin with $2, where $4 is true, and as many job ids from $5 to $6. The highest
/// character of an id is `~`, and what follows it ends the range.
const IDS: &str = concat!(
    "SELECT e.event_id, NULL::uuid FROM ",
    sources!(),
    " CROSS JOIN LATERAL (SELECT DISTINCT event_id FROM event WHERE source = s.source
        AND event_id >= $2 AND event_id < $2 || chr(127) ORDER BY event_id LIMIT $3) e WHERE $4
    UNION ALL (SELECT NULL, id FROM job WHERE id BETWEEN $5 AND $6 ORDER BY id LIMIT $3)"
);

/// The ids next to each of $2: those that share the longest beginning with it are among them. $3 and $4 are the first
/// and the last job id with as much of its beginning as a job id can have. $5, $6: events, jobs.
const NEIGHBOURS: &str = concat!(
    "SELECT own.id, near.id AS near
    FROM unnest($2::text[], $3::uuid[], $4::uuid[]) own (id, first, last)
    CROSS JOIN LATERAL (
        SELECT e.id FROM ",
    sources!(),
    r#" CROSS JOIN LATERAL (
            (SELECT event_id AS id FROM event WHERE source = s.source AND event_id < own.id COLLATE "C"
                ORDER BY event_id DESC LIMIT 1)
            UNION ALL (SELECT event_id FROM event WHERE source = s.source
                AND event_id > own.id COLLATE "C" ORDER BY event_id LIMIT 1)) e WHERE $5
        UNION ALL (SELECT id::text FROM job WHERE $6 AND id <= own.last AND id::text <> own.id
            ORDER BY job.id DESC LIMIT 1)
        UNION ALL (SELECT id::text FROM job WHERE $6 AND id >= own.first AND id::text <> own.id
            ORDER BY job.id LIMIT 1)
    ) near"#
);

impl Admin {
    /// The event or job that is meant. The whole id of one always means it.
    pub async fn find(&self, typed: IdQuery) -> Result<IdMatch, Error> {
        let IdQuery { kind, text, source } = &typed;
        // A source is named for events only.
        let jobs = *kind != IdKind::Event && source.is_none();
        let events = *kind != IdKind::Job || source.is_some();
        let mut reading = self.look().snapshot(None).await?;
        let job = |row: JobRow| IdMatch::Job(Box::new(row));
        if let (true, Ok(id)) = (events, text.parse())
            && reading.one::<(bool,)>(EVENT, &[source, text]).await?.is_some()
        {
            return Ok(IdMatch::Event(id));
        }
        if let (true, Ok(id)) = (jobs, text.parse()) {
            match find_job(&mut reading, id).await {
                Err(Error::NoJob(_)) => {}
                found => return found.map(job),
            }
        }
        let mut ids: Vec<(Option<EventId>, Option<JobId>)> = Vec::new();
        // The beginning of an id is an id itself.
        if text.len() >= LEAST_CHARS && text.parse::<EventId>().is_ok() {
            let (first, last) = uuids(text).filter(|_| jobs).unzip();
            let most = codec::size(NAMED + 1);
            ids = reading.all(IDS, &[source, text, &most, &events, &first, &last]).await?;
        }
        let found = |(event, job): (Option<_>, Option<_>)| {
            event.map(FoundId::Event).or(job.map(FoundId::Job))
        };
        match FoundId::only(ids.into_iter().filter_map(found).collect(), text, kind.noun())? {
            FoundId::Event(event) => Ok(IdMatch::Event(event)),
            FoundId::Job(id) => find_job(&mut reading, id).await.map(job),
        }
    }

    /// How many characters of each of these ids are enough to find it among what `kind` says.
    pub async fn shorten(&self, kind: IdKind, ids: Vec<String>) -> Result<Vec<usize>, Error> {
        let mut reading = self.listing(codec::size(ids.len())).await?;
        let own: Vec<&String> = ids.iter().filter(|id| id.parse::<EventId>().is_ok()).collect();
        let (first, last): (Vec<Uuid>, Vec<Uuid>) = own.iter().map(|id| longest_uuids(id)).unzip();
        let values: [Value<'_>; 6] =
            [&None::<&str>, &own, &first, &last, &(kind != IdKind::Job), &(kind != IdKind::Event)];
        let mut shared: HashMap<String, usize> = HashMap::new();
        for (id, near) in reading.all::<(String, String)>(NEIGHBOURS, &values).await? {
            let pairs = id.bytes().zip(near.bytes());
            let equal = pairs.take_while(|(one, other)| one == other).count();
            let longest = shared.entry(id).or_default();
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
    let longest = (1..=id.len().min(36)).rev().find_map(|length| uuids(id.get(..length)?));
    longest.unwrap_or((Uuid::max(), Uuid::nil()))
}
