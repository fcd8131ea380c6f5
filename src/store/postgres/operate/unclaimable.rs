//! Jobs that no claim can take, because the server cannot read their events or payloads.

use crate::model::{HeldReason, JobId, Timestamp};

use super::super::flight::Flight;
use super::super::group::{LOCK_OF_JOBS, RELEASE_OF_JOBS};
use super::super::params::params;
use super::super::stop::{Stop, ask};
use super::change::Change;

/// Only what could be claimed.
const HOLD: &str = "
    UPDATE job SET state = 'held', reason = $2, due_at = NULL
    WHERE id = ANY ($1::uuid[]) AND state IN ('ready', 'waiting') AND NOT behind
    RETURNING id";

/// Holds these jobs, and reads nothing of their events. So no notice can name one of them.
pub(super) struct Unclaimable(pub(super) Vec<JobId>);

impl Change for Unclaimable {
    type Done = ();

    const WAKES: bool = true;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<(), Stop> {
        let (jobs, reason) = (&self.0, HeldReason::PayloadUnreadable.as_str());
        flight.send(LOCK_OF_JOBS, params![jobs.clone()]).await;
        ask(flight, HOLD, params![jobs.clone(), reason]).await?;
        flight.send(RELEASE_OF_JOBS, params![jobs.clone()]).await;
        Ok(())
    }
}
