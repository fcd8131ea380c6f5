//! Lists the quarantine, and deletes from it.

use crate::store::border::{Error, Quarantine, QuarantineFilter, QuarantinedRow};
use crate::store::mutex::lock;

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
                let newest = folder.select(&filter).rev().take(limit);
                let deliveries = newest.filter_map(|id| folder.row(id)).collect();
                let matching = folder.select(&filter).count() as u64;
                Quarantine { deliveries, matching, bytes: folder.bytes(), left_out }
            })
            .await
    }

    /// Deletes what `filter` selects; returns how many.
    pub async fn drop_quarantined(&self, filter: QuarantineFilter) -> Result<u64, Error> {
        self.intake
            .quarantine
            .ask(move |keeper| {
                let Some(folder) = keeper.folder() else { return 0 };
                let selected: Vec<i64> = folder.select(&filter).collect();
                selected.into_iter().filter_map(|id| folder.remove(id)).count() as u64
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
