//! FIND: the event or job that an operator means by an id or by its beginning, and how much of an id is
//! enough. Every look is a range of an index.

use std::collections::HashMap;

use crate::model::{EventId, Name};
use crate::store::border::{Error, IdKind, IdMatch, IdQuery, JobRow, LEAST_CHARS};
use crate::store::codec;
use crate::store::columns::{Cells, FromRow, column};
use crate::store::decide::ids::{FoundId, NAMED, short_forms, uuids};

use super::super::reader::Reading;
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
    " CROSS JOIN LATERAL (
        SELECT FROM event WHERE source = s.source AND event_id = $2 LIMIT 1) e LIMIT 1"
);

/// The ids that begin with each of $2: $5 event ids of each source where $6 is true, and $5 job ids from $3 to $4 where
/// $7 is true. The highest character of an id is `~`, and what follows it ends the range.
const IDS: &str = concat!(
    "SELECT b.beginning AS row, f.event, f.job
    FROM unnest($2::text[], $3::uuid[], $4::uuid[]) b (beginning, first, last)
    CROSS JOIN LATERAL (
        SELECT e.event_id AS event, NULL::uuid AS job FROM ",
    sources!(),
    " CROSS JOIN LATERAL (
            SELECT DISTINCT event_id FROM event WHERE source = s.source AND event_id >= b.beginning
                AND event_id < b.beginning || chr(127) ORDER BY event_id LIMIT $5) e WHERE $6
        UNION ALL (SELECT NULL, id FROM job
            WHERE $7 AND id BETWEEN b.first AND b.last ORDER BY id LIMIT $5)) f"
);

impl FromRow for FoundId {
    fn from_row(row: &impl Cells) -> Result<Self, Error> {
        Ok(match column(row, "event")? {
            Some(event) => FoundId::Event(event),
            None => FoundId::Job(column(row, "job")?),
        })
    }
}

impl Admin {
    /// The event or job that is meant. The whole id of one always means it.
    pub async fn find(&self, typed: IdQuery) -> Result<IdMatch, Error> {
        let IdQuery { kind, text, source } = &typed;
        // A source is named for events only.
        let jobs = *kind != IdKind::Event && source.is_none();
        let events = *kind != IdKind::Job || source.is_some();
        let mut reading = self.look().snapshot(None).await?;
        let job = |row: JobRow| IdMatch::Job(Box::new(row));
        let id = EventId::asked(text);
        if events && reading.one::<(bool,)>(EVENT, &[source, &id.as_str()]).await?.is_some() {
            return Ok(IdMatch::Event(id));
        }
        if let (true, Ok(id)) = (jobs, text.parse()) {
            match find_job(&mut reading, id).await {
                Err(Error::NoJob(_)) => {}
                found => return found.map(job),
            }
        }
        let mut found = Vec::new();
        if text.len() >= LEAST_CHARS {
            let sought = (events, jobs, NAMED + 1);
            let ids = beginning(&mut reading, source, vec![text], sought).await?;
            found = ids.into_values().flatten().collect();
        }
        match FoundId::only(found, text, kind.noun())? {
            FoundId::Event(event) => Ok(IdMatch::Event(event)),
            FoundId::Job(id) => find_job(&mut reading, id).await.map(job),
        }
    }

    /// How many characters of each of these ids are enough to find it among what `kind` says.
    pub async fn shorten(&self, kind: IdKind, ids: Vec<String>) -> Result<Vec<usize>, Error> {
        let mut reading = self.listing(codec::size(ids.len())).await?;
        let sought = (kind != IdKind::Job, kind != IdKind::Event, 2);
        let beginnings = ids.iter().flat_map(|id| short_forms(id)).collect();
        let found = beginning(&mut reading, &None, beginnings, sought).await?;
        let enough = |id: &String| {
            let is_own = |text: &&str| {
                found.get(*text).is_none_or(|found| found.iter().all(|found| found.is(id)))
            };
            short_forms(id).find(is_own).unwrap_or(id).len()
        };
        Ok(ids.iter().map(enough).collect())
    }
}

/// The ids that begin with each of these texts, `most` of the events of each source and of the jobs.
async fn beginning(
    reading: &mut Reading<'_>,
    source: &Option<Name>,
    texts: Vec<&str>,
    (events, jobs, most): (bool, bool, usize),
) -> Result<HashMap<String, Vec<FoundId>>, Error> {
    // The beginning of an id is an id itself.
    let texts: Vec<&str> =
        texts.into_iter().filter(|text| text.parse::<EventId>().is_ok()).collect();
    let (first, last): (Vec<_>, Vec<_>) = texts.iter().map(|text| uuids(text).unzip()).unzip();
    let most = codec::size(most);
    reading.by_row(IDS, &[source, &texts, &first, &last, &most, &events, &jobs]).await
}
