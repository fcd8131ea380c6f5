//! The history of the database (N25), what a change of it does (N27), and the roll call that follows (N40).
//!
//! After a change the database may lack claims, ends and events that were committed before. So nothing in it starts by
//! itself: each unfinished job is held. And while a node may run an attempt that the new history does not know, no job is
//! replayed and none of a group is claimed. A row of `roll_call` is such a node, or such an attempt.

use uuid::Uuid;

use super::claim::uuid;
use super::flight::{Flight, Param};
use super::live::LiveAttempts;
use super::params::params;
use super::server_history::ServerHistory;
use super::stop::{Stop, ask};

/// The history that the rows are of, and the one that the server has. `pg_control_checkpoint()` would name the
/// timeline of before a promotion.
const READ: &str = "
    SELECT meta.system, meta.timeline, control.system_identifier::text,
        substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), store_id, is_in_place()
    FROM meta, pg_control_system() control";

/// Waits for the operators' transactions under way, and keeps later ones and other registrations that act waiting.
const LOCK: &str = "SELECT FROM meta FOR UPDATE";

/// Moves the rows to the server's timeline, after a failover to a server that has each commit.
const TAKE_TIMELINE: &str = "UPDATE meta SET timeline = $1 WHERE timeline < $1";

/// Ends all sessions, so that each node registers again, and waits for their transactions. Then no other one changes
/// jobs, so no group needs a lock. Declarations of the history before count for nothing, so each node is called.
///
/// It runs in one transaction, by indexes: an unfinished job that is not held could be claimed. A request with a key
/// whose job had failed may have begun it again, so that job is held, and its stored error is forgotten. A live attempt
/// keeps its runner, which may still have it, and its end comes late. A dead job is put back by no redelivery after a
/// row of `restored` that is not older.
const HOLD_ALL: &str = "
    UPDATE node SET session = '00000000-0000-0000-0000-000000000000' WHERE state = 'active';
    DELETE FROM roll_call;
    INSERT INTO roll_call (node) SELECT id FROM node;
    UPDATE attempt SET outcome = 'unknown', finished_at = greatest(now_ms(), started_at),
        claimant = NULL, detail = 'it ran when the database was restored or another server took over'
    WHERE outcome IS NULL;
    UPDATE answer SET answered_at = NULL, status = NULL, headers = NULL, body = NULL, body_bytes = NULL,
        error_until = NULL
    WHERE error_until IS NOT NULL;
    WITH held AS (
        UPDATE job SET state = 'held', reason = 'restored', due_at = NULL,
            counted = CASE state WHEN 'running' THEN least(attempt, counted + 1) ELSE counted END,
            behind = behind AND group_rule IS DISTINCT FROM 'latest'
        WHERE state = 'ready' AND NOT behind OR state = 'waiting' AND NOT behind OR state = 'running'
            OR behind AND state IN ('ready', 'waiting')
        RETURNING row
    ), failed AS (
        UPDATE job SET state = 'held', reason = 'restored', settled_at = NULL
        WHERE state = 'dead' AND group_key IS NULL
            AND (SELECT answered_at IS NULL FROM answer WHERE answer.event = job.event)
        RETURNING row
    )
    INSERT INTO restored (from_store, restored_at, held)
    SELECT store_id, now_ms(), (SELECT count(*) FROM held) + (SELECT count(*) FROM failed) FROM meta;
    UPDATE job SET behind = false WHERE row IN (
        SELECT DISTINCT ON (handler, group_key) row FROM job b WHERE behind AND NOT EXISTS (SELECT FROM job h
            WHERE h.handler = b.handler AND h.group_key = b.group_key AND h.holds AND NOT h.behind)
        ORDER BY handler, group_key, event);
    UPDATE job SET settled_at = now_ms() WHERE state = 'dead' AND settled_at > now_ms();";

const RENAME: &str = "
    UPDATE meta SET store_id = gen_random_uuid(), system = $1, timeline = $2, own = 'meta'::regclass,
        database = (SELECT oid FROM pg_database WHERE datname = current_database())
    RETURNING store_id, (SELECT held FROM restored ORDER BY row DESC LIMIT 1)";

/// During a roll call of node $1, lists its attempts ($2 jobs, $3 numbers) that do not run in this history.
const LIST: &str = "
    INSERT INTO roll_call (node, job, attempt)
    SELECT $1, own.job, own.number FROM unnest($2::uuid[], $3::bigint[]) own (job, number)
    WHERE EXISTS (SELECT FROM roll_call WHERE node = $1) AND NOT EXISTS (
        SELECT FROM attempt JOIN job ON job.row = attempt.job
        WHERE job.id = own.job AND attempt.number = own.number AND node = $1 AND outcome IS NULL)
    ON CONFLICT DO NOTHING";

/// The node has answered, and lists nothing else.
const ANSWERED: &str = "
    DELETE FROM roll_call WHERE node = $1 AND (job IS NULL
        OR NOT EXISTS (SELECT FROM unnest($2::uuid[], $3::bigint[]) own (job, number)
            WHERE own.job = roll_call.job AND own.number = attempt))";

impl ServerHistory {
    /// The server's history, and whether claims or ends may be missing in its rows. Where commits wait for a standby and a
    /// failover promotes only one that has each of them, a later timeline changes nothing (N26).
    pub(super) async fn read(flight: &mut Flight) -> Result<(Self, bool), Stop> {
        let (found, is_other) = Self::look(flight).await?;
        if !is_other {
            return Ok((found, false));
        }
        // Another node may be acting on the change.
        flight.send(LOCK, Vec::new()).await;
        Self::look(flight).await
    }

    async fn look(flight: &mut Flight) -> Result<(Self, bool), Stop> {
        let require_standby = flight.require_standby();
        let row = ask(flight, READ, Vec::new()).await?.first().ok_or(Stop::Changed)?;
        let (system, timeline): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let found = ServerHistory {
            system: row.try_get(2)?,
            timeline: row.try_get(3)?,
            store: row.try_get(4)?,
        };
        let is_known = row.try_get(5)?
            && found.system == system
            && (found.timeline == timeline || require_standby && found.timeline > timeline);
        if is_known && found.timeline > timeline {
            flight.send(TAKE_TIMELINE, vec![Box::new(found.timeline.clone())]).await;
        }
        Ok((found, !is_known))
    }

    /// Begins a new history in the rows.
    pub(super) async fn begin(&mut self, flight: &mut Flight) -> Result<(), Stop> {
        flight.send(LOCK, Vec::new()).await;
        flight.run(HOLD_ALL);
        let server: Vec<Param> =
            vec![Box::new(self.system.clone()), Box::new(self.timeline.clone())];
        let row = ask(flight, RENAME, server).await?.first().ok_or(Stop::Changed)?;
        self.store = row.try_get(0)?;
        let held: i64 = row.try_get(1)?;
        tracing::warn!(history = %self, held, "the database was restored, or has lost commits: its unfinished jobs are held");
        Ok(())
    }
}

/// Answers a roll call, where the node is called and the process knows what its runners may list.
pub(super) async fn answer(flight: &mut Flight, node: Uuid, live: &LiveAttempts) {
    let Some(keys) = live.keys() else { return };
    let jobs: Vec<Uuid> = keys.iter().map(|(job, _)| uuid(job)).collect();
    let numbers: Vec<i64> = keys.iter().map(|(_, number)| i64::from(*number)).collect();
    for sql in [LIST, ANSWERED] {
        flight.send(sql, params![node, jobs.clone(), numbers.clone()]).await;
    }
}
