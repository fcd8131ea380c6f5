//! FIND: the event or job that an operator means by an id or by its beginning, and how much of an id is
//! enough. Every look is a range of an index.
//!
//! The beginning, and not the end: ids are indexed from their beginnings. A job's id begins with the
//! millisecond in which it was made, so two groups of it that are enough today stay enough.

use rusqlite::{Connection, Row, params};

use crate::model::{EventId, JobId, Name};
use crate::store::border::{Error, IdKind, IdMatch, IdQuery, LEAST_CHARS};
use crate::store::decide::ids::{FoundId, NAMED, short_forms, uuids};
use crate::store::sqlite::engine::verb::VerbError;
use crate::store::sqlite::tables::codec;

use super::handle::Admin;
use super::list::{find_row, sources};

impl Admin {
    pub async fn find(&self, typed: IdQuery) -> Result<IdMatch, Error> {
        self.engine.look_up(move |conn| find(conn, &typed)).await
    }

    pub async fn shorten(&self, kind: IdKind, ids: Vec<String>) -> Result<Vec<usize>, Error> {
        self.engine
            .list(codec::size(ids.len()), move |conn| {
                let sources = sources(conn, None)?;
                ids.iter().map(|id| enough(conn, &sources, kind, id)).collect()
            })
            .await
    }
}

fn find(conn: &Connection, typed: &IdQuery) -> Result<IdMatch, VerbError> {
    let IdQuery { kind, text, source } = typed;
    let sources = sources(conn, source.clone())?;
    // A source is named for events only.
    let kind = if source.is_some() { IdKind::Event } else { *kind };
    if let Some(found) = exactly(conn, &sources, kind, text)? {
        return Ok(found);
    }
    let mut ids = Vec::new();
    if text.len() >= LEAST_CHARS {
        ids = beginning(conn, &sources, kind, text, NAMED + 1)?;
    }
    match FoundId::only(ids, text, typed.kind.noun())? {
        FoundId::Event(event) => Ok(IdMatch::Event(event)),
        FoundId::Job(job) => Ok(job_of(conn, job)?.ok_or(Error::NoJob(job))?),
    }
}

fn job_of(conn: &Connection, job: JobId) -> rusqlite::Result<Option<IdMatch>> {
    Ok(find_row(conn, job)?.map(|row| IdMatch::Job(Box::new(row))))
}

fn exactly(
    conn: &Connection,
    sources: &[Name],
    kind: IdKind,
    text: &str,
) -> rusqlite::Result<Option<IdMatch>> {
    if kind != IdKind::Job {
        let event = EventId::asked(text);
        // By the unique (source, id, variant).
        let mut select =
            conn.prepare_cached("SELECT 1 FROM event WHERE source = ?1 AND event_id = ?2")?;
        for source in sources {
            if select.exists(params![source.as_str(), codec::stored_id(&event)])? {
                return Ok(Some(IdMatch::Event(event)));
            }
        }
    }
    match text.parse() {
        Ok(job) if kind != IdKind::Event => job_of(conn, job),
        _ => Ok(None),
    }
}

/// The ids that begin so, `most` of them.
fn beginning(
    conn: &Connection,
    sources: &[Name],
    kind: IdKind,
    text: &str,
    most: usize,
) -> rusqlite::Result<Vec<FoundId>> {
    let (uuids, limit) = (uuids(text), codec::size(most));
    let mut found = Vec::new();
    if kind != IdKind::Job {
        for source in sources.iter().map(Name::as_str) {
            let mut texts = conn.prepare_cached(TEXT_IDS)?;
            for id in texts.query_map(params![source, text, limit], event_of)? {
                found.push(id?);
            }
            if let Some((first, last)) = uuids {
                let mut uuids = conn.prepare_cached(UUID_IDS)?;
                let range = params![source, first.as_bytes(), last.as_bytes(), limit];
                for id in uuids.query_map(range, event_of)? {
                    found.push(id?);
                }
            }
        }
    }
    if let (true, Some((first, last))) = (kind != IdKind::Event, uuids) {
        let mut jobs = conn.prepare_cached(JOB_IDS)?;
        let range = params![first.as_bytes(), last.as_bytes(), limit];
        for id in jobs.query_map(range, |row| codec::job_id(row, 0))? {
            found.push(FoundId::Job(id?));
        }
    }
    // One id of several sources.
    let mut distinct: Vec<FoundId> = Vec::new();
    for id in found {
        if !distinct.contains(&id) && distinct.len() < most {
            distinct.push(id);
        }
    }
    Ok(distinct)
}

fn event_of(row: &Row<'_>) -> rusqlite::Result<FoundId> {
    codec::event_id(row, 0).map(FoundId::Event)
}

/// Ids of source `?1` kept as text, from `?2` on. The highest character of an id is `~`, and what follows
/// it ends the range.
pub(crate) const TEXT_IDS: &str = "SELECT DISTINCT event_id FROM event
     WHERE source = ?1 AND event_id >= ?2 AND event_id < ?2 || char(127) LIMIT ?3";

/// Ids of source `?1` kept as 16 bytes.
pub(crate) const UUID_IDS: &str = "SELECT DISTINCT event_id FROM event
     WHERE source = ?1 AND event_id BETWEEN ?2 AND ?3 LIMIT ?4";

/// Jobs by the unique id.
pub(crate) const JOB_IDS: &str = "SELECT id FROM job WHERE id BETWEEN ?1 AND ?2 LIMIT ?3";

fn enough(conn: &Connection, sources: &[Name], kind: IdKind, id: &str) -> rusqlite::Result<usize> {
    for text in short_forms(id) {
        if beginning(conn, sources, kind, text, 2)?.len() < 2 {
            return Ok(text.len());
        }
    }
    Ok(id.len())
}
