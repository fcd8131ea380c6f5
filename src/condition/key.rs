//! The key by which a handler's jobs are ordered or coalesced, read from an event.

use super::{Doubt, Values, Why};
use crate::model::{GroupKey, GroupRule, Name};
use crate::payload::{Found, Place};

/// The places of `order_by` or `coalesce_by`, and what the jobs of one key do to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub places: Vec<Place>,
    pub rule: GroupRule,
}

impl Key {
    /// The key of an event of this source. Where nothing stands, ordered jobs share one key, and a job that would
    /// be coalesced has none.
    ///
    /// # Errors
    /// What stands at a place is a list or an object, or cannot be known.
    pub fn of(&self, source: &Name, values: &Values<'_>) -> Result<Option<GroupKey>, Doubt> {
        let part = |place: &Place| {
            let why = match values.at(place) {
                Ok([]) => return Ok(None),
                Ok([Found::Text(text) | Found::Number(text)]) => return Ok(Some(text.clone())),
                Ok([Found::Bool(value)]) => return Ok(Some(value.to_string())),
                Ok(_) => Why::NotOne,
                Err(unclear) => Why::Unclear(unclear),
            };
            Err(Doubt { place: place.clone(), why })
        };
        let parts: Vec<Option<String>> = self.places.iter().map(part).collect::<Result<_, _>>()?;
        if self.rule == GroupRule::Latest && parts.contains(&None) {
            return Ok(None);
        }
        let parts: Vec<Option<&str>> = parts.iter().map(Option::as_deref).collect();
        Ok(Some(GroupKey::of(source, &parts)))
    }
}
