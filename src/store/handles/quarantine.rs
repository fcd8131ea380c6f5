//! QUARANTINE: keeps deliveries that failed verification, lists them, and deletes them. The same for all engines.

use std::sync::Arc;

use crate::model::AuditVerb;
use crate::store::border::{
    AuditSubject, Error, FailedDelivery, Quarantine, QuarantineFilter, Reverifier,
};
use crate::store::mutex::lock;
use crate::store::quarantine::handle::QuarantineHandle;
use crate::store::quarantine::keeper::QuarantineKeeper;

use super::{Admin, Intake, on_engine};

impl Intake {
    /// Keeps a failed delivery, or only counts it: where there are too many of them, and where the disk
    /// is short. Never waits.
    pub fn quarantine(&self, failed: FailedDelivery) {
        match self {
            Intake::Sqlite(intake) => intake.quarantine.keep(failed),
            Intake::Postgres(_, quarantine) => quarantine.keep(failed),
        }
    }
}

impl Admin {
    pub(super) fn quarantine(&self) -> &Arc<QuarantineHandle> {
        on_engine!(self, engine => &engine.quarantine)
    }

    /// Says how a kept delivery is judged: with the configuration in force, which may be set again.
    pub fn set_judge(&self, judge: Reverifier) {
        *lock(&self.quarantine().judge) = Some(judge);
    }

    /// The newest deliveries that `filter` selects, and the counts of all.
    pub async fn quarantined(&self, filter: QuarantineFilter) -> Result<Quarantine, Error> {
        self.quarantine().page(filter).await
    }

    /// Deletes what `filter` selects; returns how many.
    pub async fn drop_quarantined(&self, filter: QuarantineFilter) -> Result<u64, Error> {
        let subject = subject(&filter);
        let select = move |keeper: &mut QuarantineKeeper| -> Vec<i64> {
            keeper.folder().map(|folder| folder.select(&filter).collect()).unwrap_or_default()
        };
        let selected = self.quarantine().ask(select).await?;
        if selected.is_empty() {
            return Ok(0);
        }
        let (quarantine, count) = (Arc::clone(self.quarantine()), selected.len() as u64);
        let remove = move |keeper: &mut QuarantineKeeper| {
            let Some(folder) = keeper.folder() else { return 0 };
            selected.into_iter().filter_map(|id| folder.remove(id)).count() as u64
        };
        self.surround(AuditVerb::QuarantineDrop, subject, count, async move {
            let removed = quarantine.ask(remove).await?;
            Ok((removed, removed))
        })
        .await
    }
}

/// What the audit list says of these.
pub(super) fn subject(filter: &QuarantineFilter) -> AuditSubject {
    AuditSubject {
        source: filter.source.clone(),
        refused_for: filter.reason.clone(),
        since: filter.since,
        upto: filter.upto,
        ..AuditSubject::default()
    }
}
