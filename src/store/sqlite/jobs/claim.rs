//! CLAIM: jobs become `running`, each with a new attempt, before anything starts.
//!
//! What must stay true: no attempt is in the answers of two claims. A claim whose commit is uncertain is
//! retried, and then takes for its own only what no other claim has taken since.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, params};

use crate::clock::Clock;
use crate::crash;
use crate::model::{
    DeadReason, EventType, Facts, Headers, HeldReason, JobId, Name, Outcome, Runner, Timestamp,
};
use crate::retry::Next;
use crate::store::border::{Claim, Claimed, Claims, Completion, Error, Record};
use crate::store::decide::notice::Notice;
use crate::store::sqlite::engine::queue::{Priority, WriteReply, WriteRequest};
use crate::store::sqlite::engine::writer::is_in_vain;
use crate::store::sqlite::tables::codec;
use crate::store::sqlite::tables::codec::change_one;
use crate::store::sqlite::tables::group;
use crate::store::sqlite::tables::notice::Notices;
use crate::store::sqlite::tables::pace::{read_pace, take_shares};
use crate::store::sqlite::tables::paused::is_paused;
use crate::store::sum::{DAMAGED, KeptPayload, unread};

use super::handle::Jobs;
use super::vain_reads::VainReads;

/// The job whose rows a try of this claim has read in vain, and whether the next one is to hold it.
type InVain = Option<(i64, bool)>;

/// What a claim has taken.
pub(crate) struct Taken {
    /// The number of the claim's run.
    number: u64,
    jobs: Vec<Job>,
    due: Option<Timestamp>,
    pause: Option<Duration>,
}

/// A claimed job.
struct Job {
    row: i64,
    job: JobId,
    attempt: u32,
    counted: u32,
    since: Timestamp,
    /// What its handler gets, the payload as it is stored: the writer's thread does not unpack it. None where retention
    /// has deleted it.
    given: Option<(Facts, KeptPayload)>,
    /// It is of a group.
    grouped: bool,
}

impl Jobs {
    pub async fn claim(
        &self,
        handler: &Name,
        limit: usize,
        runner: Option<Runner>,
    ) -> Result<Claims, Error> {
        let claim = Claim {
            handler: handler.clone(),
            limit,
            runner,
            rate: None,
            cluster_concurrency: None,
        };
        self.complete_and_claim(&[], Some(claim)).await.1.await
    }

    pub(crate) fn claiming(&self, asked: Claim) -> (WriteRequest, WriteReply<Taken>) {
        let (clock, notices) = (self.engine.clock.clone(), self.engine.notices.clone());
        let (dedup, vain_reads) = (Arc::clone(&self.claim_dedup), Arc::clone(&self.vain_reads));
        let (mut number, mut last): (u64, Vec<(i64, u32)>) = (0, Vec::new());
        let mut in_vain = None;
        let take = {
            let dedup = Arc::clone(&dedup);
            move |tx: &Connection| {
                // A commit that failed in its flush may be found in the log by the repair: then these
                // are ours already, and no other claim would take them.
                let jobs = match last.first() {
                    Some(&(row, attempt))
                        if dedup.is_of(row, number) && is_running(tx, row, attempt)? =>
                    {
                        last.iter()
                            .map(|&(row, _)| read(tx, row, &asked.handler))
                            .collect::<rusqlite::Result<Vec<_>>>()?
                    }
                    _ => claim(tx, &asked, &clock, &notices, &vain_reads, &mut in_vain)?,
                };
                number = dedup.took(jobs.iter().map(|job| job.row));
                last = jobs.iter().map(|job| (job.row, job.attempt)).collect();
                // More jobs may be ready, or the next is due at this time.
                let more = jobs.len() == asked.limit;
                let due = if more { None } else { next_due(tx, &asked.handler)? };
                let pause = match asked.rate {
                    Some(rate) => read_pace(tx, &asked.handler, rate, clock.now())?.pause(),
                    None => None,
                };
                Ok(Taken { number, jobs, due, pause })
            }
        };
        WriteRequest::new(Priority::Kept, take, move |taken: &Taken| {
            dedup.committed(taken.jobs.iter().map(|job| job.row))
        })
    }

    /// The claimed jobs, after the commit.
    pub(crate) async fn claimed(&self, taken: Taken) -> Claims {
        let mut jobs = Vec::with_capacity(taken.jobs.len());
        for job in taken.jobs {
            crash::point("claim.commit.after");
            jobs.extend(self.unpack(job).await);
        }
        Claims { number: taken.number, jobs, due: taken.due, pause: taken.pause }
    }

    /// Decompresses the payload. One that cannot be is read from the store once more, because memory may have changed it
    /// or run out.
    async fn unpack(&self, taken: Job) -> Option<Claimed> {
        let (row, job, attempt) = (taken.row, taken.job, taken.attempt);
        let handler = taken.given.as_ref().map(|(facts, _)| facts.handler.clone());
        let (next, detail) = match (unpacked(taken).await, handler) {
            (Ok(claimed), _) => return Some(claimed),
            (Err(_), Some(handler)) => {
                let again = self.engine.read(move |tx| read(tx, row, &handler)).await;
                let again = match again {
                    Ok(again) => unpacked(again).await,
                    Err(error) => Err(io::Error::other(error.to_string())),
                };
                match again.map_err(|error| unread(&error)) {
                    Ok(claimed) => return Some(claimed),
                    Err((reason, detail)) => {
                        if reason == HeldReason::PayloadDamaged {
                            let now = self.engine.clock.now();
                            self.engine.notify(Notice::of_store(DAMAGED, now, now));
                        }
                        (Next::Held(reason), detail)
                    }
                }
            }
            (Err(gone), None) => (Next::Dead(DeadReason::PayloadGone), gone.to_string()),
        };
        tracing::error!(%job, attempt, detail, "a claimed job cannot run");
        let done = Completion {
            job,
            attempt,
            outcome: Outcome::NotStarted,
            counts: false,
            next,
            finished_at: self.engine.clock.now(),
            record: Record { detail, ..Record::default() },
            answer: None,
        };
        // The other jobs of the claim still go to their handler: no other claim would take them.
        self.complete_soon(done).await;
        None
    }
}

/// What the job's handler gets, or why that cannot be read.
async fn unpacked(taken: Job) -> io::Result<Claimed> {
    let Job { counted, since, given, .. } = taken;
    let (mut facts, payload) =
        given.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the payload is gone"))?;
    payload.open(&mut facts).await?;
    Ok(Claimed { facts, counted, since })
}

fn claim(
    tx: &Connection,
    asked: &Claim,
    clock: &Clock,
    notices: &Notices,
    vain_reads: &VainReads,
    in_vain: &mut InVain,
) -> rusqlite::Result<Vec<Job>> {
    let Claim { handler, limit, runner, rate, .. } = asked;
    let now = clock.now();
    if is_paused(tx, handler)? {
        return Ok(Vec::new());
    }
    let pace = match rate {
        Some(rate) => Some(read_pace(tx, handler, *rate, now)?),
        None => None,
    };
    let limit = pace.as_ref().map_or(*limit, |pace| pace.starts().min(*limit));
    let incarnation = runner.as_ref().map(|runner| runner.incarnation.to_string());
    let runner = runner.as_ref().map(|runner| runner.name.as_str());
    let chosen = choose(tx, handler, limit, now)?;
    let mut taken = Vec::with_capacity(chosen.len());
    for row in chosen {
        if *in_vain == Some((row, true)) {
            hold(tx, row, HeldReason::PayloadUnreadable)?;
            tracing::error!(row, "a job cannot be claimed: its rows cannot be read");
            // Committed before another one is read in vain, which would take it back.
            break;
        }
        let mut job = match read(tx, row, handler) {
            Err(error) if is_damage(&error) => {
                hold(tx, row, HeldReason::PayloadDamaged)?;
                // That of the job would have to name its event.
                notices.note(tx, &Notice::of_store(DAMAGED, now, now), now)?;
                tracing::error!(row, %error, "a job cannot be claimed: its rows are damaged");
                continue;
            }
            Err(error) if is_in_vain(&error) => {
                // Once, however often this claim is tried.
                if in_vain.is_none_or(|(noted, _)| noted != row) {
                    let lasts = vain_reads.note(handler, row, clock.monotonic());
                    *in_vain = Some((row, lasts));
                }
                return Err(error);
            }
            found => found?,
        };
        vain_reads.forget(handler, row);
        // A job without its payload is never run with an empty stdin: it dies here (R19, S12).
        let Some((facts, _)) = &mut job.given else {
            change_one(
                tx,
                "UPDATE job SET state = 'dead', reason = 'payload gone', due_at = NULL, settled_at = ?2
                 WHERE row = ?1 AND state IN ('ready', 'waiting')",
                params![row, now.0],
            )?;
            if job.grouped {
                group::release(tx, row)?;
            }
            notices.job(tx, row, now)?;
            continue;
        };
        job.attempt += 1;
        facts.attempt = job.attempt;
        // The one statement that makes a job run: from ready or waiting only, behind no other of its group, the
        // attempt's number + 1.
        change_one(
            tx,
            "UPDATE job SET state = 'running', attempt = ?2, due_at = NULL
             WHERE row = ?1 AND state IN ('ready', 'waiting') AND behind = 0 AND attempt = ?2 - 1",
            params![row, job.attempt],
        )?;
        // The index on live attempts refuses a second one of the same job.
        change_one(
            tx,
            "INSERT INTO attempt (job, number, started_at, incarnation, runner) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![row, job.attempt, now.0, incarnation, runner],
        )?;
        crash::point("claim.commit.before");
        taken.push(job);
    }
    if let Some(pace) = pace {
        take_shares(tx, handler, pace, taken.len())?;
    }
    Ok(taken)
}

/// Whether a column has what the store has never written, or the job's event is none.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, QueryReturnedNoRows,
        Utf8Error,
    };
    matches!(
        error,
        FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)
            | InvalidColumnType(..)
            | QueryReturnedNoRows
            | Utf8Error(..)
    )
}

/// The others of its handler are claimed all the same.
fn hold(tx: &Connection, row: i64, reason: HeldReason) -> rusqlite::Result<()> {
    change_one(
        tx,
        "UPDATE job SET state = 'held', reason = ?2, due_at = NULL
         WHERE row = ?1 AND state IN ('ready', 'waiting')",
        params![row, reason.as_str()],
    )?;
    group::release(tx, row)
}

/// The oldest ready jobs of a handler that are behind no other, and those that wait and are due.
pub(crate) const CHOOSE: [&str; 2] = [
    "SELECT row FROM job WHERE handler = ?1 AND state = 'ready' AND behind = 0 ORDER BY row LIMIT ?2",
    "SELECT row FROM job WHERE handler = ?1 AND state = 'waiting' AND behind = 0 AND due_at <= ?3
     ORDER BY due_at LIMIT ?2",
];

/// The rows of the oldest jobs of `handler` that are ready, or waiting and due: `limit` at most. Each half has its
/// own partial index, so a backlog of a million costs no more than one of ten; in one statement SQLite would make
/// a table of each of them, which takes longer than the look-ups.
fn choose(
    tx: &Connection,
    handler: &Name,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<i64>> {
    let [ready, waiting] = CHOOSE;
    let (mut ready, mut waiting) = (tx.prepare_cached(ready)?, tx.prepare_cached(waiting)?);
    let (handler, count) = (handler.as_str(), codec::size(limit));
    let ready = ready.query_map(params![handler, count], |row| row.get(0))?;
    let waiting = waiting.query_map(params![handler, count, now.0], |row| row.get(0))?;
    let mut rows = ready.chain(waiting).collect::<rusqlite::Result<Vec<i64>>>()?;
    // The rows' order is that of arrival (I6).
    rows.sort_unstable();
    rows.truncate(limit);
    Ok(rows)
}

/// When the next waiting job of `handler` is due. `None` while it is paused: a job that is due and cannot be claimed
/// would be asked for again at once.
fn next_due(tx: &Connection, handler: &Name) -> rusqlite::Result<Option<Timestamp>> {
    // The first entry of the handler's part of the index of waiting jobs.
    tx.prepare_cached(
        "SELECT min(due_at) FROM job WHERE handler = ?1 AND state = 'waiting' AND behind = 0
             AND NOT EXISTS (SELECT 1 FROM paused WHERE handler = ?1)",
    )?
    .query_row([handler.as_str()], |row| codec::maybe_time(row, 0))
}

/// Whether this very attempt is the live one.
fn is_running(tx: &Connection, row: i64, attempt: u32) -> rusqlite::Result<bool> {
    // By the job's row.
    tx.prepare_cached("SELECT 1 FROM job WHERE row = ?1 AND state = 'running' AND attempt = ?2")?
        .exists(params![row, attempt])
}

fn read(tx: &Connection, row: i64, handler: &Name) -> rusqlite::Result<Job> {
    // A job of this transaction, with its event and, where they are still kept, its payload and whose key
    // it has: each by its primary key.
    tx.prepare_cached(
        "SELECT j.id, j.attempt, j.counted, j.since, j.replays,
                e.source, e.event_id, e.type, e.raw_type, e.received_at, e.body_bytes,
                p.headers, p.body, nullif(a.caller, ''), j.group_key IS NOT NULL, p.sum
         FROM job j JOIN event e ON e.row = j.event LEFT JOIN payload p ON p.event = j.event
             LEFT JOIN answer a ON a.event = j.event
         WHERE j.row = ?1",
    )?
    .query_row([row], |found| {
        let (job, attempt) = (codec::job_id(found, 0)?, found.get(1)?);
        let given = match found.get::<_, Option<Vec<u8>>>(12)? {
            None => None,
            Some(body) => {
                let facts = Facts {
                    handler: handler.clone(),
                    job,
                    attempt,
                    replays: found.get(4)?,
                    source: codec::text(found, 5)?,
                    caller: found.get(13)?,
                    event_id: codec::event_id(found, 6)?,
                    event_type: EventType::from_parts(
                        found.get_ref(7)?.as_str()?,
                        found.get_ref(8)?.as_str_or_null()?,
                    ),
                    received_at: codec::time(found, 9)?,
                    headers: Headers::new(),
                    body: Bytes::new(),
                };
                let payload = KeptPayload {
                    headers: found.get(11)?,
                    body,
                    body_bytes: usize::try_from(codec::count(found, 10)?).unwrap_or(usize::MAX),
                    sum: found.get(15)?,
                };
                Some((facts, payload))
            }
        };
        Ok(Job {
            row,
            job,
            attempt,
            counted: found.get(2)?,
            since: codec::time(found, 3)?,
            given,
            grouped: found.get(14)?,
        })
    })
}
