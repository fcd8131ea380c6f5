//! ACCEPT of a kept delivery: its events, and its row of the audit list, in one transaction.

use std::sync::Arc;

use rusqlite::Connection;

use crate::model::AuditVerb;
use crate::store::border::{Accept, Accepted, AuditPlace, AuditSubject, DONE, Refused};
use crate::store::sqlite::tables::audit::count_one;

use super::handle::Admin;

impl Admin {
    pub(crate) async fn accept_kept(
        &self,
        new: Vec<Accept>,
        subject: &AuditSubject,
        row: Option<AuditPlace>,
    ) -> Result<(Vec<Accepted>, AuditPlace), Refused> {
        let (caller, subject, now) =
            (Arc::clone(&self.caller), subject.clone(), self.engine.clock.now());
        let note = move |tx: &Connection| match row {
            Some(row) => count_one(tx, row).map(|()| row),
            None => caller.write(tx, now, (AuditVerb::QuarantineAccept, &subject, 1), DONE),
        };
        self.intake.accept_with(new, now, note).await
    }
}
