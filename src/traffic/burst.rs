//! Log suppression: the first refusal of a kind has a log line, and the next ones share one.
//!
//! A scanner, or a provider with the wrong secret, must not write a line for each request.

use std::collections::BTreeMap;

use crate::model::Name;

/// The refusals of one source, or those of no source, by kind: the answer and the reason, one word each.
#[derive(Debug, Default)]
pub(super) struct Bursts(BTreeMap<(&'static str, &'static str), Burst>);

/// Refusals of one kind.
#[derive(Debug, Default)]
struct Burst {
    total: u64,
    /// The refusals since the last log line.
    unlogged: u64,
    /// The first was logged, and the next ones are counted.
    open: bool,
}

/// How many refusals of one kind a log line counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalCount {
    /// `None` for a request to no source.
    pub source: Option<Name>,
    pub answer: &'static str,
    /// One word.
    pub reason: &'static str,
    /// The refusals since the last line.
    pub count: u64,
}

impl Bursts {
    /// Counts a refusal. True if it needs a log line at once.
    pub(super) fn add(&mut self, answer: &'static str, reason: &'static str) -> bool {
        let burst = self.0.entry((answer, reason)).or_default();
        burst.total += 1;
        let first = !std::mem::replace(&mut burst.open, true);
        burst.unlogged += u64::from(!first);
        first
    }

    /// The refusals that have no log line yet. A kind without any is over: its next refusal is a first one.
    pub(super) fn take_unlogged(&mut self, source: Option<&Name>) -> Vec<RefusalCount> {
        let count = |(&(answer, reason), burst): (&_, &mut Burst)| {
            let count = std::mem::take(&mut burst.unlogged);
            burst.open = count > 0;
            burst.open.then(|| RefusalCount { source: source.cloned(), answer, reason, count })
        };
        self.0.iter_mut().filter_map(count).collect()
    }

    /// All refusals by answer and reason.
    pub(super) fn totals(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.0.iter().map(|(&(answer, reason), burst)| (answer, reason, burst.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_logged_at_once_and_the_next_ones_together() {
        let mut bursts = Bursts::default();
        let unlogged = |bursts: &mut Bursts| -> Vec<u64> {
            bursts.take_unlogged(None).iter().map(|counted| counted.count).collect()
        };
        assert!(bursts.add("a", "b"));
        assert_eq!([bursts.add("a", "b"), bursts.add("a", "b")], [false, false]);
        assert_eq!(unlogged(&mut bursts), [2]);
        assert!(!bursts.add("a", "b"), "the same burst");
        assert_eq!(unlogged(&mut bursts), [1]);
        assert!(unlogged(&mut bursts).is_empty(), "it is over");
        assert!(bursts.add("a", "b"), "another one");
        assert!(bursts.add("a", "c"), "another kind");
        assert!(unlogged(&mut bursts).is_empty());
        assert_eq!(bursts.totals().collect::<Vec<_>>(), [("a", "b", 5), ("a", "c", 1)]);
    }
}
