//! FIND: the event or job that an operator means by an id or by its beginning, and how much of an id is
//! enough. Every look is a range of an index.
//!
//! The beginning, and not the end: ids are indexed from their beginnings. A job's id begins with the
//! millisecond in which it was made, so two groups of it that are enough today stay enough.

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::model::{EventId, JobId, Name};
use crate::store::border::{Error, IdKind, IdMatch, IdQuery, LEAST_CHARS};
use crate::store::sqlite::engine::verb::VerbError;
use crate::store::sqlite::tables::codec;

use super::handle::Admin;
use super::list::{find_row, sources};

/// Most ids that an error names.
const NAMED: usize = 5;

/// Lengths that an id is shortened to, the first that is enough: a UUID's groups end there.
const SHORT_CHARS: [usize; 8] = [8, 13, 18, 23, 30, 40, 60, 100];

/// An id is shortened by no fewer characters.
const LEAST_SAVED: usize = 4;

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
    match ids.as_slice() {
        [] => {
            let noun = match typed.kind {
                IdKind::Event => "event",
                IdKind::Job => "job",
                IdKind::Any => "event or job",
            };
            Err(Error::NoId { text: text.clone(), noun }.into())
        }
        [Id::Event(event)] => Ok(IdMatch::Event(event.clone())),
        [Id::Job(job)] => Ok(job_of(conn, *job)?.ok_or(Error::NoJob(*job))?),
        several => {
            let mut named: Vec<String> = several.iter().take(NAMED).map(Id::named).collect();
            if several.len() > NAMED {
                named.push("…".to_owned());
            }
            Err(Error::SeveralIds { text: text.clone(), ids: named.join(", ") }.into())
        }
    }
}

/// An id that was found.
#[derive(PartialEq, Eq)]
enum Id {
    Event(EventId),
    Job(JobId),
}

impl Id {
    fn named(&self) -> String {
        match self {
            Id::Event(id) => format!("event {id}"),
            Id::Job(id) => format!("job {id}"),
        }
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
    if kind != IdKind::Job
        && let Ok(event) = text.parse::<EventId>()
    {
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
) -> rusqlite::Result<Vec<Id>> {
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
                for id in uuids.query_map(params![source, first, last, limit], event_of)? {
                    found.push(id?);
                }
            }
        }
    }
    if let (true, Some((first, last))) = (kind != IdKind::Event, uuids) {
        let mut jobs = conn.prepare_cached(JOB_IDS)?;
        for id in jobs.query_map(params![first, last, limit], |row| codec::job_id(row, 0))? {
            found.push(Id::Job(id?));
        }
    }
    // One id of several sources.
    let mut distinct: Vec<Id> = Vec::new();
    for id in found {
        if !distinct.contains(&id) && distinct.len() < most {
            distinct.push(id);
        }
    }
    Ok(distinct)
}

fn event_of(row: &Row<'_>) -> rusqlite::Result<Id> {
    codec::event_id(row, 0).map(Id::Event)
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

/// The first and the last UUID whose text begins so; none where none does.
fn uuids(beginning: &str) -> Option<([u8; 16], [u8; 16])> {
    let rest = "00000000-0000-0000-0000-000000000000".get(beginning.len()..)?;
    let first = Uuid::try_parse(&format!("{beginning}{rest}")).ok()?;
    let last = Uuid::try_parse(&format!("{beginning}{}", rest.replace('0', "f"))).ok()?;
    // Not the other ways in which a UUID may be written.
    let is_ours = first.to_string().starts_with(beginning);
    is_ours.then(|| (first.into_bytes(), last.into_bytes()))
}

fn enough(conn: &Connection, sources: &[Name], kind: IdKind, id: &str) -> rusqlite::Result<usize> {
    // Version 7 begins with the time: the ids of a whole minute share their first group.
    let by_time = Uuid::try_parse(id).is_ok_and(|id| id.get_version_num() == 7);
    let least = if by_time { SHORT_CHARS[1] } else { SHORT_CHARS[0] };
    for chars in SHORT_CHARS
        .into_iter()
        .filter(|chars| (least..id.len().saturating_sub(LEAST_SAVED)).contains(chars))
    {
        // An id is ASCII.
        let Some(text) = id.get(..chars) else { break };
        if beginning(conn, sources, kind, text, 2)?.len() < 2 {
            return Ok(chars);
        }
    }
    Ok(id.len())
}
