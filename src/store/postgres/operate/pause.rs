//! PAUSE and RESUME: whether a handler's jobs may be claimed. No job's state is touched.
//!
//! Claims lock the handler's lane first, so a pause waits for those under way, and every later one sees it (N19).

use crate::model::{AuditVerb, Name, Timestamp};
use crate::store::border::{AuditSubject, Error};

use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::params::params;
use super::super::stop::ask;
use super::audit::{Operated, Operation};

/// The first pause's time stays. A lane that is paused already is locked all the same.
const PAUSE: &str = "
    INSERT INTO lane (handler, paused_at) VALUES ($1, now_ms())
    ON CONFLICT (handler) DO UPDATE SET paused_at = excluded.paused_at WHERE lane.paused_at IS NULL
    RETURNING true";

const RESUME: &str =
    "UPDATE lane SET paused_at = NULL WHERE handler = $1 AND paused_at IS NOT NULL RETURNING true";

/// The change of this handler by this statement.
struct SetPaused(&'static str, Name);

impl Operation for SetPaused {
    type Done = bool;

    async fn operate(&self, flight: &mut Flight, _: Timestamp) -> Operated<bool> {
        let changed = ask(flight, self.0, params![&self.1]).await?.len();
        let handler = Some(self.1.clone());
        let subject = AuditSubject { handler, ..AuditSubject::default() };
        Ok((changed > 0, subject, changed as u64))
    }
}

impl Admin {
    /// PAUSE: no node claims anything of `handler` until it is resumed; a running attempt goes on. `false` where it was
    /// paused already.
    pub async fn pause(&self, handler: &Name) -> Result<bool, Error> {
        self.change(AuditVerb::Pause, SetPaused(PAUSE, handler.clone())).await
    }

    /// RESUME: `handler`'s jobs are claimed again. `false` where it was not paused.
    pub async fn resume(&self, handler: &Name) -> Result<bool, Error> {
        self.change(AuditVerb::Resume, SetPaused(RESUME, handler.clone())).await
    }
}
