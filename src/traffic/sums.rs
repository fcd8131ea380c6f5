//! Failures as the log has them: the first of a kind at once, the rest summed.
//!
//! A scanner, or a provider with the wrong secret, must not write a line per request.

use crate::model::Name;

/// Failures of one kind.
#[derive(Debug, Default)]
pub(super) struct Sum {
    total: u64,
    untold: u64,
    /// The first was told, and those that follow are summed.
    open: bool,
}

/// So many more failures of one kind, for one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Of which source; none where it has none.
    pub source: Option<Name>,
    /// How they were answered.
    pub answer: &'static str,
    /// Why, in one word.
    pub reason: &'static str,
    /// How many there were since the last line.
    pub count: u64,
}

impl Sum {
    /// Counts one. True where it is to be told at once.
    pub(super) fn add(&mut self) -> bool {
        self.total += 1;
        let first = !std::mem::replace(&mut self.open, true);
        self.untold += u64::from(!first);
        first
    }

    /// Hands over how many were not told yet, where there are any. False where there were none: the
    /// next one is a first again.
    pub(super) fn tell(&mut self, tell: impl FnOnce(u64)) -> bool {
        let untold = std::mem::take(&mut self.untold);
        self.open = untold > 0;
        if untold > 0 {
            tell(untold);
        }
        self.open
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_rest_together() {
        let mut sum = Sum::default();
        let mut told = Vec::new();
        assert!(sum.add());
        assert_eq!([sum.add(), sum.add()], [false, false]);
        assert!(sum.tell(|count| told.push(count)));
        assert!(!sum.add(), "the same burst");
        assert!(sum.tell(|count| told.push(count)));
        assert!(!sum.tell(|count| told.push(count)), "it is over");
        assert!(sum.add(), "another one");
        assert!(!sum.tell(|count| told.push(count)));
        assert_eq!((told, sum.total()), (vec![2, 1], 5));
    }
}
