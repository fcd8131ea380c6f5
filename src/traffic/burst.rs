//! Log suppression: the first refusal of a kind has a log line, and the next ones share one.
//!
//! A scanner, or a provider with the wrong secret, must not write a line for each request.

use crate::model::Name;

/// Refusals of one kind.
#[derive(Debug, Default)]
pub(super) struct Burst {
    total: u64,
    /// Since the last log line.
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
    /// Since the last line.
    pub count: u64,
}

impl Burst {
    /// Counts a refusal. True if it needs a log line at once.
    pub(super) fn add(&mut self) -> bool {
        self.total += 1;
        let first = !std::mem::replace(&mut self.open, true);
        self.unlogged += u64::from(!first);
        first
    }

    /// How many refusals have no log line yet. `None` ends the burst: the next refusal is a first one.
    pub(super) fn take_unlogged(&mut self) -> Option<u64> {
        let unlogged = std::mem::take(&mut self.unlogged);
        self.open = unlogged > 0;
        self.open.then_some(unlogged)
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_logged_at_once_and_the_next_ones_together() {
        let mut burst = Burst::default();
        assert!(burst.add());
        assert_eq!([burst.add(), burst.add()], [false, false]);
        assert_eq!(burst.take_unlogged(), Some(2));
        assert!(!burst.add(), "the same burst");
        assert_eq!(burst.take_unlogged(), Some(1));
        assert_eq!(burst.take_unlogged(), None, "it is over");
        assert!(burst.add(), "another one");
        assert_eq!((burst.take_unlogged(), burst.total()), (None, 5));
    }
}
