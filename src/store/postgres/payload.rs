//! What a handler gets for an attempt, read after the claim is committed, on a connection that writes nothing.

use tokio::sync::Mutex;
use tokio_postgres::{Error, Row};

use crate::model::{EventType, Facts, Headers, Timestamp};
use crate::store::border::{Claimed, Refused};
use crate::store::codec;

use super::claim::{NodeAttempt, uuid};
use super::connection::{Connection, Target, describe};

/// A job's event with its payload, each by its key. No payload where retention has deleted it.
const READ: &str = "
    SELECT job.replays, event.type, event.raw_type, event.received_at, event.body_bytes, payload.headers, payload.body
    FROM job JOIN event ON event.row = job.event LEFT JOIN payload ON payload.event = job.event
    WHERE job.id = $1";

/// Reads payloads, and connects again after each loss.
pub(super) struct Payloads {
    target: Target,
    connection: Mutex<Option<Connection>>,
}

impl Payloads {
    pub(super) fn new(target: Target) -> Self {
        Payloads { target, connection: Mutex::new(None) }
    }

    /// None where the payload is gone or cannot be unpacked: such a job must not run (R19).
    pub(super) async fn read(&self, attempt: &NodeAttempt) -> Result<Option<Claimed>, Refused> {
        let row = self.ask(attempt).await.map_err(Refused::Unreachable)?;
        let unreadable = |error: Error| Refused::Failed(describe(&error));
        let Some(row) = row else { return Ok(None) };
        let Some(body) = row.try_get::<_, Option<Vec<u8>>>(6).map_err(unreadable)? else {
            return Ok(None);
        };
        let bytes: i64 = row.try_get(4).map_err(unreadable)?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let body = match codec::decompress(body, bytes).await {
            Ok(body) => body,
            Err(error) => {
                let job = attempt.running.job;
                tracing::error!(%job, %error, "the stored body cannot be read");
                return Ok(None);
            }
        };
        claimed(attempt, &row, body).map(Some).map_err(unreadable)
    }

    async fn ask(&self, attempt: &NodeAttempt) -> Result<Option<Row>, String> {
        let mut kept = self.connection.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target).await.map_err(|error| error.to_string())?,
        };
        let failed = |error: Error| describe(&error);
        let read = connection.statement(READ).await.map_err(failed)?;
        let job = uuid(&attempt.running.job);
        let row = connection.client.query_opt(&read, &[&job]).await.map_err(failed)?;
        // After an error it is dropped, and the next reader connects.
        *kept = Some(connection);
        Ok(row)
    }
}

fn claimed(attempt: &NodeAttempt, row: &Row, body: Vec<u8>) -> Result<Claimed, Error> {
    let running = &attempt.running;
    let replays: i64 = row.try_get(0)?;
    let raw: Option<Vec<u8>> = row.try_get(2)?;
    let raw = raw.map(|raw| String::from_utf8_lossy(&raw).into_owned());
    let headers: Option<Vec<u8>> = row.try_get(5)?;
    let facts = Facts {
        handler: running.handler.clone(),
        job: running.job,
        attempt: running.attempt,
        replays: u32::try_from(replays).unwrap_or(u32::MAX),
        source: running.source.clone(),
        caller: None,
        event_id: running.event_id.clone(),
        event_type: EventType::from_parts(row.try_get(1)?, raw.as_deref()),
        received_at: Timestamp(row.try_get(3)?),
        headers: Headers::from_wire(&headers.unwrap_or_default()),
        body: body.into(),
    };
    Ok(Claimed { facts, counted: running.counted, since: running.since })
}
