//! PAUSE and RESUME: whether a handler's jobs may be claimed. No job's state is touched.
//!
//! Claims lock the handler's lane first, so a pause waits for those under way, and every later one sees it (N19).

use crate::model::{AuditVerb, Name, Timestamp};
use crate::store::border::{AuditSubject, Error};

use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::params::params;
use super::super::stop::{Stop, ask};
use super::audit::Operation;

/// The first pause's time stays. A lane that is paused already is locked all the same.
const PAUSE: &str = "
    INSERT INTO lane (handler, paused_at) VALUES ($1, now_ms())
    ON CONFLICT (handler) DO UPDATE SET paused_at = excluded.paused_at WHERE lane.paused_at IS NULL
    RETURNING true";

const RESUME: &str =
    "UPDATE lane SET paused_at = NULL WHERE handler = $1 AND paused_at IS NOT NULL RETURNING true";

/// PAUSE or RESUME of a handler.
struct SetPaused {
    verb: AuditVerb,
    sql: &'static str,
    handler: Name,
}

impl Operation for SetPaused {
    type Done = bool;

    fn verb(&self) -> AuditVerb {
        self.verb
    }

    async fn operate(
        &self,
        flight: &mut Flight,
        _: Timestamp,
    ) -> Result<(bool, AuditSubject, u64), Stop> {
        let changed = ask(flight, self.sql, params![&self.handler]).await?.len();
        let handler = Some(self.handler.clone());
        let subject = AuditSubject { handler, ..AuditSubject::default() };
        Ok((changed > 0, subject, changed as u64))
    }
}

impl Admin {
    /// PAUSE: no node claims anything of `handler` until it is resumed; a running attempt goes on. `false` where it was
    /// paused already.
    pub async fn pause(&self, handler: &Name) -> Result<bool, Error> {
        let handler = handler.clone();
        self.change(SetPaused { verb: AuditVerb::Pause, sql: PAUSE, handler }).await
    }

    /// RESUME: `handler`'s jobs are claimed again. `false` where it was not paused.
    pub async fn resume(&self, handler: &Name) -> Result<bool, Error> {
        let handler = handler.clone();
        self.change(SetPaused { verb: AuditVerb::Resume, sql: RESUME, handler }).await
    }
}
