//! What stands still in this process, as far as it knows now.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::model::Timestamp;
use crate::store::border::{Stall, Stalled};
use crate::store::mutex::lock;

/// How long something stands still before a notice is made: longer than a failover that needs nobody's help.
const NOTICE_AFTER: Duration = Duration::from_secs(60);

/// What stands still, and whether a notice was made of it.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<BTreeMap<Stalled, (Stall, bool)>>);

impl Stalls {
    /// It stands still, for this reason.
    pub(crate) fn set(&self, what: Stalled, why: String, now: Timestamp) {
        let mut stalls = lock(&self.0);
        let fresh = || (Stall { what, why: String::new(), since: now }, false);
        stalls.entry(what).or_insert_with(fresh).0.why = why;
    }

    /// It moves. Whether it stood still.
    pub(crate) fn clear(&self, what: Stalled) -> bool {
        lock(&self.0).remove(&what).is_some()
    }

    pub(crate) fn has(&self, what: Stalled) -> bool {
        lock(&self.0).contains_key(&what)
    }

    /// The worst first.
    pub(crate) fn all(&self) -> Vec<Stall> {
        lock(&self.0).values().map(|(stall, _)| stall.clone()).collect()
    }

    /// Returns the stalls of which a notice is due, each once.
    pub(crate) fn untold(&self, now: Timestamp) -> Vec<Stall> {
        let mut stalls = lock(&self.0);
        let due = stalls
            .values_mut()
            .filter(|(stall, told)| !told && now.since(stall.since) >= NOTICE_AFTER);
        due.map(|(stall, told)| {
            *told = true;
            stall.clone()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_lasts_from_its_first_error_to_its_end_and_is_told_once() {
        let (stalls, start) = (Stalls::default(), Timestamp(1_700_000_000_000));
        stalls.set(Stalled::Payloads, "first".to_owned(), start);
        stalls.set(Stalled::Recovery, "other".to_owned(), start.after(NOTICE_AFTER));
        stalls.set(Stalled::Payloads, "last".to_owned(), start.after(NOTICE_AFTER));
        let found: Vec<_> = stalls.all().into_iter().map(|one| (one.what, one.why)).collect();
        let expected =
            [(Stalled::Recovery, "other".to_owned()), (Stalled::Payloads, "last".to_owned())];
        assert_eq!(found, expected);
        let told = |now| stalls.untold(now).into_iter().map(|one| one.what).collect::<Vec<_>>();
        assert_eq!(told(start), []);
        assert_eq!(told(start.after(NOTICE_AFTER)), [Stalled::Payloads]);
        assert_eq!(told(start.after(NOTICE_AFTER)), []);
        assert!(stalls.clear(Stalled::Payloads) && !stalls.clear(Stalled::Payloads));
        stalls.set(Stalled::Payloads, "again".to_owned(), start.after(2 * NOTICE_AFTER));
        let both = [Stalled::Recovery, Stalled::Payloads];
        assert_eq!(told(start.after(3 * NOTICE_AFTER)), both);
    }
}
