//! Wake-ups between nodes (N20), on a connection of their own.
//!
//! A wake-up carries nothing. The node that gets one reads what operators ask of it, and claims. A lost one costs
//! latency: a node also looks every 2 s. NOTIFY is alone in its transaction, since at its commit it takes a lock of the
//! whole server.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::select;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::clock::Clock;
use crate::model::{JobId, Name};
use crate::store::border::Stalled;
use crate::store::columns::column;
use crate::store::mutex::lock;
use crate::store::node::stalls::Stalls;

use super::claim::AttemptKey;
use super::claim_start::{self, ClaimStarts};
use super::columns::stored;
use super::connection::{Connection, Target, describe};

/// How often a node looks without a wake-up.
const TICK: Duration = Duration::from_secs(2);

/// Least time between two wake-ups that a node sends.
const SPACING: Duration = Duration::from_millis(20);

/// The pause between two tries to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// What this connection writes decides nothing, and waits for no flush.
const SET_UP: &str =
    "LISTEN hooklatch; SET default_transaction_read_only = off; SET synchronous_commit = off";
pub(super) const NOTIFY: &str = "NOTIFY hooklatch";
const BACKEND_PID: &str = "SELECT pg_backend_pid()";

/// The paused handlers, the attempts of node $1 that an operator wants to end, with their claimants, and whether other
/// nodes live. Notes that the node was seen, unless that is less than a second ago or a transaction of it is under way.
const LOOK: &str = "
    WITH seen AS (
        UPDATE node SET seen_at = now_ms() WHERE id = (SELECT id FROM node
            WHERE id = $1 AND state = 'active' AND seen_at < now_ms() - 1000 FOR NO KEY UPDATE SKIP LOCKED)
    ), asked AS MATERIALIZED (
        SELECT j.id, a.number, a.claimant FROM attempt a JOIN job j ON j.row = a.job
        WHERE a.node = $1 AND a.outcome IS NULL AND a.cancel_asked ORDER BY a.job, a.number
    )
    SELECT ARRAY(SELECT handler FROM lane WHERE paused_at IS NOT NULL) AS paused,
        ARRAY(SELECT id FROM asked) AS jobs, ARRAY(SELECT number FROM asked) AS numbers,
        ARRAY(SELECT claimant FROM asked) AS claimants,
        EXISTS (SELECT FROM node WHERE id <> $1 AND state = 'active') AS has_others,
        (SELECT sum(mark)::bigint FROM node) AS marks";

/// Wakes the tasks of this node and the other nodes, and keeps what the last look found.
#[derive(Default)]
pub(super) struct Wakeups {
    /// Notifies the one task that claims.
    dispatcher: Arc<Notify>,
    pub(super) count: watch::Sender<u64>,
    /// The other nodes are to be woken.
    others: Notify,
    found: Mutex<Found>,
    /// The sum of all nodes' marks (N25), as of the last look; 0 after a registration.
    pub(super) marks: AtomicI64,
    pub(super) starts: ClaimStarts,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Found {
    paused: Arc<BTreeSet<Name>>,
    cancel_asked: Vec<(AttemptKey, Uuid)>,
    has_others: bool,
}

impl Wakeups {
    /// A commit of this node may have made something ready, for other nodes too.
    pub(super) fn wake_all(&self) {
        self.wake_own();
        self.others.notify_one();
    }

    /// Something may be ready, or answered, at this node.
    pub(super) fn wake_own(&self) {
        self.dispatcher.notify_one();
        self.count.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn dispatcher(&self) -> Arc<Notify> {
        Arc::clone(&self.dispatcher)
    }

    /// Changes with each wake-up.
    pub(super) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    pub(super) fn paused(&self) -> Arc<BTreeSet<Name>> {
        Arc::clone(&lock(&self.found).paused)
    }

    /// The attempts to end, each with its claimant: after the database was put back to an earlier state, the attempt of
    /// another claimant may have the same number.
    pub(super) fn cancel_asked(&self) -> Vec<(AttemptKey, Uuid)> {
        lock(&self.found).cancel_asked.clone()
    }

    /// Wakes the other nodes and is woken by them, and connects again after each loss. Never ends.
    pub(super) async fn run(&self, target: &Target, node: Uuid, stalls: &Stalls, clock: &Clock) {
        loop {
            let Err(why) = self.listen(target, node, stalls).await;
            tracing::warn!(why, "wake-ups of other nodes are not heard");
            stalls.set(Stalled::WakeUps, why, clock.now());
            // Nothing here would learn of a resume; a claim finds a pause by itself. Nor would it learn of a job before
            // the starts.
            let paused = std::mem::take(&mut lock(&self.found).paused);
            if self.starts.forget() || !paused.is_empty() {
                self.wake_own();
            }
            sleep(PAUSE).await;
        }
    }

    async fn listen(
        &self,
        target: &Target,
        node: Uuid,
        stalls: &Stalls,
    ) -> Result<Infallible, String> {
        let failed = |error: Error| describe(&error);
        let mut connection = Connection::open(target).await.map_err(|error| error.to_string())?;
        connection.client.batch_execute(SET_UP).await.map_err(failed)?;
        let own = connection.client.query_one(BACKEND_PID, &[]).await.map_err(failed)?;
        let own: i32 = own.try_get(0).map_err(failed)?;
        // The first tick comes at once: it finds what came while nothing was heard.
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_notify = Instant::now();
        let mut is_first = true;
        loop {
            target.check(&connection.history).map_err(|error| error.to_string())?;
            let may_have_jobs = select! {
                by = connection.woken() => by.iter().any(|process| *process != own),
                () = self.others.notified() => {
                    sleep_until(next_notify).await;
                    next_notify = Instant::now() + SPACING;
                    connection.client.batch_execute(NOTIFY).await.map_err(failed)?;
                    continue;
                }
                _ = tick.tick() => {
                    let starts_moved =
                        self.starts.may_look() && self.look_for_starts(&mut connection).await?;
                    // Without other nodes, all that makes jobs ready wakes this one.
                    starts_moved || lock(&self.found).has_others
                }
            };
            let look = connection.statement(LOOK).await.map_err(failed)?;
            let row = connection.client.query_one(&look, &[&node]).await.map_err(failed)?;
            let found = read(&row).map_err(|error| error.to_string())?;
            let marks: i64 = column(&row, "marks").map_err(|error| error.to_string())?;
            // A registration meanwhile may be in another history.
            target.check(&connection.history).map_err(|error| error.to_string())?;
            self.marks.store(marks, Ordering::Relaxed);
            let before = std::mem::replace(&mut *lock(&self.found), found.clone());
            stalls.clear(Stalled::WakeUps);
            if may_have_jobs || before != found || is_first {
                self.wake_own();
            }
            is_first = false;
        }
    }

    /// Returns whether claims begin somewhere else now.
    async fn look_for_starts(&self, connection: &mut Connection) -> Result<bool, String> {
        let failed = |error: Error| describe(&error);
        let look = connection.statement(claim_start::LOOK).await.map_err(failed)?;
        let rows = connection.client.query(&look, &[]).await.map_err(failed)?;
        self.starts.looked(&rows).map_err(|error| error.to_string())
    }
}

/// Reads a row of [`LOOK`].
fn read(row: &Row) -> Result<Found, crate::store::border::Error> {
    let (jobs, numbers, claimants): (Vec<Uuid>, Vec<i64>, Vec<Uuid>) =
        (stored(row, "jobs")?, stored(row, "numbers")?, stored(row, "claimants")?);
    let attempts =
        jobs.iter().zip(numbers).zip(claimants).filter_map(|((job, number), claimant)| {
            Some(((JobId::from_bytes(*job.as_bytes()), u32::try_from(number).ok()?), claimant))
        });
    let paused: Vec<&str> = stored(row, "paused")?;
    Ok(Found {
        paused: Arc::new(paused.into_iter().filter_map(|name| name.parse().ok()).collect()),
        cancel_asked: attempts.collect(),
        has_others: column(row, "has_others")?,
    })
}
