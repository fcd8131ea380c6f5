//! Counts of what is not kept: by source and reason, which strangers cannot make many of.

use std::collections::BTreeMap;

use crate::model::Name;

use super::types::LeftOut;

/// How many deliveries of which source, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts(BTreeMap<(Name, LeftOut), u64>);

impl Counts {
    pub(super) fn add(&mut self, source: &Name, why: LeftOut, deliveries: u64) {
        *self.0.entry((source.clone(), why)).or_default() += deliveries;
    }

    pub(super) fn add_all(&mut self, other: &Counts) {
        for (source, why, deliveries) in other.iter() {
            self.add(source, why, deliveries);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, LeftOut, u64)> {
        self.0.iter().map(|((source, why), &count)| (source, *why, count))
    }
}
