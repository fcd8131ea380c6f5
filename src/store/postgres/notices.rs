//! Which handlers take notices, and the count of those that a transaction makes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use uuid::Uuid;

use crate::model::{INTERNAL_SOURCE, NoticeType, State};
use crate::store::decide::notice::{NoticeSubscribers, of_state};

use super::flight::Flight;
use super::params::params;

/// Counts those of these jobs ($1 ids) that are dead ($2: they are wanted) or held ($3), as this transaction left them.
/// A job of the internal source ($4) makes no notice. The first time of what is not reported yet stays.
const NOTE_JOBS: &str = r#"
    INSERT INTO notice (type, subject, reason, count, first_at, last_at, source, event_id, job)
    SELECT CASE state WHEN 'dead' THEN 'job.dead' ELSE 'job.held' END AS kind, handler, reason, count(*), now_ms(),
        now_ms(), (array_agg(source ORDER BY job.row DESC))[1], (array_agg(event_id ORDER BY job.row DESC))[1],
        (array_agg(id ORDER BY job.row DESC))[1]
    FROM job LEFT JOIN event ON event.row = job.event
    WHERE id = ANY ($1::uuid[]) AND (state = 'dead' AND $2 OR state = 'held' AND $3) AND source IS DISTINCT FROM $4
    GROUP BY state, handler, reason ORDER BY state, handler, reason
    ON CONFLICT (type, subject, reason) DO UPDATE SET count = notice.count + excluded.count,
        first_at = coalesce(notice.first_at, excluded.first_at), last_at = excluded.last_at,
        source = excluded.source, event_id = excluded.event_id, job = excluded.job"#;

/// Which handlers of this node's configuration take notices. All verbs that move a job share it.
#[derive(Clone, Default)]
pub struct NodeNotices(pub(super) Arc<ArcSwap<NoticeSubscribers>>);

impl NodeNotices {
    /// From now on notices go by these.
    pub fn set(&self, interest: NoticeSubscribers) {
        self.0.store(Arc::new(interest));
    }

    pub(super) fn want(&self, kind: NoticeType) -> bool {
        self.0.load().takers(kind).next().is_some()
    }

    /// Counts those of these jobs that this flight has made dead or held: behind all its moves, since notices are
    /// locked last (N8).
    pub(super) async fn note_jobs(&self, flight: &mut Flight, jobs: Vec<Uuid>) {
        let [dead, held] = [State::Dead, State::Held]
            .map(|state| of_state(state).is_some_and(|kind| self.want(kind)));
        if jobs.is_empty() || !(dead || held) {
            return;
        }
        flight.send(NOTE_JOBS, params![jobs, dead, held, INTERNAL_SOURCE]).await;
    }
}
