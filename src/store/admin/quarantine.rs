//! Lists the quarantine, and deletes from it.

use crate::model::AuditVerb;
use crate::store::border::{
    AuditSubject, Error, PageCursor, Quarantine, QuarantineFilter, QuarantinedRow,
};
use crate::store::mutex::lock;
use crate::store::quarantine::keeper::QuarantineKeeper;

use super::handle::Admin;

impl Admin {
    /// The newest deliveries that `filter` selects, and the counts of all.
    pub async fn quarantined(&self, filter: QuarantineFilter) -> Result<Quarantine, Error> {
        let limit = usize::try_from(self.engine.list_limit(filter.limit)).unwrap_or(usize::MAX);
        self.intake
            .quarantine
            .ask(move |keeper| {
                keeper.expire();
                let left_out = lock(&keeper.counts).clone();
                let Some(folder) = keeper.folder() else {
                    return Quarantine { left_out, ..Quarantine::default() };
                };
                let is_next = |id: &i64| filter.before.is_none_or(|before| *id < before.0);
                let mut newest = folder.select(&filter).rev().filter(is_next);
                let page: Vec<i64> = newest.by_ref().take(limit).collect();
                let next = newest.next().and(page.last().copied()).map(PageCursor);
                let deliveries = page.into_iter().filter_map(|id| folder.row(id)).collect();
                let matching = folder.select(&filter).count() as u64;
                Quarantine { deliveries, next, matching, bytes: folder.bytes(), left_out }
            })
            .await
    }

    /// Deletes what `filter` selects; returns how many.
    pub async fn drop_quarantined(&self, filter: QuarantineFilter) -> Result<u64, Error> {
        let subject = subject(&filter);
        let select = move |keeper: &mut QuarantineKeeper| -> Vec<i64> {
            keeper.folder().map(|folder| folder.select(&filter).collect()).unwrap_or_default()
        };
        let selected = self.intake.quarantine.ask(select).await?;
        if selected.is_empty() {
            return Ok(0);
        }
        let (intake, count) = (self.intake.clone(), selected.len() as u64);
        let remove = move |keeper: &mut QuarantineKeeper| {
            let Some(folder) = keeper.folder() else { return 0 };
            selected.into_iter().filter_map(|id| folder.remove(id)).count() as u64
        };
        self.surround(AuditVerb::QuarantineDrop, subject, count, async move {
            let removed = intake.quarantine.ask(remove).await?;
            Ok((removed, removed))
        })
        .await
    }

    /// The newest of each source, with the number of those that can be judged again.
    pub(crate) async fn newest_quarantined(&self) -> Result<Vec<(QuarantinedRow, u64)>, Error> {
        self.intake
            .quarantine
            .ask(|keeper| {
                keeper.expire();
                keeper.folder().map(|folder| folder.newest()).unwrap_or_default()
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
