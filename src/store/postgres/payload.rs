//! What handlers get for their attempts, read after the claim is committed, on a connection that writes nothing.

use std::io;
use std::slice;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::model::{EventType, Facts, Headers, JobId, Name, Timestamp};
use crate::store::border::{self, Claimed, Refused};
use crate::store::columns::column;
use crate::store::sum::KeptPayload;

use super::claim::{NodeAttempt, uuid};
use super::connection::{Target, describe};
use super::reader::{Reader, Reading};

/// The events of these jobs ($1 ids) with their payloads, and who has asked, each by its key.
const READ: &str = "
    SELECT job.replays, event.type, event.raw_type, event.received_at, event.body_bytes, payload.headers, payload.body,
        nullif(answer.caller, ''), job.id, payload.sum
    FROM job JOIN event ON event.row = job.event JOIN payload ON payload.event = job.event
    LEFT JOIN answer ON answer.event = job.event
    WHERE job.id = ANY ($1::uuid[])";

/// The next jobs of handler $1 that a claim may take, twice $2 at most: each half by the index of its state.
const NEXT: &str = "
    (SELECT id FROM job WHERE handler = $1 AND state = 'ready' AND NOT behind ORDER BY handler, row LIMIT $2)
    UNION ALL
    (SELECT id FROM job WHERE handler = $1 AND state = 'waiting' AND NOT behind AND due_at <= now_ms()
    ORDER BY due_at, row LIMIT $2)";

/// What a claim reads of these jobs ($1 ids) beside their own rows.
const LOOK: &str = "
    SELECT source, event_id, EXISTS (SELECT FROM payload WHERE payload.event = job.event)
    FROM job JOIN event ON event.row = job.event WHERE job.id = ANY ($1::uuid[])";

pub(super) struct Payloads {
    target: Target,
    reader: ArcSwap<Reader>,
}

impl Payloads {
    pub(super) fn new(target: Target) -> Self {
        Payloads { reader: ArcSwap::from_pointee(Reader::new(target.clone())), target }
    }

    /// Connects, where it is not connected.
    pub(super) async fn connect(&self) -> Result<(), border::Error> {
        self.reader.load_full().read().await.map(drop)
    }

    /// Reads on another connection from now on: after a registration, and where this one gave what cannot be read.
    pub(super) fn renew(&self) {
        self.reader.store(Arc::new(Reader::new(self.target.clone())));
    }

    /// Reads the payload of each attempt, in their order. An inner error says why a payload cannot be read: such a job
    /// must not run (R19). The outer one says that the database cannot be reached.
    pub(super) async fn read(
        &self,
        attempts: &[NodeAttempt],
    ) -> Result<Vec<io::Result<Claimed>>, Refused> {
        let mut found = Vec::with_capacity(attempts.len());
        match self.ask(attempts).await.map_err(Refused::Unreachable)? {
            Ok(rows) => {
                for attempt in attempts {
                    found.push(of(attempt, &rows).await);
                }
            }
            // The others can be read.
            Err(_) => {
                for attempt in attempts {
                    let rows = self.ask(slice::from_ref(attempt)).await;
                    found.push(match rows.map_err(Refused::Unreachable)? {
                        Ok(rows) => of(attempt, &rows).await,
                        Err(why) => Err(why),
                    });
                }
            }
        }
        Ok(found)
    }

    /// Those of a handler's next jobs that keep a claim from being committed: the server cannot read what it looks at.
    pub(super) async fn unclaimable(
        &self,
        handler: &Name,
        most: i64,
    ) -> Result<Vec<JobId>, border::Error> {
        let reader = self.reader.load_full();
        let mut reading = reader.read().await?;
        let rows = reading.rows(NEXT, &[&handler.as_str(), &most]).await?;
        let jobs: Vec<JobId> =
            rows.iter().map(|row| column(row, "id")).collect::<Result<_, _>>()?;
        let mut found = Vec::new();
        if is_unread(&mut reading, &jobs).await {
            for job in &jobs {
                if is_unread(&mut reading, slice::from_ref(job)).await {
                    found.push(*job);
                }
            }
        }
        Ok(found)
    }

    /// An inner error says why the server itself cannot read one of them.
    async fn ask(&self, attempts: &[NodeAttempt]) -> Result<io::Result<Vec<Row>>, String> {
        let failed = |error: border::Error| match error {
            border::Error::Unavailable(why) => why,
            other => other.to_string(),
        };
        let jobs: Vec<Uuid> = attempts.iter().map(|attempt| uuid(&attempt.running.job)).collect();
        let reader = self.reader.load_full();
        let mut reading = reader.read().await.map_err(failed)?;
        let found = reading.rows(READ, &[&jobs]).await.map_err(failed);
        match (found, reading.unread) {
            (Err(why), Some(kind)) => Ok(Err(io::Error::new(kind, why))),
            (found, _) => found.map(Ok),
        }
    }
}

async fn is_unread(reading: &mut Reading<'_>, jobs: &[JobId]) -> bool {
    let jobs: Vec<Uuid> = jobs.iter().map(uuid).collect();
    reading.rows(LOOK, &[&jobs]).await.is_err() && reading.unread.is_some()
}

/// Reads the row of this attempt among `rows`. Fails if it is missing or cannot be read.
async fn of(attempt: &NodeAttempt, rows: &[Row]) -> io::Result<Claimed> {
    let job = attempt.running.job;
    match rows.iter().find(|row| row.try_get(8).ok() == Some(uuid(&job))) {
        Some(row) => read(attempt, row).await,
        None => Err(io::Error::other("its event or payload is not there")),
    }
}

async fn read(attempt: &NodeAttempt, row: &Row) -> io::Result<Claimed> {
    let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, describe(&error));
    let (mut claimed, payload) = stored(attempt, row).map_err(unreadable)?;
    payload.open(&mut claimed.facts).await?;
    Ok(claimed)
}

/// What the handler gets without its payload, and that.
fn stored(attempt: &NodeAttempt, row: &Row) -> Result<(Claimed, KeptPayload), Error> {
    let running = &attempt.running;
    let (replays, bytes): (i64, i64) = (row.try_get(0)?, row.try_get(4)?);
    let raw: Option<Vec<u8>> = row.try_get(2)?;
    let raw = raw.map(|raw| String::from_utf8_lossy(&raw).into_owned());
    let facts = Facts {
        handler: running.handler.clone(),
        job: running.job,
        attempt: running.attempt,
        replays: u32::try_from(replays).unwrap_or(u32::MAX),
        source: running.source.clone(),
        caller: row.try_get(7)?,
        event_id: running.event_id.clone(),
        event_type: EventType::from_parts(row.try_get(1)?, raw.as_deref()),
        received_at: Timestamp(row.try_get(3)?),
        headers: Headers::new(),
        body: Bytes::new(),
    };
    let payload = KeptPayload {
        headers: row.try_get(5)?,
        body: row.try_get(6)?,
        body_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        sum: row.try_get(9)?,
    };
    Ok((Claimed { facts, counted: running.counted, since: running.since }, payload))
}
