//! Counts the claims that have read a job's rows in vain: which job is held because the disk does not give it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::model::Name;
use crate::store::mutex::lock;

/// How many claims in a row read a job's rows in vain, and for how long at least, before the last of them holds it: the
/// disk may give them again. As long as on PostgreSQL.
const VAIN_READS: u32 = 3;
const VAIN_TIME: Duration = Duration::from_secs(10);

/// The job of each handler whose rows its last claim has read in vain. A claim fails at the first one.
#[derive(Default)]
pub(crate) struct VainReads(Mutex<BTreeMap<Name, VainRead>>);

#[derive(Default)]
struct VainRead {
    row: i64,
    claims: u32,
    /// The monotonic time of the first.
    since: Duration,
}

impl VainReads {
    /// Notes a claim. Returns whether it is to hold the job, which is forgotten then.
    pub(crate) fn note(&self, handler: &Name, row: i64, now: Duration) -> bool {
        let mut reads = lock(&self.0);
        let read = reads.entry(handler.clone()).or_default();
        if read.row != row {
            *read = VainRead { row, claims: 0, since: now };
        }
        read.claims += 1;
        let lasts = read.claims >= VAIN_READS && now.saturating_sub(read.since) >= VAIN_TIME;
        if lasts {
            reads.remove(handler);
        }
        lasts
    }

    /// The job's rows can be read.
    pub(crate) fn forget(&self, handler: &Name, row: i64) {
        let mut reads = lock(&self.0);
        if reads.get(handler).is_some_and(|read| read.row == row) {
            reads.remove(handler);
        }
    }
}
