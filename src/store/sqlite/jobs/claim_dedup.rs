//! Claim deduplication: of the runs of all claims, the last one to take a job's row has it.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::store::mutex::lock;

/// Says which run of which claim took a job's row last. Only the writer's thread uses it, and no longer than until that
/// claim is committed.
#[derive(Default)]
pub(crate) struct ClaimDedup(Mutex<Runs>);

#[derive(Default)]
struct Runs {
    count: u64,
    by_row: HashMap<i64, u64>,
}

impl ClaimDedup {
    /// Notes a run that has taken these, and returns its number.
    pub(crate) fn took(&self, rows: impl Iterator<Item = i64>) -> u64 {
        let mut runs = lock(&self.0);
        runs.count += 1;
        let number = runs.count;
        runs.by_row.extend(rows.map(|row| (row, number)));
        number
    }

    /// Whether that run was the last one to take this row.
    pub(crate) fn is_of(&self, row: i64, number: u64) -> bool {
        lock(&self.0).by_row.get(&row) == Some(&number)
    }

    /// The rows of a claim are flushed. Rows that only an earlier run of it took stay noted until a claim gets
    /// them.
    pub(crate) fn committed(&self, rows: impl Iterator<Item = i64>) {
        let mut runs = lock(&self.0);
        for row in rows {
            runs.by_row.remove(&row);
        }
    }
}
