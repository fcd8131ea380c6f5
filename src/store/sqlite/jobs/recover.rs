//! RECOVER: what a crash cut off becomes `unknown` and follows its handler's policy; the clock rule K1.

use rusqlite::Connection;

use crate::model::{HeldReason, INTERNAL_SOURCE, Name, NoticeType, Timestamp};
use crate::retry::{History, Policy};
use crate::store::border::{Completion, Error, RecoveryResult};
use crate::store::decide::job_move::FoundJob;
use crate::store::decide::notice::{Notice, NoticeJob};
use crate::store::decide::recovery;
use crate::store::sqlite::tables::codec;
use crate::store::sqlite::tables::group;
use crate::store::sqlite::tables::job::handlers_with_work;
use crate::store::sqlite::tables::notice::Notices;

use super::complete::settle;
use super::handle::Jobs;

impl Jobs {
    pub async fn recover(&self, policies: Vec<(Name, Policy)>) -> Result<RecoveryResult, Error> {
        let notices = self.engine.notices.clone();
        self.engine.change(move |tx, now| Ok(recover(tx, &policies, &notices, now)?)).await
    }

    pub async fn clamp_due(&self) -> Result<u64, Error> {
        self.engine.change(|tx, now| Ok(clamp(tx, now)?)).await
    }

    pub async fn hold_orphans(&self, handlers: Vec<Name>) -> Result<u64, Error> {
        let notices = self.engine.notices.clone();
        self.engine
            .change(move |tx, now| Ok(hold_orphans(tx, handlers.iter(), &notices, now)?))
            .await
    }
}

fn recover(
    tx: &Connection,
    policies: &[(Name, Policy)],
    notices: &Notices,
    now: Timestamp,
) -> rusqlite::Result<RecoveryResult> {
    let mut recovered = RecoveryResult::default();
    for (job, done) in cut_off(tx, policies, now)? {
        let state = settle(tx, &job, &done, None, notices)?;
        recovered.unknown.push((done.job, done.attempt, state));
    }
    let known = policies.iter().map(|(name, _)| name);
    recovered.orphaned = hold_orphans(tx, known, notices, now)?;
    clamp(tx, now)?;
    Ok(recovered)
}

/// The running attempts that the receiver ran itself, each with its job, by the index of live attempts.
pub(crate) const CUT_OFF: &str =
    "FROM attempt a JOIN job j ON j.row = a.job AND j.attempt = a.number
     WHERE a.outcome IS NULL AND j.state = 'running' AND a.incarnation IS NULL ORDER BY a.job";

/// The job and the completion of every running attempt that the receiver ran itself. For an attempt
/// of a runner the runner's report decides.
fn cut_off(
    tx: &Connection,
    policies: &[(Name, Policy)],
    now: Timestamp,
) -> rusqlite::Result<Vec<(FoundJob, Completion)>> {
    tx.prepare_cached(&format!("SELECT {}, j.counted, j.since {CUT_OFF}", FoundJob::COLUMNS))?
        .query_map([], |row| {
            let job = FoundJob::read(row)?;
            let since = row.get("since").map(Timestamp)?;
            let before = History { counted: row.get("counted")?, since };
            let done =
                recovery::cut_off((job.job, job.attempt), &job.handler, before, policies, now);
            Ok((job, done))
        })?
        .collect()
}

fn hold_orphans<'a>(
    tx: &Connection,
    handlers: impl Iterator<Item = &'a Name> + Clone,
    notices: &Notices,
    now: Timestamp,
) -> rusqlite::Result<u64> {
    let mut moved = 0;
    for handler in handlers_with_work(tx)? {
        if handlers.clone().any(|known| *known == handler) {
            continue;
        }
        if notices.want(NoticeType::JobHeld) {
            // A million jobs may be held at once: how many, and the last of them.
            let (jobs, last) = tx
                .prepare_cached(&format!(
                    "SELECT count(*), max(j.row), j.id, e.source, e.event_id
                     FROM job j JOIN event e ON e.row = j.event
                     WHERE (j.state = 'ready' OR j.state = 'waiting') AND j.handler = ?1
                         AND e.source <> '{INTERNAL_SOURCE}'"
                ))?
                .query_row([handler.as_str()], |row| {
                    let jobs = codec::count(row, 0)?;
                    if jobs == 0 {
                        return Ok((0, None));
                    }
                    let job = NoticeJob {
                        job: codec::job_id(row, 2)?,
                        source: codec::readable(row, 3)?,
                        event_id: codec::readable(row, 4)?,
                    };
                    Ok((jobs, Some(job)))
                })?;
            if let Some(job) = last {
                let reason = HeldReason::HandlerGone.as_str().to_owned();
                let notice =
                    Notice::of_jobs(NoticeType::JobHeld, handler.clone(), reason, jobs, now, job);
                notices.note(tx, &notice, now)?;
            }
        }
        moved += group::hold_all(tx, handler.as_str(), HeldReason::HandlerGone)?;
    }
    Ok(moved as u64)
}

fn clamp(tx: &Connection, now: Timestamp) -> rusqlite::Result<u64> {
    // Lets each wait that begins in the future begin now, as long as it was. By the end of an index: a million jobs may
    // wait.
    tx.prepare_cached(
        "UPDATE job INDEXED BY job_due_from SET due_at = ?1 + (due_at - due_from), due_from = ?1
         WHERE state = 'waiting' AND due_from > ?1",
    )?
    .execute([now.0])
    .map(|moved| moved as u64)
}
