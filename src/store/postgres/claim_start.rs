//! Where claims begin to search.
//!
//! PostgreSQL keeps the index entries of jobs that were claimed until no open transaction of the server is older than
//! their claims. Behind a dump or a forgotten session, a claim that begins at the first entry walks over all jobs that
//! were claimed since then. So a node looks for the first job of each handler, beside its claims. If that is slow, its
//! claims begin at this job.
//!
//! What must stay true: every ready or due job is found, at the latest by the claims that follow the next look. A job
//! before the start may become ready: one that was stored in a longer transaction, the next one of a group, or one that
//! an operator puts back.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Row;

use crate::model::Name;
use crate::store::border::Error;
use crate::store::mutex::lock;

use crate::store::columns::column;

/// A quicker look is worth no start. A claim of 64 jobs with their ends takes 20 ms.
const SLOW: Duration = Duration::from_millis(10);

/// The next look comes at the earliest after so many times as long as one took.
const PAUSE: u32 = 10;

/// Each handler, its first ready job and the time of its first waiting one, and how long it took to find them, in
/// microseconds. Where it has none, the last job and the time of now: later ones come behind them.
pub(super) const LOOK: &str = "
    SELECT handler,
        coalesce((SELECT row FROM job WHERE (handler, row) >= (l.handler, 0) AND handler <= l.handler
            AND state = 'ready' AND NOT behind ORDER BY handler, row LIMIT 1), (SELECT max(row) FROM job), 0) AS row,
        coalesce((SELECT due_at FROM job WHERE handler = l.handler AND state = 'waiting' AND NOT behind
            ORDER BY due_at, row LIMIT 1), now_ms()) AS due_at,
        (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint AS micros
    FROM lane l";

/// The first ready job that a claim considers, by its row, and the first time at which a waiting one is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClaimStart {
    pub(super) row: i64,
    pub(super) due_at: i64,
}

/// The starts of all handlers; none while looks are quick.
#[derive(Default)]
pub(super) struct ClaimStarts(Mutex<State>);

#[derive(Default)]
struct State {
    starts: HashMap<Name, ClaimStart>,
    was_slow: bool,
    /// When the next look may be.
    next: Option<Instant>,
}

impl ClaimStarts {
    pub(super) fn of(&self, handler: &Name) -> ClaimStart {
        lock(&self.0).starts.get(handler).copied().unwrap_or_default()
    }

    /// There are no looks now: claims begin at the first entry. Returns whether they began somewhere else.
    pub(super) fn forget(&self) -> bool {
        !std::mem::take(&mut *lock(&self.0)).starts.is_empty()
    }

    pub(super) fn may_look(&self) -> bool {
        lock(&self.0).next.is_none_or(|next| next <= Instant::now())
    }

    /// Notes the rows of a look. One slow look alone may be that of a busy machine. Returns whether claims begin
    /// somewhere else than before.
    pub(super) fn looked(&self, rows: &[Row]) -> Result<bool, Error> {
        let (mut found, mut took) = (HashMap::new(), 0);
        for row in rows {
            let start = ClaimStart { row: column(row, "row")?, due_at: column(row, "due_at")? };
            found.insert(column(row, "handler")?, start);
            took = took.max(column(row, "micros")?);
        }
        let took = Duration::from_micros(took);
        let state = &mut *lock(&self.0);
        let was_slow = std::mem::replace(&mut state.was_slow, took >= SLOW);
        if !(was_slow && state.was_slow) {
            found.clear();
        }
        state.next = Some(Instant::now() + PAUSE * took);
        Ok(std::mem::replace(&mut state.starts, found.clone()) != found)
    }
}
